//! Experts of the ranks that are left when others are lost. The group of a failed operation stays failed, so the survivors
//! meet in a new one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use super::config::{ExpertConfig, Placement};
use super::{Experts, Inner};
use crate::bootstrap::{Directory, Local, until};
use crate::collective::Communicator;
use crate::environment::over::Over;
use crate::error::{Error, Result};

/// Where survivors can meet: each rank keeps a directory, which all ranks know, because nobody knows who will survive.
pub(super) struct Meeting {
    own: Result<Directory>,
    /// Of every rank; empty where a rank has none.
    paths: Vec<PathBuf>,
}

impl Meeting {
    /// Collective; blocks. A rank that cannot make a directory fails later, when survivors would meet there.
    pub(super) fn new(over: &Over) -> Result<Self> {
        let own = Directory::new();
        let path = own.as_ref().map(|own| own.path().as_os_str().as_bytes()).unwrap_or_default();
        let all = over.all_gather_bytes(path)?;
        Ok(Self { paths: all.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect(), own })
    }

    /// Meets the other survivors at the first of them. Blocks. Errors have the survivors' new numbers.
    fn meet(&self, survivors: &[usize], rank: usize, deadline: Instant) -> Result<Local> {
        self.own.as_ref().map_err(Error::clone)?;
        let first = &self.paths[survivors[0]];
        if first.as_os_str().is_empty() {
            let message = "the rank has no directory in which ranks can meet".to_owned();
            return Err(Error::Peer { rank: 0, message });
        }
        let own = survivors.iter().take_while(|survivor| **survivor != rank).count();
        // Others may believe that other ranks are lost.
        let set = survivors.iter().fold(0u32, |set, survivor| set | 1 << survivor);
        Local::connect(first.join(format!("{set:x}")), own, survivors.len(), deadline)
    }
}

/// The experts of the survivors: each keeps its own in their order, and those that nobody has go, in ascending order, to the
/// rank that has the fewest, the lowest of several.
fn placed_anew(lists: &[Vec<usize>], survivors: &[usize], experts: usize) -> Vec<Vec<usize>> {
    let mut kept: Vec<Vec<usize>> = survivors.iter().map(|survivor| lists[*survivor].clone()).collect();
    for expert in 0..experts {
        if kept.iter().any(|list| list.contains(&expert)) {
            continue;
        }
        if let Some(fewest) = kept.iter_mut().min_by_key(|list| list.len()) {
            fewest.push(expert);
        }
    }
    kept
}

impl Experts {
    /// Opens the experts again on the ranks that are left when the ranks `lost` are gone, over a group and memory of their
    /// own. The ranks that are left call it, with equal `lost`; blocks until all of them have called it, up to
    /// [`Deadlines::open`](crate::Deadlines::open). These experts may have failed, as they do when a rank dies, or work.
    ///
    /// Ranks keep their order, and are numbered anew from 0. Each keeps its experts, in their order. Experts that no rank has
    /// any more go, in ascending order, behind those of the rank that has the fewest, the lowest of several:
    /// [`local_experts`](Self::local_experts) says whose weights to load. All other settings stay. The new group has own
    /// kernels alone, and the [`Config`](crate::Config) of the group of these experts;
    /// [`communicator`](Self::communicator) is its communicator, for its other operations and to close it. Both groups have memory until these
    /// experts, their communicator and their graphs are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that there is not, and for the calling rank; [`Error::Unsupported`] for a group
    /// of several hosts; [`Error::Timeout`] if a rank that is left does not call, also because it takes other ranks for lost;
    /// those of [`Communicator::open`] and [`Communicator::experts`]. Errors have the rank numbers of these experts' group.
    pub fn without(&self, lost: &[usize]) -> Result<Self> {
        let Inner { over, form, config, meeting, lists, .. } = &*self.0;
        let (world, rank) = (form.world, form.rank);
        if over.local().world_size() != world {
            return Err(Error::unsupported("experts without some ranks", "the ranks are on several hosts"));
        }
        if let Some(bad) = lost.iter().find(|lost| **lost >= world || **lost == rank) {
            let limit = format!("it is another rank than the calling rank {rank}, below {world}");
            return Err(Error::invalid("a rank that is lost", bad, limit));
        }
        let survivors: Vec<usize> = (0..world).filter(|rank| !lost.contains(rank)).collect();
        let lists = placed_anew(&lists.lock(), &survivors, config.experts);
        let config = ExpertConfig { placement: Placement::Table(lists), ..config.clone() };
        let group = over.local().group();
        let meet = || {
            let bootstrap = meeting.meet(&survivors, rank, until(group.config().deadlines.open))?;
            Communicator::open(bootstrap, over.device(), group.config().clone())
        };
        let open = meet().and_then(|communicator| Self::open(Over::Communicator(communicator), config));
        open.map_err(|error| error.of_members(&survivors))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/experts/survivors.rs"]
mod tests;
