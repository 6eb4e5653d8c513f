//! One parallel group as an engine uses it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::backend::{Backend, backends};
use super::spanning::Spanning;
use crate::collective::{AllReduceOptions, Communicator};
use crate::error::{Error, Result};
use crate::memory::Operand;
use crate::stream::Queue;
use crate::types::Element;

/// A parallel group of an [`Environment`](super::Environment): who is in it, and what its
/// communicator runs. Cheap to clone; usable from any thread.
///
/// All ranks of the group make the same calls in the same order. A group of one rank answers
/// every call by itself.
#[derive(Clone)]
pub struct Coordinator {
    name: &'static str,
    reach: Reach,
    /// The ranks of the group, as numbered in the world, in order.
    ranks: Vec<usize>,
    /// This rank's place among them.
    rank: usize,
}

/// What runs a group's collectives.
#[derive(Clone)]
pub(super) enum Reach {
    /// All its ranks are on this host.
    Own(Communicator),
    /// They are on several.
    Spanning(Arc<Spanning>),
}

impl Coordinator {
    /// `rank` is one of `ranks`.
    pub(super) fn new(name: &'static str, reach: Reach, ranks: Vec<usize>, rank: usize) -> Self {
        let rank = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        Self { name, reach, ranks, rank }
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// `world`, `tp`, `pp`, `dp` or `ep`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What runs the collectives of a group on one host. Groups of the same ranks share it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a group that spans hosts: call its operations here.
    pub fn communicator(&self) -> Result<&Communicator> {
        match &self.reach {
            Reach::Own(communicator) => Ok(communicator),
            Reach::Spanning(spanning) => {
                let sizes = spanning.local_sizes();
                let reason = format!("its ranks are on {} hosts, {sizes:?} on each", sizes.len());
                Err(Error::unsupported(format!("a communicator of the group {}", self.name), reason))
            }
        }
    }

    /// What runs collectives among the group's ranks on this host: all of them, unless it spans hosts.
    pub fn local(&self) -> &Communicator {
        match &self.reach {
            Reach::Own(communicator) => communicator,
            Reach::Spanning(spanning) => spanning.local(),
        }
    }

    /// Sums `input` over the group into `output`, as [`Communicator::all_reduce`] does, by the first
    /// backend of [`explain`](Self::explain) that serves it.
    ///
    /// Between hosts the sum has two levels: over the ranks of each host, rounded to the type, then
    /// over the hosts in the order of their lowest rank, rounded again; integers wrap. Bits are equal
    /// on all ranks. Such a call **blocks** until the output is there, and cannot be captured.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`]. Between hosts, [`Error::Unsupported`] for a capture, and with the
    /// group's numbers [`Error::PeerLost`] when a rank died, [`Error::Timeout`] after the deadlines of
    /// [`Config`](crate::Config), [`Error::Bootstrap`] when a connection broke: for good.
    pub fn all_reduce<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.all_reduce_with(AllReduceOptions::default(), input, output, queue)
    }

    /// The same with a reduction or an algorithm of the caller's choice, or both, as
    /// [`Communicator::all_reduce_with`] does. Between hosts there are no averages and no choice of algorithm.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); [`Error::Unsupported`] for what there is not.
    pub fn all_reduce_with<'op, T: Element>(
        &self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        match &self.reach {
            Reach::Own(communicator) => communicator.all_reduce_with(options, input, output, queue),
            Reach::Spanning(spanning) => spanning.all_reduce(options.into(), input, output, &queue),
        }
    }

    /// The backends in the order they are asked: which serves what, which refuses, and why. The
    /// same on every rank of the group.
    pub fn explain(&self) -> Vec<Backend> {
        match &self.reach {
            Reach::Own(_) => backends(&[self.ranks.len()], None),
            Reach::Spanning(spanning) => backends(&spanning.local_sizes(), Some(spanning.engine())),
        }
    }

    /// Whether the group is open and every rank well, as far as this rank knows. Does not block,
    /// except that a rank of a group that spans hosts asks the others once when it has failed.
    ///
    /// # Errors
    /// [`Error::Closed`], or what went wrong first.
    pub fn check(&self) -> Result<()> {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().check(),
            Reach::Spanning(spanning) => spanning.check(),
        }
    }

    /// Closes the group's communicator and connections.
    pub(super) fn close(&self) -> Result<()> {
        match &self.reach {
            Reach::Own(communicator) => communicator.clone().close(),
            Reach::Spanning(spanning) => spanning.close(),
        }
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the group has.
    pub fn world_size(&self) -> usize {
        self.ranks.len()
    }

    /// The group's ranks as the world numbers them, in the order of the group.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The first rank, as the world numbers it.
    pub fn first_rank(&self) -> usize {
        self.ranks[0]
    }

    /// The last rank, as the world numbers it.
    pub fn last_rank(&self) -> usize {
        self.ranks[self.ranks.len() - 1]
    }

    /// Whether this is the first rank: of a pipeline, the stage that embeds.
    pub fn is_first_rank(&self) -> bool {
        self.rank() == 0
    }

    /// Whether this is the last rank: of a pipeline, the stage that samples.
    pub fn is_last_rank(&self) -> bool {
        self.rank() + 1 == self.world_size()
    }

    /// The rank after this one, going round, as the world numbers it.
    pub fn next_rank(&self) -> usize {
        self.ranks[(self.rank() + 1) % self.world_size()]
    }

    /// The rank before this one, going round, as the world numbers it.
    pub fn previous_rank(&self) -> usize {
        self.ranks[(self.rank() + self.world_size() - 1) % self.world_size()]
    }

    /// Blocks until every rank of the group called it. Says nothing about work on streams.
    ///
    /// # Errors
    /// As [`Group::barrier`](crate::Group::barrier).
    pub fn barrier(&self) -> Result<()> {
        self.all_gather_bytes(&[]).map(drop)
    }

    /// Gives the object of rank `root` of the group to every rank. The others pass `None`. Blocks;
    /// the object travels between processes as JSON of at most 64 MiB.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root there is not, a root without an object or another rank
    /// with one: raised before anything is exchanged. [`Error::Bootstrap`] when what arrives is no
    /// such object; the group's error when it failed.
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(&self, object: Option<&T>, root: usize) -> Result<T> {
        self.check_root(root)?;
        let sends = self.rank() == root;
        if object.is_some() != sends {
            let given = if sends { "none" } else { "given" };
            return Err(Error::invalid("the object", given, format!("rank {root} gives it and no other")));
        }
        let bytes = object.map(to_json).transpose()?.unwrap_or_default();
        from_json(root, &self.all_gather_bytes(&bytes)?[root])
    }

    /// Collects an object of every rank, in the order of the group, at rank `root`; the others get
    /// `None`. Blocks; each object travels as JSON of at most 64 MiB.
    ///
    /// # Errors
    /// As [`broadcast_object`](Self::broadcast_object).
    pub fn gather_object<T: Serialize + DeserializeOwned>(&self, object: &T, root: usize) -> Result<Option<Vec<T>>> {
        self.check_root(root)?;
        let all = self.all_gather_bytes(&to_json(object)?)?;
        if self.rank() != root {
            return Ok(None);
        }
        all.iter().enumerate().map(|(rank, bytes)| from_json(rank, bytes)).collect::<Result<_>>().map(Some)
    }

    fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().all_gather_bytes(bytes),
            Reach::Spanning(spanning) => spanning.all_gather_bytes(bytes),
        }
    }

    fn check_root(&self, root: usize) -> Result<()> {
        match root < self.world_size() {
            true => Ok(()),
            false => {
                let limit = format!("the group {} has {} ranks", self.name, self.world_size());
                Err(Error::invalid("the root", root, limit))
            }
        }
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Coordinator({}: rank {} of {:?})", self.name, self.rank, self.ranks)
    }
}

fn to_json<T: Serialize>(object: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(|error| Error::invalid("the object", "unfit for JSON", error))
}

fn from_json<T: DeserializeOwned>(rank: usize, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::bootstrap(format!("rank {rank} sent an object of another type: {error}")))
}
