//! What experts run over: a communicator's own kernels, or whatever serves a parallel group.

use crate::collective::Communicator;
use crate::device::Device;
use crate::environment::Coordinator;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::stream::{Enqueue, Stream};

/// A group's operations.
#[derive(Clone)]
pub(super) enum Over {
    Communicator(Communicator),
    Coordinator(Coordinator),
}

impl Over {
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Communicator(communicator) => communicator.rank(),
            Self::Coordinator(coordinator) => coordinator.rank(),
        }
    }

    pub(super) fn world_size(&self) -> usize {
        match self {
            Self::Communicator(communicator) => communicator.world_size(),
            Self::Coordinator(coordinator) => coordinator.world_size(),
        }
    }

    /// The communicator of the ranks of this host.
    pub(super) fn local(&self) -> &Communicator {
        match self {
            Self::Communicator(communicator) => communicator,
            Self::Coordinator(coordinator) => coordinator.local(),
        }
    }

    pub(super) fn device(&self) -> &Device {
        self.local().device()
    }

    /// The communicator whose own kernels run the group's operations, if they do. Equal on every rank.
    pub(super) fn own(&self) -> Option<&Communicator> {
        match self {
            Self::Communicator(communicator) => Some(communicator),
            Self::Coordinator(coordinator) => coordinator.on_own_kernels_alone(),
        }
    }

    pub(super) fn run(&self, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.run(call, queue),
            Self::Coordinator(coordinator) => coordinator.run(call, queue),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.group().check(),
            Self::Coordinator(coordinator) => coordinator.check(),
        }
    }

    pub(super) fn synchronize(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.synchronize(stream),
            Self::Coordinator(coordinator) => coordinator.synchronize(stream),
        }
    }

    pub(super) fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::Communicator(communicator) => communicator.group().all_gather_bytes(bytes),
            Self::Coordinator(coordinator) => coordinator.all_gather_bytes(bytes),
        }
    }

    /// Refuses unequal words on all ranks, with those of this rank or rank 0 and of the first that differs. Collective;
    /// blocks.
    pub(super) fn agree(&self, what: &str, words: &str) -> Result<()> {
        let all = self.all_gather_bytes(words.as_bytes())?;
        let said = |rank: usize| String::from_utf8_lossy(&all[rank]).into_owned();
        match (1..all.len()).find(|rank| all[*rank] != all[0]) {
            None => Ok(()),
            Some(rank) => {
                Err(Error::Mismatch { what: what.to_owned(), against: 0, ours: said(0), rank, theirs: said(rank) })
            }
        }
    }

    /// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed. Collective; blocks.
    pub(super) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        crate::bootstrap::hello::together(what, local, |words| self.all_gather_bytes(words))
    }
}
