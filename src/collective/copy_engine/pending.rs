//! A collective in flight, concurrent with the streams of its callers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::collective::Inner;
use crate::error::{Error, Result};
use crate::stream::{Event, Queue, Stream, Target};

/// A low-contention collective that is running. [`wait`](Self::wait) makes a queue wait for the result. Until then the
/// operands stay borrowed, and no stream may touch them.
///
/// Dropping a `Pending` without a wait is safe: the stream of the call then waits, or the capture waits when it ends. A
/// `Pending` cannot outlive the operands:
/// ```compile_fail,E0505
/// # use symmetra::*;
/// fn leave(communicator: &Communicator, shard: DeviceBuffer<f32>, all: &SymmetricBuffer<f32>, stream: &Stream) -> Result<()> {
///     let pending = communicator.low_contention_all_gather(&shard, all, stream)?;
///     drop(shard);
///     pending.wait(stream)
/// }
/// ```
/// Dropping the `Pending` before the operands compiles:
/// ```
/// # use symmetra::*;
/// fn stay(communicator: &Communicator, shard: DeviceBuffer<f32>, all: &SymmetricBuffer<f32>, stream: &Stream) -> Result<()> {
///     let pending = communicator.low_contention_all_gather(&shard, all, stream)?;
///     pending.wait(stream)?;
///     drop(pending);
///     drop(shard);
///     Ok(())
/// }
/// ```
#[must_use = "nothing is ordered after the collective until a stream waits for it"]
pub struct Pending<'op> {
    inner: Arc<Inner>,
    /// Recorded after the work; `None` if the captured stream itself does the work.
    done: Option<Event>,
    /// The stream of the call.
    stream: Stream,
    /// The capture of the call.
    recording: Option<u64>,
    awaited: AtomicBool,
    _operands: PhantomData<&'op ()>,
}

impl Pending<'_> {
    pub(super) fn new(inner: &Arc<Inner>, done: Option<Event>, queue: Target<'_>) -> Self {
        Self {
            inner: inner.clone(),
            done,
            stream: queue.stream().clone(),
            recording: queue.recording().map(|recording| recording.id()),
            awaited: AtomicBool::new(false),
            _operands: PhantomData,
        }
    }

    /// Makes later work of the queue wait for the collective. Enqueues and returns. Any number of streams may wait. A
    /// call made in a capture can be awaited only in that capture, inside the closure.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a queue of another device or capture; [`Error::Unsupported`] for a stream that is
    /// being captured; the group's error if the group has failed, in which case the queue waits nevertheless.
    pub fn wait<'w>(&self, queue: impl Queue<'w>) -> Result<()> {
        self.wait_untyped(Target::of(&queue))
    }

    /// Makes later work of any queue wait for the collective; C++ calls this through the bridge.
    pub(crate) fn wait_untyped(&self, queue: Target<'_>) -> Result<()> {
        self.inner.check_device("stream", queue.stream().device())?;
        let here = queue.recording().map(|recording| recording.id());
        if here != self.recording {
            let words = |recording: Option<u64>| recording.map_or("on a stream", |_| "in a capture");
            let limit = format!("the collective was called {} of its own", words(self.recording));
            return Err(Error::invalid("where a collective is awaited", words(here), limit));
        }
        if let Some(done) = &self.done {
            // Waiting for an event recorded outside would invalidate a native capture.
            if here.is_none() && queue.stream().is_capturing()? {
                return Err(Error::unsupported("to await a collective", "the stream is being captured"));
            }
            queue.wait(done)?;
        }
        self.awaited.store(true, Ordering::Release);
        self.inner.group.check()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.inner.group.device().is_here() {
            return;
        }
        if !self.awaited.load(Ordering::Acquire) && self.recording.is_none() {
            match self.wait(&self.stream) {
                Ok(()) => {}
                Err(_) if self.awaited.load(Ordering::Acquire) => {}
                Err(error) => {
                    crate::log!(WARN, "{:?} does not wait for a call: {error}", self.stream)
                }
            }
        }
        if let Some(done) = self.done.take() {
            self.inner.events.give_back([done]);
        }
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pending(called on {:?})", self.stream)
    }
}
