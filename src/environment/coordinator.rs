//! One parallel group as an engine uses it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::collective::Communicator;
use crate::error::{Error, Result};

/// A parallel group of an [`Environment`](super::Environment): who is in it, and what its
/// communicator runs. Cheap to clone; usable from any thread.
///
/// All ranks of the group make the same calls in the same order. A group of one rank answers
/// every call by itself.
#[derive(Clone, Debug)]
pub struct Coordinator {
    name: &'static str,
    communicator: Communicator,
    /// The ranks of the group, as numbered in the world, in order.
    ranks: Vec<usize>,
}

impl Coordinator {
    pub(super) fn new(name: &'static str, communicator: Communicator, ranks: Vec<usize>) -> Self {
        Self { name, communicator, ranks }
    }

    /// `world`, `tp`, `pp`, `dp` or `ep`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What runs collectives. Groups of the same ranks share it.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
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
        self.communicator.group().barrier()
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
        from_json(root, &self.communicator.group().all_gather_bytes(&bytes)?[root])
    }

    /// Collects an object of every rank, in the order of the group, at rank `root`; the others get
    /// `None`. Blocks; each object travels as JSON of at most 64 MiB.
    ///
    /// # Errors
    /// As [`broadcast_object`](Self::broadcast_object).
    pub fn gather_object<T: Serialize + DeserializeOwned>(&self, object: &T, root: usize) -> Result<Option<Vec<T>>> {
        self.check_root(root)?;
        let all = self.communicator.group().all_gather_bytes(&to_json(object)?)?;
        if self.rank() != root {
            return Ok(None);
        }
        all.iter().enumerate().map(|(rank, bytes)| from_json(rank, bytes)).collect::<Result<_>>().map(Some)
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

fn to_json<T: Serialize>(object: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(|error| Error::invalid("the object", "unfit for JSON", error))
}

fn from_json<T: DeserializeOwned>(rank: usize, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::bootstrap(format!("rank {rank} sent an object of another type: {error}")))
}
