//! The process group of an expert or grid object: a communicator (symmetra kernels) or a coordinator (any backend).

use std::fmt;

use super::coordinator::Coordinator;
use super::settings::{Named, difference, texts};
use crate::bootstrap::hello::at_odds;
use crate::collective::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::stream::{Stream, Target};

/// A process group and its operations.
#[derive(Clone)]
pub(crate) enum Over {
    Communicator(Communicator),
    Coordinator(Coordinator),
}

impl Over {
    pub(crate) fn rank(&self) -> usize {
        match self {
            Self::Communicator(communicator) => communicator.rank(),
            Self::Coordinator(coordinator) => coordinator.rank(),
        }
    }

    pub(crate) fn world_size(&self) -> usize {
        match self {
            Self::Communicator(communicator) => communicator.world_size(),
            Self::Coordinator(coordinator) => coordinator.world_size(),
        }
    }

    /// The communicator of the ranks of this host.
    pub(crate) fn local(&self) -> &Communicator {
        match self {
            Self::Communicator(communicator) => communicator,
            Self::Coordinator(coordinator) => coordinator.local(),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        self.local().device()
    }

    /// The communicator, if symmetra kernels run the group's operations. Equal on every rank.
    pub(crate) fn own(&self) -> Option<&Communicator> {
        match self {
            Self::Communicator(communicator) => Some(communicator),
            Self::Coordinator(coordinator) => coordinator.on_own_kernels_alone(),
        }
    }

    pub(crate) fn run(&self, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.run(call, queue),
            Self::Coordinator(coordinator) => coordinator.run(call, queue),
        }
    }

    /// Refuses a call that no backend serves, or that cannot be captured. Enqueues nothing. `recorded`: whether a
    /// capture of this crate records the call; `captured`: whether any API captures it.
    pub(crate) fn check_served(&self, call: &Call<'_>, [recorded, captured]: [bool; 2]) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.check_operands(call, recorded),
            Self::Coordinator(coordinator) => coordinator.check_served(call, [recorded, captured]),
        }
    }

    /// Fails if called from a user callback that runs inside a call on the communicator of this host.
    pub(crate) fn refuse_within(&self, what: impl fmt::Display) -> Result<()> {
        self.local().refuse_within(what)
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.group().check(),
            Self::Coordinator(coordinator) => coordinator.check(),
        }
    }

    /// Aborts the group on every rank.
    pub(crate) fn abort(&self, reason: &str) {
        match self {
            Self::Communicator(communicator) => communicator.abort(),
            Self::Coordinator(coordinator) => coordinator.abort(reason),
        }
    }

    pub(crate) fn synchronize(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Communicator(communicator) => communicator.synchronize(stream),
            Self::Coordinator(coordinator) => coordinator.synchronize(stream),
        }
    }

    /// Gathers bytes from every rank for the collective call named `call`.
    pub(crate) fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::Communicator(communicator) => communicator.group().all_gather_for(call, bytes),
            Self::Coordinator(coordinator) => coordinator.all_gather_for(call, bytes),
        }
    }

    /// Fails on all ranks if settings differ, with the first field that differs between rank 0 and another rank.
    /// Collective; blocks.
    pub(crate) fn agree(&self, what: &str, settings: &Named<'_>) -> Result<()> {
        let own = serde_json::to_vec(&(what, texts(settings)));
        let own = own.map_err(|error| Error::Internal { message: error.to_string() })?;
        let all = self.all_gather_for(what, &own)?;
        let came = format!("to compare {what}");
        let read = |(rank, bytes): (usize, &Vec<u8>)| -> Result<Vec<(String, String)>> {
            let (theirs, settings): (String, _) =
                serde_json::from_slice(bytes).map_err(|_| at_odds(&came, [self.rank(), rank], None))?;
            let same = theirs == what;
            if same {
                Ok(settings)
            } else {
                Err(at_odds(&came, [self.rank(), rank], Some(&format!("to compare {theirs}"))))
            }
        };
        let all = all.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
        let differs = |theirs: &Vec<(String, String)>| difference(&all[0], theirs);
        match all.iter().enumerate().find_map(|(rank, theirs)| Some((rank, differs(theirs)?))) {
            None => Ok(()),
            Some((rank, (field, [ours, theirs]))) => {
                let what = if field.is_empty() { what.to_owned() } else { format!("{field} of {what}") };
                Err(Error::Mismatch { what, against: 0, ours, rank, theirs })
            }
        }
    }

    /// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed. Collective; blocks.
    pub(crate) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        crate::bootstrap::hello::together(what, local, |words| self.all_gather_for(what, words))
    }
}
