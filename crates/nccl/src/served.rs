//! A communicator that the real NCCL serves, with the means by which its ranks meet again.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use symmetra::Device;

use crate::abi::{self, Handle};
use crate::at_once::at_once;
use crate::config::CommConfig;
use crate::error::{CallFailure, Result};
use crate::place::RankAndSize;
use crate::real;
use crate::verdict::RankFacts;
use crate::wish::SplitRequest;

/// The pause between two looks at a split that the real NCCL does in the background.
const PAUSE: Duration = Duration::from_millis(1);

/// A handle of the real NCCL.
#[derive(Clone, Copy)]
struct Opaque(Handle);

// SAFETY: an opaque number, which the real NCCL accepts from any thread.
unsafe impl Send for Opaque {}
// SAFETY: an opaque number, which the real NCCL accepts from any thread.
unsafe impl Sync for Opaque {}

/// A communicator of the real NCCL.
pub(crate) struct RealComm {
    handle: Opaque,
    pub(crate) device: Device,
    /// `None`: its ranks do not meet again.
    pub(crate) kin: Option<Kin>,
    /// Whether the program has aborted the communicator.
    aborted: Mutex<bool>,
    /// Is disconnected when the last split has ended.
    last: Mutex<Option<Receiver<()>>>,
}

/// The ranks of a communicator, which all run this library.
pub(crate) struct Kin {
    /// The id by which the ranks met.
    pub(crate) id: [u8; 128],
    pub(crate) place: RankAndSize,
    /// The facts of all ranks, in rank order.
    pub(crate) claims: Vec<RankFacts>,
    /// Whether the process that made the id has ended.
    pub(crate) is_stale: AtomicBool,
}

impl Kin {
    pub(crate) fn new(id: [u8; 128], place: RankAndSize, claims: Vec<RankFacts>) -> Self {
        Self { id, place, claims, is_stale: AtomicBool::new(false) }
    }
}

/// The place of a split in the order of a communicator's splits.
pub(crate) struct SplitTurn {
    earlier: Option<Receiver<()>>,
    _until: Sender<()>,
}

impl SplitTurn {
    /// Waits until the earlier splits have ended.
    pub(crate) fn wait(&self) {
        if let Some(earlier) = &self.earlier {
            // Nothing is sent: the end of the earlier split disconnects.
            let _ = earlier.recv();
        }
    }
}

impl RealComm {
    pub(crate) fn new(handle: Handle, device: Device, kin: Option<Kin>) -> Self {
        Self { handle: Opaque(handle), device, kin, aborted: Mutex::default(), last: Mutex::default() }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.0
    }

    /// The turn of a split, which lasts until it is dropped.
    pub(crate) fn turn(&self) -> SplitTurn {
        let (until, later) = channel();
        SplitTurn { earlier: self.last.lock().replace(later), _until: until }
    }

    /// Ends the communicator, once. Does not wait for a split.
    pub(crate) fn abort(&self) -> Result {
        let mut aborted = self.aborted.lock();
        match std::mem::replace(&mut *aborted, true) {
            true => Ok(()),
            false => real::abort(self.handle()).map(drop),
        }
    }

    /// Runs a short call unless the communicator is aborted, and keeps an abort away from the call.
    fn alive<T>(&self, call: impl FnOnce(Handle) -> Result<T>) -> Result<T> {
        let aborted = self.aborted.lock();
        match *aborted {
            true => Err(CallFailure::new(abi::REMOTE_ERROR, "the communicator was aborted during its split")),
            false => call(self.handle()),
        }
    }

    /// Refuses a communicator that the program has aborted.
    pub(crate) fn check_not_aborted(&self) -> Result {
        self.alive(|_| Ok(()))
    }

    /// Refuses a communicator that has failed, or whose opening is in progress.
    pub(crate) fn check(&self) -> Result {
        match self.alive(real::state)? {
            abi::IN_PROGRESS => {
                Err(CallFailure::new(abi::INVALID_ARGUMENT, "a step of the communicator is in progress"))
            }
            _ => Ok(()),
        }
    }

    /// Splits by the real library. Collective over all ranks; blocks, until `deadline` where the real library returns early.
    /// `None`: a rank without a part.
    pub(crate) fn split(
        &self,
        wish: SplitRequest,
        parent: &CommConfig,
        config: &[u8],
        deadline: Instant,
    ) -> Result<Option<Handle>> {
        let split = || self.split_here(wish, parent, config, deadline).map(Opaque);
        let step = || self.device.with_current(split)?;
        // The calling thread may have an open group of the real library, which would delay the split.
        let split = at_once(vec![step], "the real NCCL split a communicator").pop();
        let Opaque(part) = split.unwrap_or_else(|| Err(CallFailure::system("the split did not run")))?;
        Ok(Some(part).filter(|part| !part.is_null()))
    }

    fn split_here(
        &self,
        SplitRequest { color, key }: SplitRequest,
        parent: &CommConfig,
        config: &[u8],
        deadline: Instant,
    ) -> Result<Handle> {
        // The real library writes the handle after an early return, maybe later than this call waits.
        let out = Box::into_raw(Box::new(std::ptr::null_mut()));
        // SAFETY: the place is freed only when the state is not in progress.
        let split = |handle| unsafe { real::split(handle, [color, key], out, config) };
        let mut code = match parent.returns_early {
            true => self.alive(split)?,
            // An abort must reach a split that blocks.
            false => self.alive(Ok).and_then(split)?,
        };
        while code == abi::IN_PROGRESS {
            if Instant::now() >= deadline {
                return Err(CallFailure::new(
                    abi::REMOTE_ERROR,
                    "the real NCCL did not end the split before the deadline",
                ));
            }
            std::thread::sleep(PAUSE);
            code = self.alive(real::state)?;
        }
        // SAFETY: made above, and no longer used by the real library.
        Ok(*unsafe { Box::from_raw(out) })
    }
}
