//! Opening the groups of ranks that have met, on one host or on several.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::config;
use super::coordinator::Coordinator;
use super::layout::{Layout, Parallelism};
use super::quantised;
use crate::backend::{
    Backend, Engines, Facts, FinalExchange, GroupBackends, Hosts, QuantisedAllReduce, Reach, TwoLevel,
};
use crate::bootstrap::hello::{Agreed, check_agreed, tell, together};
use crate::bootstrap::{Bootstrap, Directory, Local, until};
use crate::collective::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::Config;

/// A rank's first message when all have met.
#[derive(Serialize, Deserialize)]
struct Hello {
    host: String,
    /// Settings, by name, that must be equal on all ranks.
    agreed: Agreed,
}

/// Compares the settings that must be equal, and finds the host of every rank. Ranks with different sizes would split
/// into groups that never form.
pub(super) fn meet(
    bootstrap: &mut dyn Bootstrap,
    host: String,
    layout: &Layout,
    (config, forced, quantised): (&Config, Option<Backend>, Option<QuantisedAllReduce>),
    deadline: Instant,
) -> Result<Hosts> {
    let sizes = Parallelism::ALL.map(|parallelism| format!("{parallelism} {}", layout.size(parallelism))).join(", ");
    let mut agreed = vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    agreed.push(("the parallel sizes".to_owned(), sizes));
    agreed.push(("the backend".to_owned(), config::backend_name(forced).to_owned()));
    agreed.push(("the quantised all-reduce".to_owned(), quantised::shown(quantised)));
    agreed.extend(config.entries(1).into_iter().map(|(name, value)| (name.to_owned(), value)));
    let hellos = tell(bootstrap, "to open an environment", &Hello { host, agreed }, deadline)?;
    check_agreed(hellos.iter().map(|hello| &hello.agreed))?;
    Ok(Hosts::new(&hellos.into_iter().map(|hello| hello.host).collect::<Vec<_>>()))
}

/// The arguments that open the groups of an environment.
pub(super) struct Terms<'a> {
    pub(super) layout: &'a Layout,
    pub(super) hosts: &'a Hosts,
    pub(super) config: Config,
    /// The interface of engines between hosts.
    pub(super) interface: Option<String>,
    pub(super) forced: Option<Backend>,
    pub(super) quantised: Option<QuantisedAllReduce>,
}

impl Terms<'_> {
    fn serve(&self, reach: Reach, ranks: &[usize], rank: usize) -> Result<(Arc<GroupBackends>, Arc<Facts>)> {
        let asked = (self.forced, self.quantised);
        GroupBackends::open(reach, (ranks, rank), self.hosts, asked, self.interface.as_deref())
    }
}

/// Opens the world's communicator and splits it. If one rank cannot open its device, all ranks fail.
pub(super) fn on_one_host(
    mut bootstrap: impl Bootstrap,
    device: Result<Device>,
    terms: &Terms<'_>,
) -> Result<Vec<Coordinator>> {
    let (rank, layout) = (bootstrap.rank(), terms.layout);
    let device = agree(&mut bootstrap, "open the device", device, until(terms.config.deadlines.open))?;
    let world = Communicator::open(bootstrap, &device, terms.config.clone())?;
    let everyone: Vec<usize> = (0..layout.world_size()).collect();
    let serving = terms.serve(Reach::Own(world.clone()), &everyone, rank)?;
    let mut coordinators = vec![Coordinator::new("world", serving, everyone, rank)];
    for parallelism in Parallelism::ALL {
        let group = layout.group_of(parallelism, rank);
        let serving = match shared(layout, parallelism) {
            Some(earlier) => coordinators[earlier].shared(),
            None => terms.serve(Reach::Own(split(&world, layout, parallelism, rank)?), &group, rank)?,
        };
        coordinators.push(Coordinator::new(parallelism.name(), serving, group, rank));
    }
    Ok(coordinators)
}

/// Opens a communicator for the ranks of each host, splits it, and connects the groups that span hosts. Ranks fail
/// together.
pub(super) fn on_hosts(
    mut bootstrap: Box<dyn Bootstrap>,
    device: Result<Device>,
    terms: &Terms<'_>,
) -> Result<(Vec<Coordinator>, Arc<FinalExchange>)> {
    let Terms { layout, hosts, config, .. } = terms;
    let (rank, deadline) = (bootstrap.rank(), until(config.deadlines.open));
    // Errors between the ranks of a host, or of a group, number the ranks within it.
    let neighbours = hosts.node_rank(rank).map(|node| hosts.ranks(node)).unwrap_or_default();
    let of_world = |error: Error| error.of_members(&neighbours);
    let engines = Engines::open(terms.interface.as_deref(), hosts);
    let engines = agree(&mut *bootstrap, "open the interface between hosts", engines, deadline)?;
    let device = agree(&mut *bootstrap, "open the device", device, deadline)?;
    let local = meet_on_host(&mut *bootstrap, &neighbours, deadline);
    let local = agree(&mut *bootstrap, "meet the ranks of the host", local, deadline)?;
    let local = Communicator::open(local, &device, config.clone()).map_err(of_world);
    let local = agree(&mut *bootstrap, "open the communicator of the host", local, deadline)?;
    let kept = FinalExchange::new(bootstrap);
    let connect = |local: Communicator, group: &[usize]| -> Result<(Arc<GroupBackends>, Arc<Facts>)> {
        let spanning = TwoLevel::open(local.clone(), group, hosts, &engines, &kept, deadline)?;
        let serving = terms.serve(spanning.map_or(Reach::Own(local), Reach::Spanning), group, rank);
        let serving = serving.map_err(|error| error.of_members(group));
        agree(&mut **kept.lock(), "open the backends of a group", serving, deadline)
    };
    let everyone: Vec<usize> = (0..layout.world_size()).collect();
    let mut coordinators = vec![Coordinator::new("world", connect(local.clone(), &everyone)?, everyone, rank)];
    for parallelism in Parallelism::ALL {
        let group = layout.group_of(parallelism, rank);
        let serving = match shared(layout, parallelism) {
            Some(earlier) => coordinators[earlier].shared(),
            None => {
                let part = split(&local, layout, parallelism, rank).map_err(of_world);
                let part = agree(&mut **kept.lock(), "split the communicator of the host", part, deadline)?;
                connect(part, &group)?
            }
        };
        coordinators.push(Coordinator::new(parallelism.name(), serving, group, rank));
    }
    kept.opened();
    Ok((coordinators, kept))
}

/// The earlier coordinator whose ranks are equal on every rank, so that all ranks share alike.
pub(super) fn shared(layout: &Layout, parallelism: Parallelism) -> Option<usize> {
    if layout.size(parallelism) == layout.world_size() {
        return Some(0);
    }
    let groups = layout.groups(parallelism);
    let earlier = Parallelism::ALL.into_iter().take(parallelism as usize);
    earlier.enumerate().find(|(_, other)| layout.groups(*other) == groups).map(|(number, _)| number + 1)
}

fn split(local: &Communicator, layout: &Layout, parallelism: Parallelism, rank: usize) -> Result<Communicator> {
    let number = layout.group_number(parallelism, rank);
    let color = u32::try_from(number).map_err(|_| Error::invalid("the group", number, "it must fit 32 bits"))?;
    let group = local.split(Some(color), 0)?;
    group.ok_or_else(|| Error::Internal { message: format!("rank {rank} is in no {parallelism} group") })
}

/// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed. A failure caused by
/// a lost rank names the lost rank, which the bootstrap knows.
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

/// Brings the ranks of this host, `neighbours`, together in a directory that the first of them makes.
fn meet_on_host(bootstrap: &mut dyn Bootstrap, neighbours: &[usize], deadline: Instant) -> Result<Local> {
    let rank = bootstrap.rank();
    let local_rank = neighbours.iter().position(|neighbour| *neighbour == rank).unwrap_or(0);
    let directory = (local_rank == 0).then(Directory::new);
    // In a directory inside, made by the first rank to come: the outer directory's lock says that the directory is in
    // use, the inner one's that a rank listens there.
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
