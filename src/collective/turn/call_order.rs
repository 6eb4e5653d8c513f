//! The order of a communicator's calls, which share scratch and epochs.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::lock_api::GetThreadId;
use parking_lot::{Mutex, MutexGuard, RawThreadId};

use super::Turn;
use crate::collective::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::{CallOrder, Kept, Stream, Target};

/// The lock that orders a communicator's calls: one call at a time holds the lane. Meanwhile the call may run a callback of
/// the caller. A callback that makes another call would deadlock, so that call is refused.
pub(in crate::collective) struct TurnLock {
    lane: Mutex<Lane>,
    /// The thread in which the call that holds the lane runs a callback; else 0.
    worker: AtomicUsize,
}

impl TurnLock {
    /// `mixed`: whether graphs that a stream's owner captures keep the order with all other calls.
    pub(in crate::collective) fn new(device: &Device, mixed: bool) -> Result<Self> {
        Ok(Self { lane: Mutex::new(Lane::new(device, mixed)?), worker: AtomicUsize::new(0) })
    }

    /// Waits for the calls of other threads. `what` names the call in errors.
    pub(in crate::collective) fn take(&self, what: impl fmt::Display) -> Result<MutexGuard<'_, Lane>> {
        self.refuse_within(what)?;
        Ok(self.lane.lock())
    }

    /// The lane, unless another thread holds it.
    pub(in crate::collective) fn try_take(&self, what: impl fmt::Display) -> Result<Option<MutexGuard<'_, Lane>>> {
        self.refuse_within(what)?;
        Ok(self.lane.try_lock())
    }

    /// Fails if called from a callback that runs inside a call of the same communicator.
    #[inline]
    pub(in crate::collective) fn refuse_within(&self, what: impl fmt::Display) -> Result<()> {
        // Relaxed: only this thread's own number matters, which only this thread writes.
        match self.worker.load(Ordering::Relaxed) {
            0 => Ok(()),
            worker if worker != this_thread() => Ok(()),
            _ => Err(Error::unsupported(
                format!("{what} within another call of the same communicator"),
                "a callback runs in that call, which holds the communicator until the callback returns",
            )),
        }
    }

    /// Runs `work`, which may contain a callback, in the call that holds the lane.
    pub(in crate::collective) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Ends the work, also if the work panics.
        struct Worker<'a>(&'a AtomicUsize);
        impl Drop for Worker<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        self.worker.store(this_thread(), Ordering::Relaxed);
        let _worker = Worker(&self.worker);
        work()
    }

    pub(in crate::collective) fn get_mut(&mut self) -> &mut Lane {
        self.lane.get_mut()
    }
}

impl Communicator {
    /// Detaches a stream: the communicator and the order of its calls no longer need the stream. Call this before
    /// destroying a borrowed stream. The stream's work need not be done. Does not block.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the runtime cannot record an event;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device.
    pub fn leave(&self, stream: &Stream) -> Result<()> {
        self.0.check_device("stream", stream.device())?;
        self.0.lane.take("leaving a stream")?.leave(stream)?;
        self.0.side.lock().lane.leave(stream)
    }

    /// Makes the next work of a queue wait for the last call of this communicator on another stream, for work that shares
    /// memory with calls. In a capture, each launch of the graph waits in the same way.
    pub(crate) fn order(&self, what: &str, queue: Target<'_>) -> Result<()> {
        let mut turn = Turn::begin(&self.0, what, queue)?;
        let ordered = turn.order();
        turn.end(ordered)
    }

    /// Fails if called from a callback that runs inside a call of this communicator: the two would wait for each other.
    pub(crate) fn refuse_within(&self, what: impl fmt::Display) -> Result<()> {
        self.0.lane.refuse_within(what)
    }
}

/// A number that is unique among living threads.
fn this_thread() -> usize {
    RawThreadId::INIT.nonzero_thread_id().get()
}

/// The order of a communicator's eager calls and graph launches.
pub(crate) struct Lane {
    calls: CallOrder,
    /// Whether no call has run yet. A peer may then still be loading.
    pub(in crate::collective) fresh: bool,
    /// Whether this rank has signalled its first call to the peers.
    pub(in crate::collective) told: bool,
    /// Whether a natively captured call has taken the arguments of a first call.
    pub(in crate::collective) captured: bool,
}

impl Lane {
    pub(crate) fn new(device: &Device, mixed: bool) -> Result<Self> {
        Ok(Self { calls: CallOrder::new(device, mixed)?, fresh: true, told: false, captured: false })
    }

    /// Makes the next work of `stream` wait for the last call.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        self.calls.order(stream)
    }

    /// Ends a call on `stream` that [`order`](Self::order) began.
    pub(in crate::collective) fn end(&mut self, stream: &Stream) -> Result<()> {
        self.calls.end(stream)
    }

    /// Makes the next work of `stream`, which `capture` of its owner records, wait for the last call of the capture. The
    /// captured graph holds the result of `kept`.
    pub(in crate::collective) fn order_captured(
        &mut self,
        capture: u64,
        stream: &Stream,
        kept: impl FnOnce() -> Kept,
    ) -> Result<()> {
        self.calls.order_captured(capture, stream, kept)
    }

    /// Ends a call that [`order_captured`](Self::order_captured) began.
    pub(in crate::collective) fn end_captured(&mut self, capture: u64, stream: &Stream) -> Result<()> {
        self.calls.end_captured(capture, stream)
    }

    /// Whether all calls are done, except natively captured calls without [`graph_mixing`](crate::Config::graph_mixing). Does
    /// not block.
    pub(in crate::collective) fn is_done(&self) -> Result<bool> {
        self.calls.is_done()
    }

    /// Keeps the order without `stream`, which may then be destroyed.
    pub(in crate::collective) fn leave(&mut self, stream: &Stream) -> Result<()> {
        self.calls.leave(stream)
    }
}
