//! What an inference engine with tensor, pipeline, data and expert parallelism needs around the
//! collectives: every rank's groups, opened and closed together.
//!
//! ```
//! use symmetra::bootstrap::Threads;
//! use symmetra::environment::{EnvConfig, Environment, InitMethod};
//!
//! let ranks = Threads::new(4)?.into_iter().map(|bootstrap| {
//!     std::thread::spawn(move || {
//!         let mut config = EnvConfig::default();
//!         (config.tensor_parallel_size, config.pipeline_parallel_size) = (2, 2);
//!         config.init_method = InitMethod::bootstrap(bootstrap);
//!         config.communicator.heap_bytes = 1 << 20;
//!         let environment = Environment::init(config)?;
//!         let (tp, pp) = (environment.tp().ranks().to_vec(), environment.pp().ranks().to_vec());
//!         environment.close()?;
//!         Ok::<_, symmetra::Error>((tp, pp))
//!     })
//! });
//! let groups: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
//! assert_eq!(groups[1], Ok((vec![0, 1], vec![1, 3])));
//! # Ok::<(), symmetra::Error>(())
//! ```

mod config;
mod coordinator;
mod layout;
mod rendezvous;
mod setting;
mod variables;

use std::time::Instant;

use crate::bootstrap::Bootstrap;
use crate::collective::Communicator;
use crate::error::{Error, Result};

use config::Resolved;

pub use config::EnvConfig;
pub use coordinator::Coordinator;
pub use layout::{Layout, Parallelism};
pub use rendezvous::InitMethod;
pub use setting::{Setting, Source};
pub use variables::{VARIABLES, Variable};

/// A rank's groups: the world, and its tensor, pipeline, data and expert parallel groups.
///
/// Groups of the same ranks share one communicator and its memory. Dropped without
/// [`close`](Self::close), the rank counts as lost by the others; nothing hangs.
#[derive(Debug)]
pub struct Environment {
    layout: Layout,
    settings: Vec<Setting>,
    /// The world, then each [`Parallelism`] in order.
    coordinators: Vec<Coordinator>,
}

impl Environment {
    /// Meets the other ranks, opens the world's communicator and those of the groups. Collective;
    /// blocks. After [`close`](Self::close) a process may do it again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for sizes whose product does not divide the world size (it shows the
    /// arithmetic), a malformed or missing variable, or a device there is not;
    /// [`Error::Mismatch`] when ranks differ in sizes or settings; as [`Communicator::open`] otherwise.
    pub fn init(mut config: EnvConfig) -> Result<Self> {
        match std::mem::replace(&mut config.init_method, InitMethod::Env) {
            InitMethod::Bootstrap(bootstrap) => Self::init_on(bootstrap, config),
            method => {
                let deadline = Instant::now() + config.communicator.deadlines.open;
                config.init_method = method;
                let mut resolved = config.resolve(None)?;
                let method = std::mem::replace(&mut resolved.init_method, InitMethod::Env);
                let bootstrap = method.connect(resolved.rank, resolved.layout.world_size(), deadline)?;
                Self::open(bootstrap, resolved)
            }
        }
    }

    /// The same over a bootstrap that may be borrowed.
    pub(crate) fn init_on(bootstrap: impl Bootstrap, config: EnvConfig) -> Result<Self> {
        let told = (bootstrap.rank(), bootstrap.world_size());
        Self::open(bootstrap, config.resolve(Some(told))?)
    }

    fn open(bootstrap: impl Bootstrap, resolved: Resolved) -> Result<Self> {
        variables::warn_of_unknown();
        let device = resolved.device.open()?;
        let (layout, settings) = (resolved.layout, resolved.settings);
        let world = Communicator::open(bootstrap, &device, resolved.communicator)?;
        agree(&world, &layout)?;
        let everyone = (0..layout.world_size()).collect();
        let mut coordinators = vec![Coordinator::new("world", world.clone(), everyone)];
        for parallelism in Parallelism::ALL {
            let communicator = match shared(&layout, parallelism) {
                Some(other) => coordinators[other].communicator().clone(),
                None => split(&world, &layout, parallelism)?,
            };
            let ranks = layout.group_of(parallelism, world.rank());
            coordinators.push(Coordinator::new(parallelism.name(), communicator, ranks));
        }
        Ok(Self { layout, settings, coordinators })
    }

    /// All ranks.
    pub fn world(&self) -> &Coordinator {
        &self.coordinators[0]
    }

    /// The ranks that share each layer with this one.
    pub fn tp(&self) -> &Coordinator {
        self.group(Parallelism::Tensor)
    }

    /// The stages of this rank's pipeline.
    pub fn pp(&self) -> &Coordinator {
        self.group(Parallelism::Pipeline)
    }

    /// The ranks that hold what this one holds, for other requests.
    pub fn dp(&self) -> &Coordinator {
        self.group(Parallelism::Data)
    }

    /// The ranks that share this stage's experts.
    pub fn ep(&self) -> &Coordinator {
        self.group(Parallelism::Expert)
    }

    /// The group of one parallelism.
    pub fn group(&self, parallelism: Parallelism) -> &Coordinator {
        &self.coordinators[1 + parallelism as usize]
    }

    /// Who is in which group.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The effective settings, and who decided each.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Closes every group in good order. Collective; blocks. Later calls on its communicators fail
    /// with [`Error::Closed`].
    ///
    /// # Errors
    /// The first error of a group that had failed: all are closed all the same.
    pub fn close(self) -> Result<()> {
        self.close_groups()
    }

    pub(crate) fn close_groups(&self) -> Result<()> {
        let mut result = Ok(());
        for (number, coordinator) in self.coordinators.iter().enumerate().rev() {
            let owner = number == 0 || shared(&self.layout, Parallelism::ALL[number - 1]).is_none();
            if owner {
                result = coordinator.communicator().clone().close().and(result);
            }
        }
        result
    }

    /// The world, then each [`Parallelism`] in order.
    pub(crate) fn coordinators(&self) -> &[Coordinator] {
        &self.coordinators
    }
}

/// The earlier coordinator whose ranks are the same everywhere, so that every rank shares alike.
fn shared(layout: &Layout, parallelism: Parallelism) -> Option<usize> {
    if layout.size(parallelism) == layout.world_size() {
        return Some(0);
    }
    let groups = layout.groups(parallelism);
    let earlier = Parallelism::ALL.into_iter().take(parallelism as usize);
    earlier.enumerate().find(|(_, other)| layout.groups(*other) == groups).map(|(number, _)| number + 1)
}

fn split(world: &Communicator, layout: &Layout, parallelism: Parallelism) -> Result<Communicator> {
    let number = layout.group_number(parallelism, world.rank());
    let color = u32::try_from(number).map_err(|_| Error::invalid("the group", number, "it must fit 32 bits"))?;
    let group = world.split(Some(color), 0)?;
    group.ok_or_else(|| Error::Internal { message: format!("rank {} is in no {parallelism} group", world.rank()) })
}

/// Ranks that were told different sizes would split into groups that never form.
fn agree(world: &Communicator, layout: &Layout) -> Result<()> {
    let sizes = Parallelism::ALL.map(|parallelism| format!("{parallelism} {}", layout.size(parallelism))).join(", ");
    let all = world.group().all_gather_bytes(sizes.as_bytes())?;
    let theirs = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match all.iter().enumerate().find(|(_, bytes)| **bytes != all[0]) {
        None => Ok(()),
        Some((rank, bytes)) => Err(Error::Mismatch {
            what: "the parallel sizes".to_owned(),
            against: 0,
            ours: theirs(&all[0]),
            rank,
            theirs: theirs(bytes),
        }),
    }
}
