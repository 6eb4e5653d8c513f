//! Opening the groups of ranks that have met, on one host or on several.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::config;
use super::coordinator::{Coordinator, Serving};
use super::layout::{ParallelLayout, Parallelism};
use super::origin::Origin;
use crate::backend::{Backend, Engines, FinalExchange, GroupBackends, GroupHosts, Hosts, QuantisedAllReduce, TwoLevel};
use crate::bootstrap::hello::{Agreed, ClaimedPlace, check_agreed, check_places, tell, together};
use crate::bootstrap::{Bootstrap, Directory, Local, until};
use crate::collective::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::{Config, Multicast, joined};

/// A rank's first message after all ranks have met.
#[derive(Serialize, Deserialize)]
struct EnvironmentHello {
    /// The rank's number and world size in its bootstrap. Older builds do not send it.
    #[serde(default)]
    place: Option<ClaimedPlace>,
    host: String,
    /// Settings, by name, that must be equal on all ranks.
    agreed: Agreed,
}

/// The settings that must be equal on all ranks of every kind of group.
pub(super) fn agreed(config: &Config, forced: Option<Backend>) -> Agreed {
    let mut agreed = vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    agreed.push(("the backend".to_owned(), config::backend_name(forced).to_owned()));
    agreed.extend(config.compared(1).map(|(name, value)| (name.to_owned(), value)));
    agreed
}

/// Compares the settings that must be equal, and finds the host of every rank. `what` names the purpose.
pub(super) fn meet(
    bootstrap: &mut dyn Bootstrap,
    what: &str,
    host: String,
    agreed: Agreed,
    deadline: Instant,
) -> Result<Hosts> {
    let place = Some([bootstrap.rank(), bootstrap.world_size()]);
    let hellos = tell(bootstrap, what, &EnvironmentHello { place, host, agreed }, deadline)?;
    check_places(hellos.iter().map(|hello| hello.place))?;
    check_agreed(hellos.iter().map(|hello| &hello.agreed))?;
    Ok(Hosts::new(&hellos.into_iter().map(|hello| hello.host).collect::<Vec<_>>()))
}

/// The arguments that open groups.
pub(super) struct Terms<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) config: Config,
    /// The interface that engines use between hosts.
    pub(super) interface: Option<String>,
    pub(super) forced: Option<Backend>,
    pub(super) quantised: Option<QuantisedAllReduce>,
}

impl Terms<'_> {
    fn serve(&self, reach: GroupHosts, ranks: &[usize], rank: usize) -> Result<Serving> {
        let Self { hosts, forced, quantised, interface, .. } = self;
        let opened = GroupBackends::open(reach, ranks, rank, hosts, *forced, *quantised, interface.as_deref());
        opened.map(|(backends, facts)| Serving { backends, facts })
    }
}

/// Opens the communicator of all ranks. If one rank cannot open its device, all ranks fail.
pub(super) fn world_on_one_host(
    mut bootstrap: impl Bootstrap,
    device: Result<Device>,
    terms: &Terms<'_>,
) -> Result<Serving> {
    let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
    let device = agree(&mut bootstrap, "open the device", device, until(terms.config.deadlines.open))?;
    let world = Communicator::open(bootstrap, &device, terms.config.clone())?;
    let everyone: Vec<usize> = (0..world_size).collect();
    terms.serve(GroupHosts::Own(world), &everyone, rank)
}

/// Opens the world's communicator and splits it into the groups of an environment.
pub(super) fn on_one_host(
    bootstrap: impl Bootstrap,
    device: Result<Device>,
    terms: &Terms<'_>,
    layout: &ParallelLayout,
    origin: &Arc<Origin>,
) -> Result<Vec<Coordinator>> {
    let rank = bootstrap.rank();
    let serving = world_on_one_host(bootstrap, device, &of_world(terms, layout))?;
    let world = serving.backends.local().clone();
    let everyone: Vec<usize> = (0..layout.world_size()).collect();
    let mut coordinators = vec![Coordinator::new("world", serving, everyone, rank, origin.clone())];
    for parallelism in Parallelism::ALL {
        let group = layout.group_of(parallelism, rank);
        let serving = match shared(layout, parallelism) {
            Some(earlier) => coordinators[earlier].shared(),
            None => terms.serve(GroupHosts::Own(split(&world, terms, layout, parallelism, rank)?), &group, rank)?,
        };
        coordinators.push(Coordinator::new(parallelism.name(), serving, group, rank, origin.clone()));
    }
    Ok(coordinators)
}

/// The resources of ranks on several hosts: the communicator of the ranks of this host, and the engines that connect
/// hosts. Ranks fail together.
pub(super) struct Spread {
    rank: usize,
    /// This host's ranks.
    neighbours: Vec<usize>,
    pub(super) local: Communicator,
    engines: Engines,
    kept: Arc<FinalExchange>,
    deadline: Instant,
}

impl Spread {
    /// Opens a communicator for the ranks of each host. Every rank calls this at once.
    pub(super) fn open(
        mut bootstrap: Box<dyn Bootstrap>,
        device: Result<Device>,
        terms: &Terms<'_>,
        deadline: Instant,
    ) -> Result<Self> {
        let Terms { hosts, config, .. } = terms;
        let rank = bootstrap.rank();
        let neighbours = hosts.node_rank(rank).map(|node| hosts.ranks(node)).unwrap_or_default();
        let engines = Engines::open(terms.interface.as_deref(), hosts);
        let engines = agree(&mut *bootstrap, "open the interface between hosts", engines, deadline)?;
        let device = agree(&mut *bootstrap, "open the device", device, deadline)?;
        let local = meet_on_host(&mut *bootstrap, &neighbours, deadline);
        let local = agree(&mut *bootstrap, "meet the ranks of the host", local, deadline)?;
        // Errors between the ranks of a host have rank numbers within the host.
        let local = Communicator::open(local, &device, config.clone()).map_err(|error| error.of_members(&neighbours));
        let local = agree(&mut *bootstrap, "open the communicator of the host", local, deadline)?;
        Ok(Self { rank, neighbours, local, engines, kept: FinalExchange::new(bootstrap), deadline })
    }

    /// Connects the hosts of a group. Its ranks on this host have the communicator `local`. Every rank calls this at
    /// once.
    pub(super) fn connect(&self, terms: &Terms<'_>, local: Communicator, group: &[usize]) -> Result<Serving> {
        let Self { rank, engines, kept, deadline, .. } = self;
        let spanning = TwoLevel::open(local.clone(), group, terms.hosts, engines, kept, *deadline)?;
        let serving = terms.serve(
            spanning.map_or(GroupHosts::Own(local), |spanning| GroupHosts::Spanning(Box::new(spanning))),
            group,
            *rank,
        );
        let serving = serving.map_err(|error| error.of_members(group));
        agree(&mut **kept.lock(), "open the backends of a group", serving, *deadline)
    }

    /// The communicator of this host's ranks of a parallel group.
    fn part(&self, terms: &Terms<'_>, layout: &ParallelLayout, parallelism: Parallelism) -> Result<Communicator> {
        let part = split(&self.local, terms, layout, parallelism, self.rank);
        let part = part.map_err(|error| error.of_members(&self.neighbours));
        agree(&mut **self.kept.lock(), "split the communicator of the host", part, self.deadline)
    }

    /// All groups are open; returns the bootstrap, which stays open for the final exchange.
    pub(super) fn opened(self) -> Arc<FinalExchange> {
        self.kept.opened();
        self.kept
    }
}

/// The terms of the world's communicator. Multicast and scratch for long messages are reserved for the tensor parallel
/// group, which can be the world.
fn of_world<'a>(terms: &Terms<'a>, layout: &ParallelLayout) -> Terms<'a> {
    let tensor = layout.size(Parallelism::Tensor) == layout.world_size();
    let config =
        if tensor { terms.config.clone() } else { Config { multicast: Multicast::Off, ..terms.config.sparing() } };
    let (interface, forced, quantised) = (terms.interface.clone(), terms.forced, terms.quantised);
    Terms { hosts: terms.hosts, config, interface, forced, quantised }
}

/// Opens the groups of an environment on several hosts.
pub(super) fn on_hosts(
    bootstrap: Box<dyn Bootstrap>,
    device: Result<Device>,
    terms: &Terms<'_>,
    layout: &ParallelLayout,
    origin: &Arc<Origin>,
) -> Result<(Vec<Coordinator>, Arc<FinalExchange>)> {
    let rank = bootstrap.rank();
    let spread = Spread::open(bootstrap, device, &of_world(terms, layout), until(terms.config.deadlines.open))?;
    let everyone: Vec<usize> = (0..layout.world_size()).collect();
    let world = spread.connect(terms, spread.local.clone(), &everyone)?;
    let mut coordinators = vec![Coordinator::new("world", world, everyone, rank, origin.clone())];
    for parallelism in Parallelism::ALL {
        let group = layout.group_of(parallelism, rank);
        let serving = match shared(layout, parallelism) {
            Some(earlier) => coordinators[earlier].shared(),
            None => spread.connect(terms, spread.part(terms, layout, parallelism)?, &group)?,
        };
        coordinators.push(Coordinator::new(parallelism.name(), serving, group, rank, origin.clone()));
    }
    Ok((coordinators, spread.opened()))
}

/// The earlier coordinator with the same ranks. It is the same on every rank, so that all ranks share alike.
pub(super) fn shared(layout: &ParallelLayout, parallelism: Parallelism) -> Option<usize> {
    if layout.size(parallelism) == layout.world_size() {
        return Some(0);
    }
    let groups = layout.groups(parallelism);
    let earlier = Parallelism::ALL.into_iter().take(parallelism as usize);
    earlier.enumerate().find(|(_, other)| layout.groups(*other) == groups).map(|(number, _)| number + 1)
}

fn split(
    local: &Communicator,
    terms: &Terms<'_>,
    layout: &ParallelLayout,
    parallelism: Parallelism,
    rank: usize,
) -> Result<Communicator> {
    let number = layout.group_number(parallelism, rank);
    let color = u32::try_from(number).map_err(|_| Error::invalid("the group", number, "it must fit 32 bits"))?;
    let tensor = parallelism == Parallelism::Tensor;
    let config =
        if tensor { terms.config.clone() } else { Config { multicast: Multicast::Off, ..terms.config.sparing() } };
    joined(local.split_as(Some(color), 0, config)?)
}

/// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed. If the cause is a
/// lost rank, the error names this rank, which the bootstrap knows.
fn agree<T>(bootstrap: &mut dyn Bootstrap, what: &str, local: Result<T>, deadline: Instant) -> Result<T> {
    let mut met = None;
    let outcome = together(what, local, |words| {
        bootstrap.all_gather(words, deadline).inspect_err(|error| met = Some(error.clone()))
    });
    match (outcome, met) {
        (
            Err(Error::Aborted { .. } | Error::Bootstrap { .. } | Error::Peer { .. }),
            Some(lost @ Error::PeerLost { .. }),
        ) => Err(lost),
        (outcome, _) => outcome,
    }
}

/// Connects the ranks of this host, `neighbours`, by a directory that the first of them creates.
fn meet_on_host(bootstrap: &mut dyn Bootstrap, neighbours: &[usize], deadline: Instant) -> Result<Local> {
    let rank = bootstrap.rank();
    let local_rank = neighbours.iter().position(|neighbour| *neighbour == rank).unwrap_or(0);
    let directory = (local_rank == 0).then(Directory::new);
    // The ranks meet in an inner directory, which the first rank to arrive creates. The lock of the outer directory
    // shows that the directory is in use; the lock of the inner directory shows that a rank listens there.
    let told = match &directory {
        Some(Ok(directory)) => directory.path().join("host").into_os_string().into_vec(),
        _ => Vec::new(),
    };
    let all = bootstrap.all_gather(&told, deadline)?;
    let directory = directory.transpose()?;
    let first = neighbours.first().copied().unwrap_or(rank);
    let path = PathBuf::from(std::ffi::OsString::from_vec(all.get(first).cloned().unwrap_or_default()));
    if path.as_os_str().is_empty() {
        return Err(Error::Peer { rank: first, message: "it could not make a directory for its host".to_owned() });
    }
    let local = Local::connect(&path, local_rank, neighbours.len(), deadline);
    drop(directory);
    local.map_err(|error| error.of_members(neighbours))
}
