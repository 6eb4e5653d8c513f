//! Groups outside an environment: one group of all ranks, and the groups that a group splits into.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::config::interface_and_backend;
use super::coordinator::{Coordinator, Serving};
use super::opening::{self, Spread, Terms};
use super::origin::{Alone, Origin};
use crate::backend::{Backend, FinalExchange, Hosts};
use crate::bootstrap::hello::{SentId, tell};
use crate::bootstrap::host::boot_id;
use crate::bootstrap::{Bootstrap, Tcp, UniqueId, until};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::{Config, members};
use crate::settings::setters;
use crate::variables::{Process, warn_of_variables};

/// The name, in messages, of a group that belongs to no environment.
const NAME: &str = "group";

/// The settings of a group that [`Coordinator::open`] opens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct GroupConfig {
    /// The settings of the group's communicator. Equal on every rank.
    pub communicator: Config,
    /// The name of this host. Ranks with equal names share memory. `None`: the system's boot id.
    pub host: Option<String>,
    /// The interface for traffic between hosts: an IP address of this host or the name of an interface. `None`: from
    /// `SYMMETRA_INTERFACE`. A group on several hosts needs one.
    pub interface: Option<String>,
    /// The only backend for a group of more than one rank; a call that it does not serve is an error. `None`: from
    /// `SYMMETRA_BACKEND`, else the first backend that serves the call. Equal on every rank.
    pub backend: Option<Backend>,
}

setters! { GroupConfig {
    communicator: Config, host: Option<String>, interface: Option<String>, backend: Option<Backend>,
} }

/// The arguments of this rank in a split, which the other ranks need.
#[derive(Serialize, Deserialize)]
struct SplitWish {
    color: Option<u32>,
    key: i32,
}

impl Coordinator {
    /// Opens one group of all ranks of `bootstrap`, on one host or on several, with every operation of a coordinator
    /// and without the parallel groups of an [`Environment`](super::Environment). Ranks have the numbers of the
    /// bootstrap. Each rank [closes](Self::close) the group. Collective; blocks, for `deadlines.open` at most.
    ///
    /// If all ranks are on one host, the bootstrap is dropped when the group is open; otherwise with the group, as
    /// for [`InitMethod::Bootstrap`](super::InitMethod::Bootstrap).
    ///
    /// ```
    /// use symmetra::bootstrap::Threads;
    /// use symmetra::environment::{Coordinator, GroupConfig};
    /// use symmetra::{Device, DeviceBuffer, Stream};
    ///
    /// fn rank(bootstrap: Threads) -> symmetra::Result<Option<Vec<f32>>> {
    ///     let (device, mut config) = (Device::host()?, GroupConfig::default());
    ///     config.communicator.heap_bytes = 1 << 20;
    ///     let group = Coordinator::open(bootstrap, &device, config)?;
    ///     // Ranks 1 and 2, in this order; rank 0 joins no part.
    ///     let part = group.split((group.rank() > 0).then_some(7), 0)?;
    ///     group.close()?;
    ///     let Some(part) = part else { return Ok(None) };
    ///     let stream = Stream::new(&device)?;
    ///     let buffer = DeviceBuffer::from_slice(&[1.0f32, part.rank() as f32], &stream)?;
    ///     part.all_reduce_in_place(&buffer, &stream)?;
    ///     part.synchronize(&stream)?;
    ///     part.close()?;
    ///     buffer.read(&stream).map(Some)
    /// }
    ///
    /// let ranks: Vec<_> = Threads::new(3)?.into_iter().map(|ours| std::thread::spawn(move || rank(ours))).collect();
    /// let results: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    /// assert_eq!(results, [Ok(None), Ok(Some(vec![2.0, 1.0])), Ok(Some(vec![2.0, 1.0]))]);
    /// # Ok::<(), symmetra::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks differ in settings; [`Error::InvalidArgument`] for a setting outside its limits or
    /// a malformed variable; [`Error::Unsupported`] for ranks on several hosts without an interface, or in a build
    /// without NCCL and without an engine between hosts (the message names the hosts); else the errors of
    /// [`Communicator::open`](crate::Communicator::open).
    pub fn open(bootstrap: impl Bootstrap + 'static, device: &Device, config: GroupConfig) -> Result<Self> {
        let mut bootstrap: Box<dyn Bootstrap> = Box::new(bootstrap);
        let (met, deadline) = MetAlone::new(&mut *bootstrap, config)?;
        match met.hosts.count() {
            1 => met.open_on_one_host(bootstrap, device),
            _ => met.open_on_hosts(bootstrap, device, deadline),
        }
    }

    /// Splits the group. Ranks with equal `color` form a new group, ordered by `key`, then by rank. A rank with `None`
    /// joins no new group. The new group has the settings of this group, numbers its ranks from 0, and does not depend
    /// on this group: either may be closed first. Collective over all ranks of this group; blocks. If one rank fails,
    /// all ranks of all colours fail.
    ///
    /// The first rank of each colour listens at a port, on loopback if all ranks of the colour are on one host. It
    /// sends its [`UniqueId`] to the other ranks over this group.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), with rank numbers of this group: [`Error::PeerLost`] at once for a rank of
    /// this host that dies meanwhile, and within `deadlines.open` for a rank of another host. [`Error::Peer`] if
    /// another rank failed; [`Error::Closed`], or the group's error if the group has failed.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        self.split_as(color, key, |_| ())
    }

    /// [`split`](Self::split), with other settings of the new group's communicator, equal on all its ranks.
    pub(crate) fn split_as(
        &self,
        color: Option<u32>,
        key: i32,
        change: impl FnOnce(&mut Config),
    ) -> Result<Option<Self>> {
        self.check()?;
        let mut all_ranks = self.serving().as_bootstrap();
        let deadline = until(self.local().group().config().deadlines.open);
        let wishes = tell(&mut all_ranks, "to split a group", &SplitWish { color, key }, deadline)?;
        let wishes: Vec<_> = wishes.into_iter().map(|wish| (wish.color, wish.key)).collect();
        let part = members(&wishes, color).unwrap_or_default();
        // The first rank of a colour listens.
        let listened = (part.len() > 1 && part[0] == self.rank()).then(|| self.listen(&part));
        let place: SentId = listened.as_ref().map(|id| match id {
            Ok(id) => Ok(id.to_string()),
            Err(error) => Err(error.to_string()),
        });
        let places = tell(&mut all_ranks, "to meet in the parts of a group", &place, deadline)?;
        let own = listened.transpose();
        let made = match part.is_empty() {
            true => own.map(|_| None),
            false => own.and_then(|id| self.open_part(&part, id, &places, deadline, change)).map(Some),
        };
        self.together("split the group", made)
    }

    /// Listens at an address that the ranks of a part can reach.
    fn listen(&self, part: &[usize]) -> Result<UniqueId> {
        let origin = self.origin();
        let of_world: Vec<usize> = part.iter().map(|rank| self.ranks()[*rank]).collect();
        let hosts = origin.hosts.parts(&of_world);
        match (&origin.interface, hosts.len()) {
            (_, 1) => UniqueId::listen(),
            (Some(interface), _) => UniqueId::listen_at(interface),
            (None, _) => Err(Error::unsupported(
                format!("a part of the group {} on {} hosts", self.name(), hosts.len()),
                "the interface between the hosts is not known: set the interface of the group or SYMMETRA_INTERFACE",
            )),
        }
    }

    /// Meets the ranks of a part and opens their group. `id`: the id of this rank, if it listens.
    fn open_part(
        &self,
        part: &[usize],
        id: Option<UniqueId>,
        places: &[SentId],
        deadline: Instant,
        change: impl FnOnce(&mut Config),
    ) -> Result<Self> {
        let (origin, local) = (self.origin(), self.local());
        let mut communicator = local.group().config().clone();
        change(&mut communicator);
        let rank = part.iter().position(|rank| *rank == self.rank()).unwrap_or(0);
        let config = GroupConfig {
            communicator,
            host: Some(origin.host.clone()),
            interface: origin.interface.clone(),
            backend: origin.backend,
        };
        if part.len() == 1 {
            return Self::open(Tcp::alone(), local.device(), config);
        }
        let id = match (id, places.get(part[0])) {
            (Some(id), _) => id,
            (None, Some(Some(Ok(text)))) => text.parse()?,
            (None, Some(Some(Err(message)))) => {
                return Err(Error::Peer { rank: part[0], message: message.clone() });
            }
            (None, _) => return Err(Error::bootstrap(format!("rank {} sent no address to meet at", part[0]))),
        };
        // A rank that is lost or has left never connects.
        let serving = self.serving().clone();
        let heeded = Box::new(move || serving.local().group().all_here());
        let bootstrap = Tcp::from_id_heeding(id, rank, part.len(), deadline, Some(heeded));
        // The error of this group is more precise than the loss of a rank of the part.
        let opened = bootstrap.and_then(|bootstrap| Self::open(bootstrap, local.device(), config));
        opened.map_err(|error| self.check().err().unwrap_or_else(|| error.of_members(part)))
    }

    /// Closes a group that was opened [alone](Self::open) or by [`split`](Self::split). Later calls on the group and on its
    /// communicator fail with [`Error::Closed`], also on clones. Collective; blocks.
    ///
    /// # Errors
    /// The group's error if the group had failed; the group is closed nevertheless. [`Error::Unsupported`] for a group
    /// of an [`Environment`](super::Environment), which closes its groups, and in a user callback that runs inside a
    /// call of this group's communicator; nothing is closed in these cases.
    pub fn close(self) -> Result<()> {
        self.close_alone()
    }

    pub(crate) fn close_alone(&self) -> Result<()> {
        let alone = self.alone("closing")?;
        // These checks run before anything is closed.
        self.device().check_process("a group")?;
        self.local().refuse_within("closing")?;
        let deadline = until(self.local().group().config().deadlines.open);
        // Ranks on other hosts would report a rank that leaves first as lost.
        let told = alone.kept.as_ref().map_or(Ok(()), |kept| kept.close(self.check(), deadline));
        alone.serving.close().and(told)
    }

    /// Leaves a group that was opened [alone](Self::open) or by [`split`](Self::split), without the other ranks: see
    /// [`Communicator::depart`](crate::Communicator::depart).
    ///
    /// # Errors
    /// The errors of [`Communicator::depart`](crate::Communicator::depart); [`Error::Unsupported`] for a group of an
    /// [`Environment`](super::Environment), and for a group that NCCL or the CPU serves, because its ranks have to
    /// close together.
    pub fn depart(self) -> Result<()> {
        self.depart_alone()
    }

    pub(crate) fn depart_alone(&self) -> Result<()> {
        self.alone("departing from")?.serving.depart()
    }

    fn alone(&self, what: &str) -> Result<&Alone> {
        self.origin().alone.as_ref().ok_or_else(|| {
            Error::unsupported(format!("{what} the group {} alone", self.name()), "its environment closes its groups")
        })
    }
}

/// A group whose ranks have met, before anything is opened.
struct MetAlone {
    rank: usize,
    world_size: usize,
    hosts: Hosts,
    config: GroupConfig,
}

impl MetAlone {
    /// Collective; blocks. Also returns the deadline.
    fn new(bootstrap: &mut dyn Bootstrap, mut config: GroupConfig) -> Result<(Self, Instant)> {
        warn_of_variables();
        config.communicator.check_deadlines()?;
        let deadline = until(config.communicator.deadlines.open);
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        crate::bootstrap::check_world_size(world_size)?;
        let resolved = interface_and_backend(&Process, config.interface, config.backend)?;
        (config.interface, config.backend) = (resolved.interface.map(|(interface, _)| interface), resolved.backend);
        let host = config.host.get_or_insert_with(boot_id).clone();
        let agreed = opening::agreed(&config.communicator, config.backend);
        let hosts = opening::meet(bootstrap, "to open a group", host, agreed, deadline)?;
        Ok((Self { rank, world_size, hosts, config }, deadline))
    }

    fn terms(&self) -> Terms<'_> {
        let GroupConfig { communicator, interface, backend, .. } = &self.config;
        let (config, interface) = (communicator.clone(), interface.clone());
        Terms { hosts: &self.hosts, config, interface, forced: *backend, quantised: None }
    }

    fn open_on_one_host(self, bootstrap: impl Bootstrap, device: &Device) -> Result<Coordinator> {
        let serving = opening::world_on_one_host(bootstrap, Ok(device.clone()), &self.terms())?;
        Ok(self.coordinator(serving, None))
    }

    fn open_on_hosts(self, bootstrap: Box<dyn Bootstrap>, device: &Device, deadline: Instant) -> Result<Coordinator> {
        let terms = self.terms();
        let spread = Spread::open(bootstrap, Ok(device.clone()), &terms, deadline)?;
        let everyone: Vec<usize> = (0..self.world_size).collect();
        let serving = spread.connect(&terms, spread.local.clone(), &everyone)?;
        let kept = spread.opened();
        drop(terms);
        Ok(self.coordinator(serving, Some(kept)))
    }

    fn coordinator(self, serving: Serving, kept: Option<Arc<FinalExchange>>) -> Coordinator {
        let Self { rank, world_size, hosts, config: GroupConfig { host, interface, backend, .. } } = self;
        let alone = Some(Alone { serving: serving.backends.clone(), kept });
        let origin = Origin { hosts, host: host.unwrap_or_default(), interface, backend, alone };
        Coordinator::new(NAME, serving, (0..world_size).collect(), rank, Arc::new(origin))
    }
}
