//! The order of calls that share memory: calls on different streams run one after another.

use std::thread::ThreadId;

use super::{Event, Stream, Target};
use crate::device::Device;
use crate::error::{Error, Result};

/// The order of eager calls and graph launches.
pub(crate) struct StreamOrder {
    last: Last,
    event: Event,
}

/// The stream of the last call.
enum Last {
    Nowhere,
    /// On this stream. If the handle is another stream on each thread, the stream is that of this thread, and the call has not
    /// ended.
    On(Stream, Option<ThreadId>),
    /// On a stream that may have ended. The event was recorded after the call.
    Left,
    /// On the stream of this thread. The event was recorded after the call, because only this thread can do so.
    OfThread(ThreadId),
}

impl StreamOrder {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self { last: Last::Nowhere, event: Event::untimed(device)? })
    }

    /// Makes the next work of `stream`, which must be of the device of this order, wait for the last call.
    ///
    /// Does nothing for a stream that its owner captures natively. The owner orders the launches of that graph.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        self.event.device.check_same("stream", stream.device())?;
        match &self.last {
            _ if self.is_last(stream) => return Ok(()),
            _ if stream.is_capturing()? => return Ok(()),
            Last::On(last, _) if last.is_capturing()? => {
                return Err(Error::unsupported(
                    "a call on another stream",
                    "the stream of the last call is being captured, so this one cannot be ordered after it",
                ));
            }
            Last::On(last, _) => {
                last.record(&self.event)?;
                stream.wait(&self.event)?;
            }
            Last::Left | Last::OfThread(_) => stream.wait(&self.event)?,
            Last::Nowhere => {}
        }
        // If the program has dropped the last stream, the stream ends here.
        if let Last::On(last, _) = std::mem::replace(&mut self.last, Last::On(stream.clone(), stream.thread())) {
            last.let_go();
        }
        Ok(())
    }

    /// Ends a call on `stream` that [`order`](Self::order) began. Records the event if the handle is another stream on each
    /// thread: a call of another thread waits for the event.
    pub(crate) fn end_on(&mut self, stream: &Stream) -> Result<()> {
        let Some(thread) = stream.thread() else { return Ok(()) };
        if self.is_last(stream) && !stream.is_capturing()? {
            stream.record(&self.event)?;
            // If the program has dropped the last stream, the stream ends here.
            if let Last::On(last, _) = std::mem::replace(&mut self.last, Last::OfThread(thread)) {
                last.let_go();
            }
        }
        Ok(())
    }

    /// Whether all calls are done, except calls that a stream's owner captured. Does not block.
    pub(crate) fn is_done(&self) -> Result<bool> {
        match &self.last {
            Last::Nowhere => Ok(true),
            Last::On(stream, _) => stream.is_done(),
            Last::Left | Last::OfThread(_) => self.event.is_done(),
        }
    }

    /// Whether the last call is on `stream`: then all calls are done when the work of `stream` is done.
    pub(crate) fn is_last(&self, stream: &Stream) -> bool {
        match &self.last {
            Last::On(last, thread) => last.same(stream) && *thread == stream.thread(),
            Last::OfThread(thread) => stream.thread() == Some(*thread),
            Last::Nowhere | Last::Left => false,
        }
    }

    /// The stream of the last call, unless the order has left that stream.
    #[cfg(test)]
    pub(crate) fn last(&self) -> Option<&Stream> {
        match &self.last {
            Last::On(last, _) => Some(last),
            Last::Nowhere | Last::Left | Last::OfThread(_) => None,
        }
    }

    /// A stream that is done when the last call is done; `None` if there was no call.
    #[cfg(feature = "nccl")]
    pub(crate) fn end(&self, device: &Device) -> Result<Option<Stream>> {
        match &self.last {
            Last::Nowhere => Ok(None),
            Last::On(last, _) => Ok(Some(last.clone())),
            Last::Left | Last::OfThread(_) => {
                let stream = Stream::new(device)?;
                stream.wait(&self.event)?;
                Ok(Some(stream))
            }
        }
    }

    /// Continues the order without `stream`, which may end. Does nothing if the last call is on another stream, or if
    /// the owner captures `stream` natively.
    pub(crate) fn leave(&mut self, stream: &Stream) -> Result<()> {
        match &self.last {
            Last::On(last, _) if self.is_last(stream) && !last.is_capturing()? => last.record(&self.event)?,
            _ => return Ok(()),
        }
        self.last = Last::Left;
        Ok(())
    }

    /// Makes the next work of a queue wait for the last call. A captured call is ordered by its graph, and the
    /// graph by [`order`](Self::order) at each launch.
    pub(crate) fn order_call(&mut self, queue: Target<'_>) -> Result<()> {
        match queue.recording() {
            None => self.order(queue.stream()),
            Some(_) => self.event.device.check_same("stream", queue.stream().device()),
        }
    }

    /// Enqueues a call after the last call, and ends it as [`end_on`](Self::end_on) does, also if enqueueing failed: the work of
    /// before the failure has its place in the order too.
    pub(crate) fn call<T>(&mut self, queue: Target<'_>, enqueue: impl FnOnce() -> Result<T>) -> Result<T> {
        self.order_call(queue)?;
        let enqueued = enqueue();
        let ended = if queue.recording().is_none() { self.end_on(queue.stream()) } else { Ok(()) };
        enqueued.and_then(|made| ended.map(|()| made))
    }

    /// Ends a call that [`order_call`](Self::order_call) began. A borrowed stream may end before the next call without
    /// notice to this order, and another thread cannot record the stream of this thread, so the order leaves such streams
    /// after each call.
    pub(crate) fn end_call(&mut self, queue: Target<'_>) -> Result<()> {
        match queue.recording() {
            None if queue.stream().thread().is_some() => self.end_on(queue.stream()),
            None if queue.stream().is_borrowed() => self.leave(queue.stream()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/stream/order.rs"]
mod tests;
