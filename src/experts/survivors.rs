//! Experts of the ranks that remain when others are lost. The group of a failed operation stays failed, so the survivors
//! open a new group.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::config::{ExpertConfig, Placement};
use super::{Experts, Inner};
use crate::backend::GroupCalls;
use crate::bootstrap::{Directory, Heeded, Local, is_abandoned, until};
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::stream::Stream;

/// The time after the loss of a connection in which the end of that rank becomes visible.
const END: Duration = Duration::from_millis(500);

/// The result of [`Experts::without`].
#[must_use = "the survivors work with these experts"]
#[non_exhaustive]
#[derive(Debug)]
pub struct Survivors {
    /// The experts of the remaining ranks.
    pub experts: Experts,
    /// All lost ranks, in ascending order, by their numbers in the previous group.
    pub lost: Vec<usize>,
    /// The number of dispatches, since the previous experts were opened, that have ended on every remaining rank: the minimum
    /// over the ranks. The ranks continue after that dispatch, even if some ranks have done later dispatches.
    ///
    /// A rank counts a dispatch as ended when [`Experts::synchronize`] has succeeded after the handle of the dispatch was
    /// dropped, usually after its combine. A launch of a graph counts each dispatch of the graph, a plan counts as its
    /// dispatch, and a natively captured dispatch counts once.
    pub ended: u64,
}

/// The directories in which survivors can rendezvous. Each rank has one, and all ranks know all paths, because any rank may
/// be lost.
pub(super) struct SurvivorMeeting {
    own: Result<Directory>,
    places: Vec<RankDirectory>,
}

/// A rank's directory.
#[derive(Clone)]
struct RankDirectory {
    /// Empty if the rank has no directory.
    path: PathBuf,
    /// Whether the end of the rank is visible there.
    shows: bool,
}

impl RankDirectory {
    /// Whether the rank has dropped its experts, or died.
    fn is_left(&self) -> bool {
        self.shows && is_abandoned(&self.path)
    }
}

impl SurvivorMeeting {
    /// Collective; blocks. If a rank cannot make a directory, the error is returned later, when survivors would use it. No rank
    /// drops its experts before a later collective has ended.
    pub(super) fn new(over: &dyn GroupCalls) -> Result<Self> {
        let own = Directory::new();
        let path = own.as_ref().map(|own| own.path().as_os_str().as_bytes()).unwrap_or_default();
        let all = over.all_gather_for("go on without ranks", path)?;
        let place = |path: &Vec<u8>| {
            let path = PathBuf::from(OsStr::from_bytes(path));
            // False if ranks share no directory for temporary files, or if its file system has no locks.
            let shows = !path.as_os_str().is_empty() && !is_abandoned(&path);
            RankDirectory { path, shows }
        };
        Ok(Self { places: all.iter().map(place).collect(), own })
    }

    /// The ranks, except the set `lost` and ranks that have visibly left.
    fn survivors(&self, lost: u32, rank: usize) -> Vec<usize> {
        let is_here = |other: &usize| *other == rank || lost >> other & 1 == 0 && !self.places[*other].is_left();
        (0..self.places.len()).filter(is_here).collect()
    }

    /// Connects to the other survivors in the directory of the first survivor. Blocks; fails if a survivor has visibly left.
    /// Errors have the survivors' new numbers.
    fn meet(&self, survivors: &[usize], rank: usize, deadline: Instant) -> Result<Local> {
        self.own.as_ref().map_err(Error::clone)?;
        let first = &self.places[survivors[0]].path;
        if first.as_os_str().is_empty() {
            let message = "the rank has no directory in which ranks can meet".to_owned();
            return Err(Error::Peer { rank: 0, message });
        }
        let own = survivors.iter().take_while(|survivor| **survivor != rank).count();
        let others: Vec<RankDirectory> = survivors.iter().map(|survivor| self.places[*survivor].clone()).collect();
        let heeded: Heeded = Box::new(move || match others.iter().position(RankDirectory::is_left) {
            Some(rank) if rank != own => Err(left(rank)),
            _ => Ok(()),
        });
        // Other survivors may name another set of lost ranks.
        let directory = first.join(format!("{:x}", set(survivors)));
        let met = Local::connect_heeding(directory, own, survivors.len(), deadline, Some(heeded));
        // The directory is removed when its owner leaves.
        met.map_err(|error| if own > 0 && self.places[survivors[0]].is_left() { left(0) } else { error })
    }
}

fn set(ranks: &[usize]) -> u32 {
    const { assert!(MAX_WORLD_SIZE <= 32) };
    ranks.iter().fold(0, |set, rank| set | 1 << rank)
}

fn left(rank: usize) -> Error {
    Error::PeerLost { rank, detail: ": it has dropped its experts or died".to_owned() }
}

/// The experts of the survivors. Each keeps its experts in their order. Experts without a rank are assigned, in ascending
/// order, to the rank with the fewest experts, and to the lowest such rank.
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
    /// Opens the experts again on the ranks that remain without the ranks `lost`, over a new group with its own memory. All
    /// remaining ranks call this with equal `lost`. Blocks until all of them have called, up to
    /// [`Deadlines::open`](crate::Deadlines::open). A rank that dies, or drops its experts, before all have called is also lost,
    /// even if `lost` does not name it: [`Survivors::lost`] lists all lost ranks. `self` may have failed, as after the death of a
    /// rank, or may still work. The caller keeps `self` until this returns.
    ///
    /// Ranks keep their order, and are renumbered from 0. Each rank keeps its experts, in their order. Experts without a rank
    /// are appended, in ascending order, to the experts of the rank with the fewest experts, and of the lowest such rank:
    /// [`local_experts`](Self::local_experts) lists the experts whose weights to load. All other settings stay. The new group
    /// uses only symmetra kernels, and the [`Config`](crate::Config) of the previous group.
    /// [`communicator`](Self::communicator) is its communicator, for other operations and for closing. Both groups have memory
    /// until the previous experts, their communicator and their graphs are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group, and for the calling rank; [`Error::Unsupported`] for a group
    /// of several hosts; [`Error::Timeout`] if a remaining rank does not call, or calls with other lost ranks; the errors of
    /// [`Communicator::open`] and [`ProcessGroup::experts`](crate::ProcessGroup::experts). Errors have the rank numbers
    /// of the previous group.
    pub fn without(&self, lost: &[usize]) -> Result<Survivors> {
        let Inner { over, form, config, meeting, lists, slots, .. } = &*self.0;
        let (world, rank) = (form.world, form.rank);
        if over.local().world_size() != world {
            return Err(Error::unsupported("experts without some ranks", "the ranks are on several hosts"));
        }
        if let Some(bad) = lost.iter().find(|lost| **lost >= world || **lost == rank) {
            let limit = format!("it is another rank than the calling rank {rank}, below {world}");
            return Err(Error::invalid("a rank that is lost", bad, limit));
        }
        let group = over.local().group();
        let (named, deadline) = (set(lost), until(group.config().deadlines.open));
        let (survivors, communicator) = loop {
            let survivors = meeting.survivors(named, rank);
            let met = meeting.meet(&survivors, rank, deadline);
            let opened = met.and_then(|met| Communicator::open(met, over.device(), group.config().clone()));
            match opened {
                Ok(communicator) => break (survivors, communicator),
                Err(_) if self.lose_more(&survivors, named, deadline) => {}
                Err(error) => return Err(error.of_members(&survivors)),
            }
        };
        let open = || {
            let told = communicator.group().all_gather_bytes(&slots.ended().to_le_bytes())?;
            let ended = told.iter().filter_map(|told| Some(u64::from_le_bytes(told.as_slice().try_into().ok()?))).min();
            let lists = placed_anew(&lists.lock(), &survivors, config.experts);
            let config = ExpertConfig { placement: Placement::Table(lists), ..config.clone() };
            let experts = Self::open(communicator.share(), config)?;
            Ok(Survivors {
                experts,
                lost: (0..world).filter(|rank| !survivors.contains(rank)).collect(),
                ended: ended.unwrap_or_default(),
            })
        };
        open().map_err(|error: Error| error.of_members(&survivors))
    }

    /// Whether another of the survivors visibly leaves within [`END`]. The remaining ranks then try again.
    fn lose_more(&self, survivors: &[usize], named: u32, deadline: Instant) -> bool {
        let Inner { meeting, form, .. } = &*self.0;
        let until = deadline.min(until(END));
        loop {
            if meeting.survivors(named, form.rank).len() < survivors.len() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the device has done all work on `stream`. If this succeeds and the last call of these experts is on
    /// `stream`, all dispatches without a handle have ended: see [`Survivors::ended`].
    ///
    /// # Errors
    /// The group's error if the group has failed, and errors of the GPU; [`Error::InvalidArgument`] for a stream of another
    /// device.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        let Inner { slots, lane, over, .. } = &*self.0;
        let to_end = slots.to_end().filter(|_| lane.try_lock().is_some_and(|lane| lane.is_last(stream)));
        over.synchronize(stream)?;
        to_end.into_iter().for_each(|dispatches| slots.note_ended(dispatches));
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/experts/survivors.rs"]
mod tests;
