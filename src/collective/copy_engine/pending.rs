//! A collective under way beside the streams of its callers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::collective::Inner;
use crate::error::{Error, Result};
use crate::stream::{Enqueue, Event, Queue, Stream};

/// A low-contention collective under way: [`wait`](Self::wait) says who needs its result. Until then its
/// operands stay borrowed, and no stream may touch them.
///
/// Dropped without a wait it is safe: the stream of the call waits, as if it had been told to; a capture
/// does when it ends. It cannot outlive what it works on:
/// ```compile_fail,E0505
/// # use symmetra::*;
/// fn leave(communicator: &Communicator, shard: DeviceBuffer<f32>, all: &SymmetricBuffer<f32>, stream: &Stream) -> Result<()> {
///     let pending = communicator.low_contention_all_gather(&shard, all, stream)?;
///     drop(shard);
///     pending.wait(stream)
/// }
/// ```
/// while this is fine:
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
    /// Its end; `None` where the captured stream itself does the work.
    done: Option<Event>,
    /// Where it was called.
    stream: Stream,
    /// The capture it was called in.
    recording: Option<u64>,
    awaited: AtomicBool,
    _operands: PhantomData<&'op ()>,
}

impl Pending<'_> {
    pub(super) fn new(inner: &Arc<Inner>, done: Option<Event>, queue: &impl Enqueue) -> Self {
        Self {
            inner: inner.clone(),
            done,
            stream: queue.stream().clone(),
            recording: queue.recording().map(|recording| recording.id()),
            awaited: AtomicBool::new(false),
            _operands: PhantomData,
        }
    }

    /// Makes what is enqueued on the queue from here on wait for the collective. Enqueues and returns; any
    /// number of streams may wait. What a capture recorded, only that capture awaits, within the closure.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a queue of another device or capture, [`Error::Unsupported`] for a
    /// stream that is being captured; the group's error when it has failed, and then the queue waits all the same.
    pub fn wait<'w>(&self, queue: impl Queue<'w>) -> Result<()> {
        self.wait_untyped(&queue)
    }

    /// The same; the language boundary's way in.
    pub(crate) fn wait_untyped(&self, queue: &impl Enqueue) -> Result<()> {
        self.inner.check_device("stream", queue.stream().device())?;
        let here = queue.recording().map(|recording| recording.id());
        if here != self.recording {
            let words = |recording: Option<u64>| recording.map_or("on a stream", |_| "in a capture");
            let limit = format!("the collective was called {} of its own", words(self.recording));
            return Err(Error::invalid("where a collective is awaited", words(here), limit));
        }
        if let Some(done) = &self.done {
            // An event from outside would end a capture that the library does not know of.
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
        if !self.awaited.load(Ordering::Acquire) && self.recording.is_none() {
            match self.wait(&self.stream) {
                Ok(()) => {}
                Err(_) if self.awaited.load(Ordering::Acquire) => {}
                Err(error) => {
                    tracing::warn!(stream = ?self.stream, %error, "the stream of a call does not wait for it")
                }
            }
        }
        if let Some(done) = self.done.take() {
            self.inner.side.lock().give_back(done);
        }
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pending(called on {:?})", self.stream)
    }
}
