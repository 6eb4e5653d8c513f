//! The parallel groups of an inference engine: tensor, pipeline, data and expert parallel groups of every rank, opened
//! and closed together.
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

mod alone;
mod config;
mod coordinator;
mod layout;
mod named;
mod objects;
mod opening;
mod origin;
mod quantised;
mod rendezvous;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::FinalExchange;
use crate::bootstrap::host::boot_id;
use crate::bootstrap::{Bootstrap, until};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::group::Config;

use config::{Chosen, Resolved};
use opening::Terms;
use origin::Origin;

#[cfg(feature = "nccl")]
pub use crate::backend::nccl_library;
pub use crate::backend::{Backend, Explanation, Hosts, QuantisedAllReduce, Served};
pub use crate::variables::{Setting, SettingSource, VARIABLES, Variable, warn_of_variables};
pub use alone::GroupConfig;
pub use config::EnvConfig;
pub use coordinator::Coordinator;
pub use layout::{ParallelLayout, Parallelism};
pub use named::{NamedTensor, NamedValue};
pub use rendezvous::InitMethod;

/// The groups of one rank: the world, and its tensor, pipeline, data and expert parallel groups.
///
/// Groups of the same ranks share one communicator and its memory. If an environment is dropped without
/// [`close`](Self::close), calls that need this rank fail on the others. Nothing hangs, and NCCL is aborted.
#[must_use = "dropping the environment leaves its groups"]
pub struct Environment {
    layout: ParallelLayout,
    hosts: Hosts,
    settings: Vec<Setting>,
    /// The bootstrap of ranks on several hosts.
    kept: Option<Arc<FinalExchange>>,
    /// The coordinator of the world, then one for each [`Parallelism`] in order.
    coordinators: Vec<Coordinator>,
}

impl Environment {
    /// Meets the other ranks, and opens the communicators of the world and of the groups. After [`close`](Self::close)
    /// a process may open another environment. Collective; blocks.
    ///
    /// If ranks are on several hosts, the ranks of each host open communicators of their own. NCCL (feature `nccl`) or an
    /// engine (feature `gloo`) connects groups that span hosts.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the product of the sizes does not divide the world size (the message shows the
    /// arithmetic), for a malformed or missing variable, or an unknown device; [`Error::Mismatch`] if ranks differ in
    /// sizes or settings; [`Error::Unsupported`], with the hosts, for several hosts in a build without NCCL and
    /// engines; else the errors of [`Communicator::open`](crate::Communicator::open).
    pub fn init(config: EnvConfig) -> Result<Self> {
        config.communicator.check_deadlines()?;
        let deadline = until(config.communicator.deadlines.open);
        let told = config.init_method.told();
        let mut resolved = config.resolve(told)?;
        let method = std::mem::replace(&mut resolved.init_method, InitMethod::Env);
        let way = method.local_address(deadline);
        let mut bootstrap = method.connect(resolved.rank, resolved.layout.world_size(), deadline)?;
        let met = Met::new(&mut *bootstrap, resolved, deadline)?;
        match met.hosts.count() {
            1 => met.open_on_one_host(bootstrap),
            _ => met.open_on_hosts(bootstrap, way),
        }
    }

    /// Opens an environment over a borrowed bootstrap, which cannot be kept: all ranks must be on one host.
    pub(crate) fn init_on(mut bootstrap: impl Bootstrap, config: EnvConfig) -> Result<Self> {
        config.communicator.check_deadlines()?;
        let deadline = until(config.communicator.deadlines.open);
        let told = (bootstrap.rank(), bootstrap.world_size());
        let met = Met::new(&mut bootstrap, config.resolve(Some(told))?, deadline)?;
        if met.hosts.count() > 1 {
            let reason = "they must meet by an init method or an object that is kept: this one is borrowed";
            return Err(Error::unsupported(format!("ranks on {}", met.hosts), reason));
        }
        met.open_on_one_host(bootstrap)
    }

    /// Logs the backends of each group in order, one line per group.
    fn log(&self) {
        for group in &self.coordinators {
            let backends: Vec<_> = group.explain().iter().map(ToString::to_string).collect();
            crate::log!(INFO, "{}: {}", group.name(), backends.join(" | "));
        }
    }

    /// The group of all ranks.
    pub fn world(&self) -> &Coordinator {
        &self.coordinators[0]
    }

    /// The tensor parallel group: the ranks that share each layer with this rank.
    pub fn tp(&self) -> &Coordinator {
        self.group(Parallelism::Tensor)
    }

    /// The pipeline parallel group: the stages of this rank's pipeline.
    pub fn pp(&self) -> &Coordinator {
        self.group(Parallelism::Pipeline)
    }

    /// The data parallel group: the ranks that hold the same layers for other requests.
    pub fn dp(&self) -> &Coordinator {
        self.group(Parallelism::Data)
    }

    /// The expert parallel group: the ranks that share this stage's experts.
    pub fn ep(&self) -> &Coordinator {
        self.group(Parallelism::Expert)
    }

    /// The group of one parallelism.
    pub fn group(&self, parallelism: Parallelism) -> &Coordinator {
        &self.coordinators[1 + parallelism as usize]
    }

    /// The ranks of every group.
    pub fn layout(&self) -> &ParallelLayout {
        &self.layout
    }

    /// The host of every rank.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The settings in force, with their sources.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Closes every group. Later calls on its communicators fail with [`Error::Closed`]. Collective; blocks.
    ///
    /// # Errors
    /// The first error of a group that had failed. All groups are closed nevertheless. [`Error::Unsupported`] in a user
    /// callback that runs inside a call of one of the communicators; nothing is closed in this case.
    pub fn close(self) -> Result<()> {
        self.close_groups()
    }

    pub(crate) fn close_groups(&self) -> Result<()> {
        // These checks run before anything is closed.
        self.world().device().check_process("an environment")?;
        self.coordinators.iter().try_for_each(|coordinator| coordinator.local().refuse_within("closing"))?;
        let deadline = until(self.world().local().group().config().deadlines.open);
        // Ranks on other hosts would report a rank that leaves first as lost.
        let mut result = self.kept.as_ref().map_or(Ok(()), |kept| kept.close(self.check(), deadline));
        for (number, coordinator) in self.coordinators.iter().enumerate().rev() {
            let owner = number == 0 || opening::shared(&self.layout, Parallelism::ALL[number - 1]).is_none();
            if owner {
                result = coordinator.serving().close().and(result);
            }
        }
        result
    }

    /// The world's coordinator, then one for each [`Parallelism`] in order.
    pub(crate) fn coordinators(&self) -> &[Coordinator] {
        &self.coordinators
    }

    fn check(&self) -> Result<()> {
        self.coordinators.iter().try_for_each(|group| group.check())
    }
}

/// An environment whose ranks have met, before anything is opened.
struct Met {
    layout: ParallelLayout,
    hosts: Hosts,
    settings: Vec<Setting>,
    device: Chosen,
    interface: Option<(String, SettingSource)>,
    backend: Option<Backend>,
    quantised: Option<QuantisedAllReduce>,
    communicator: Config,
    /// The name of this rank's host.
    host: String,
}

impl Met {
    /// Collective; blocks.
    fn new(bootstrap: &mut dyn Bootstrap, resolved: Resolved, deadline: Instant) -> Result<Self> {
        warn_of_variables();
        let Resolved { rank, layout, communicator, backend, quantised, mut settings, .. } = resolved;
        let host = resolved.host.unwrap_or_else(boot_id);
        // Ranks with different sizes would wait for groups that never form.
        let sizes =
            Parallelism::ALL.map(|parallelism| format!("{parallelism} {}", layout.size(parallelism))).join(", ");
        let mut agreed = vec![("the parallel sizes".to_owned(), sizes)];
        agreed.push(("the quantised all-reduce".to_owned(), quantised::shown(quantised)));
        agreed.extend(opening::agreed(&communicator, backend));
        let hosts = opening::meet(bootstrap, "to open an environment", host.clone(), agreed, deadline)?;
        let local = resolved.local_rank.unwrap_or((hosts.local_rank(rank).unwrap_or(rank), SettingSource::Derived));
        let (device, of_device) =
            config::choose_device(resolved.device.as_ref(), local, Device::count(DeviceKind::Cuda));
        settings.extend(of_device);
        let interface = resolved.interface;
        Ok(Self { layout, hosts, settings, device, interface, backend, quantised, communicator, host })
    }

    fn open_on_one_host(self, bootstrap: impl Bootstrap) -> Result<Environment> {
        let Self { layout, hosts, settings, device, interface, backend: forced, quantised, communicator, host } = self;
        let interface = interface.map(|(name, _)| name);
        let terms = Terms { hosts: &hosts, config: communicator, interface, forced, quantised };
        let origin = origin(&terms, host);
        let coordinators = opening::on_one_host(bootstrap, device.open(), &terms, &layout, &origin)?;
        let environment = Environment { layout, hosts, settings, kept: None, coordinators };
        environment.log();
        Ok(environment)
    }

    /// `way`: the address of this host from which it reaches rank 0.
    fn open_on_hosts(self, bootstrap: Box<dyn Bootstrap>, way: Option<IpAddr>) -> Result<Environment> {
        let Self { layout, hosts, mut settings, device, interface, backend: forced, quantised, communicator, host } =
            self;
        let interface = interface.or_else(|| Some((way?.to_string(), SettingSource::Derived)));
        settings.extend(interface.clone().map(|(value, source)| Setting { name: "interface", value, source }));
        let interface = interface.map(|(name, _)| name);
        let terms = Terms { hosts: &hosts, config: communicator, interface, forced, quantised };
        let origin = origin(&terms, host);
        let (coordinators, kept) = opening::on_hosts(bootstrap, device.open(), &terms, &layout, &origin)?;
        let environment = Environment { layout, hosts, settings, kept: Some(kept), coordinators };
        environment.log();
        Ok(environment)
    }
}

/// The settings with which the groups of an environment split.
fn origin(terms: &Terms<'_>, host: String) -> Arc<Origin> {
    let (hosts, interface) = (terms.hosts.clone(), terms.interface.clone());
    Arc::new(Origin { hosts, host, interface, backend: terms.forced, alone: None })
}

impl Drop for Environment {
    fn drop(&mut self) {
        // Dropping a group waits for the device, where an NCCL kernel, also of another group, may wait forever.
        self.coordinators.iter().for_each(Coordinator::abandon);
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Environment({:?} on {})", self.coordinators, self.hosts)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/environment.rs"]
mod tests;
