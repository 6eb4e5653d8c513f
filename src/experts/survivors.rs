//! Experts of the ranks that are left when others are lost. The group of a failed operation stays failed, so the survivors
//! meet in a new one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::config::{ExpertConfig, Placement};
use super::{Experts, Inner};
use crate::bootstrap::{Directory, Heeded, Local, is_abandoned, until};
use crate::collective::Communicator;
use crate::environment::over::Over;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::stream::Stream;

/// How long after the loss of a connection the end of that rank may take to show.
const END: Duration = Duration::from_millis(500);

/// What [`Experts::without`] opens.
#[must_use = "the survivors work with these experts"]
#[non_exhaustive]
#[derive(Debug)]
pub struct Survivors {
    /// The experts of the ranks that are left.
    pub experts: Experts,
    /// All ranks that are lost, in ascending order, by the numbers of the group before.
    pub lost: Vec<usize>,
    /// How many dispatches, counted since the experts before were opened, have ended on every rank that is left: the least of
    /// what each knows. The ranks go on behind that dispatch, whatever each has done since.
    ///
    /// A rank knows that a dispatch has ended when [`Experts::synchronize`] has succeeded after the handle of the dispatch was
    /// dropped, as its combine does. A launch of a graph counts each dispatch of the graph, a plan counts as its dispatch, and
    /// what the owner of a stream captured natively counts once.
    pub ended: u64,
}

/// Where survivors can meet: each rank keeps a directory, which all ranks know, because nobody knows who will survive.
pub(super) struct Meeting {
    own: Result<Directory>,
    places: Vec<Place>,
}

/// A rank's directory.
#[derive(Clone)]
struct Place {
    /// Empty where the rank has none.
    path: PathBuf,
    /// Whether the end of the rank shows there.
    shows: bool,
}

impl Place {
    /// Whether the rank has dropped its experts, or died.
    fn is_left(&self) -> bool {
        self.shows && is_abandoned(&self.path)
    }
}

impl Meeting {
    /// Collective; blocks. A rank that cannot make a directory fails later, when survivors would meet there. No rank drops its
    /// experts before a later collective has ended.
    pub(super) fn new(over: &Over) -> Result<Self> {
        let own = Directory::new();
        let path = own.as_ref().map(|own| own.path().as_os_str().as_bytes()).unwrap_or_default();
        let all = over.all_gather_for("go on without ranks", path)?;
        let place = |path: &Vec<u8>| {
            let path = PathBuf::from(OsStr::from_bytes(path));
            // Not where ranks share no directory for temporary files, or its file system has no locks.
            let shows = !path.as_os_str().is_empty() && !is_abandoned(&path);
            Place { path, shows }
        };
        Ok(Self { places: all.iter().map(place).collect(), own })
    }

    /// The ranks, but for those of the set `lost` and those that are found to have left.
    fn survivors(&self, lost: u32, rank: usize) -> Vec<usize> {
        let is_here = |other: &usize| *other == rank || lost >> other & 1 == 0 && !self.places[*other].is_left();
        (0..self.places.len()).filter(is_here).collect()
    }

    /// Meets the other survivors at the first of them. Blocks, until one of them is found to have left. Errors have the
    /// survivors' new numbers.
    fn meet(&self, survivors: &[usize], rank: usize, deadline: Instant) -> Result<Local> {
        self.own.as_ref().map_err(Error::clone)?;
        let first = &self.places[survivors[0]].path;
        if first.as_os_str().is_empty() {
            let message = "the rank has no directory in which ranks can meet".to_owned();
            return Err(Error::Peer { rank: 0, message });
        }
        let own = survivors.iter().take_while(|survivor| **survivor != rank).count();
        let others: Vec<Place> = survivors.iter().map(|survivor| self.places[*survivor].clone()).collect();
        let heeded: Heeded = Box::new(move || match others.iter().position(Place::is_left) {
            Some(rank) if rank != own => Err(left(rank)),
            _ => Ok(()),
        });
        // Others may believe that other ranks are lost.
        let directory = first.join(format!("{:x}", set(survivors)));
        let met = Local::connect_heeding(directory, own, survivors.len(), deadline, Some(heeded));
        // The directory has gone with its owner.
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
    /// [`Deadlines::open`](crate::Deadlines::open). A rank that has died, or has dropped its experts, before all have met is
    /// lost as well, whether `lost` names it or not: [`Survivors::lost`] has all. These experts may have failed, as they do when
    /// a rank dies, or work. The caller keeps them until then.
    ///
    /// Ranks keep their order, and are numbered anew from 0. Each keeps its experts, in their order. Experts that no rank has
    /// any more go, in ascending order, behind those of the rank that has the fewest, the lowest of several:
    /// [`local_experts`](Self::local_experts) says whose weights to load. All other settings stay. The new group has own
    /// kernels alone, and the [`Config`](crate::Config) of the group of these experts;
    /// [`communicator`](Self::communicator) is its communicator, for its other operations and to close it. Both groups have memory until these
    /// experts, their communicator and their graphs are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group, and for the calling rank; [`Error::Unsupported`] for a group
    /// of several hosts; [`Error::Timeout`] if a rank that lives does not call, also because it takes other ranks for lost;
    /// those of [`Communicator::open`] and [`Communicator::experts`]. Errors have the rank numbers of these experts' group.
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
            let experts = Self::open(Over::Communicator(communicator.clone()), config)?;
            Ok(Survivors {
                experts,
                lost: (0..world).filter(|rank| !survivors.contains(rank)).collect(),
                ended: ended.unwrap_or_default(),
            })
        };
        open().map_err(|error: Error| error.of_members(&survivors))
    }

    /// Whether one of the ranks that were to meet is found to have left, within a moment. Then those that are left try again.
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

    /// Waits until the device has done all work on `stream`. Where this succeeds and the last call of these experts is on
    /// `stream`, the dispatches that have no handle any more have ended: see [`Survivors::ended`].
    ///
    /// # Errors
    /// The group's error if the group has failed, and a GPU's errors; [`Error::InvalidArgument`] for a stream of another device.
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
