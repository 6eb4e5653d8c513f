//! One operation at a time: scratch and epochs belong to a lane, so its calls are ordered even
//! when they come on different streams.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::{Enqueue, Event, Stream};

/// The order of a communicator's eager calls and graph launches.
pub(crate) struct Lane {
    last: Last,
    event: Event,
    /// Whether nothing has run yet: a peer may still be loading.
    pub(super) fresh: bool,
    /// Whether peers have been told that this rank has come to its calls.
    pub(super) told: bool,
    /// Whether a call that its stream's owner captures has been given what the first call is.
    pub(super) captured: bool,
}

/// Where the last call went.
enum Last {
    /// There was none.
    Nowhere,
    On(Stream),
    /// To a stream that may be gone: the event was recorded behind it.
    Left,
}

impl Lane {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self { last: Last::Nowhere, event: Event::new(device)?, fresh: true, told: false, captured: false })
    }

    /// Makes what `stream` does next wait for the lane's last call.
    ///
    /// A stream that its owner captures natively is left alone: an event recorded outside a
    /// capture cannot be waited for inside. The order of that graph's launches is its owner's.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        match &self.last {
            Last::On(last) if last.same(stream) => return Ok(()),
            _ if stream.is_capturing()? => return Ok(()),
            Last::On(last) if last.is_capturing()? => {
                return Err(Error::unsupported(
                    "a call on another stream",
                    "the stream of the last call is being captured, so this one cannot be ordered after it",
                ));
            }
            Last::On(last) => {
                last.record(&self.event)?;
                stream.wait(&self.event)?;
            }
            Last::Left => stream.wait(&self.event)?,
            Last::Nowhere => {}
        }
        // The caller may have dropped the stream before: then this is its end.
        if let Last::On(last) = std::mem::replace(&mut self.last, Last::On(stream.clone())) {
            last.let_go();
        }
        Ok(())
    }

    /// Where the last call went, unless that stream was left.
    #[cfg(feature = "nccl")]
    pub(crate) fn last(&self) -> Option<&Stream> {
        match &self.last {
            Last::On(last) => Some(last),
            Last::Nowhere | Last::Left => None,
        }
    }

    /// A stream that is done when the last call is, if there was one.
    #[cfg(feature = "nccl")]
    pub(crate) fn end(&self, device: &Device) -> Result<Option<Stream>> {
        match &self.last {
            Last::Nowhere => Ok(None),
            Last::On(last) => Ok(Some(last.clone())),
            Last::Left => {
                let stream = Stream::new(device)?;
                stream.wait(&self.event)?;
                Ok(Some(stream))
            }
        }
    }

    /// Keeps the order without `stream`, which may end. Nothing where the last call went elsewhere, or to
    /// a stream that its owner captures natively.
    pub(crate) fn leave(&mut self, stream: &Stream) -> Result<()> {
        match &self.last {
            Last::On(last) if last.same(stream) && !last.is_capturing()? => last.record(&self.event)?,
            _ => return Ok(()),
        }
        self.last = Last::Left;
        Ok(())
    }

    /// The same for a call on a queue. What a capture records is ordered by its graph, and the
    /// graph by [`order`](Self::order) at each launch.
    pub(crate) fn order_call(&mut self, queue: &impl Enqueue) -> Result<()> {
        match queue.recording() {
            None => self.order(queue.stream()),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/call_order.rs"]
mod tests;
