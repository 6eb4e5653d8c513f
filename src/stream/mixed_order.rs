//! The order of calls that streams, and graphs of the streams' owners, run: an event is recorded after each call.

use std::sync::Arc;
use std::thread::ThreadId;

use super::{Event, Stream};
use crate::device::Device;
use crate::error::Result;

/// The order of eager calls and of launches of graphs, also graphs that the library does not know. Graphs of owners wait for the
/// event, and record the event at their end.
pub(super) struct MixedOrder {
    event: Arc<Event>,
    last: Option<LastEagerCall>,
    /// The handle and the number of the stream of the call in progress.
    current: (u64, u64),
    /// Whether a launch of a graph may have recorded the event, on any stream.
    has_graphs: bool,
}

/// The last eager call.
struct LastEagerCall {
    /// The runtime's number of the stream; 0 if unknown. Not the handle, which a later stream may have.
    id: u64,
    /// The thread, if the handle is another stream on each thread.
    thread: Option<ThreadId>,
    /// The stream, unless its owner may destroy the stream without notice, or only another thread can use it.
    stream: Option<Stream>,
}

impl MixedOrder {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Self { event: Arc::new(Event::untimed(device)?), last: None, current: (0, 0), has_graphs: false })
    }

    /// Makes the next work of `stream` wait for the last call.
    pub(super) fn order(&mut self, stream: &Stream) -> Result<()> {
        self.event.device.check_same("stream", stream.device())?;
        let id = stream.raw()?.id();
        self.current = (stream.0.handle, id);
        let thread = stream.thread();
        let same = self.last.as_ref().is_some_and(|last| last.id != 0 && last.id == id && last.thread == thread);
        if self.has_graphs || !same && self.last.is_some() {
            stream.wait(&self.event)?;
        }
        // Work that the program has enqueued after the end of the last call may belong to the call.
        if !same && self.record_again()? {
            stream.wait(&self.event)?;
        }
        Ok(())
    }

    /// Records the event after all work of the last call's stream, if that stream still exists.
    fn record_again(&self) -> Result<bool> {
        let Some(last) = self.last.as_ref().and_then(|last| last.stream.as_ref()) else { return Ok(false) };
        if last.is_capturing()? {
            return Ok(false);
        }
        if self.has_graphs {
            // A graph may have recorded the event on another stream.
            last.wait(&self.event)?;
        }
        last.record(&self.event)?;
        Ok(true)
    }

    /// Ends a call on `stream` that [`order`](Self::order) began.
    pub(super) fn end(&mut self, stream: &Stream) -> Result<()> {
        stream.record(&self.event)?;
        let thread = stream.thread();
        let kept = (!stream.is_borrowed() && thread.is_none()).then(|| stream.clone());
        let id = match self.current {
            (handle, id) if handle == stream.0.handle => id,
            _ => stream.raw()?.id(),
        };
        let last = LastEagerCall { id, thread, stream: kept };
        // If the program has dropped the last stream, the stream ends here.
        if let Some(stream) = self.last.replace(last).and_then(|last| last.stream) {
            stream.let_go();
        }
        Ok(())
    }

    /// The event for the graphs of owners, from now on.
    pub(super) fn event_for_graphs(&mut self) -> &Arc<Event> {
        self.has_graphs = true;
        &self.event
    }

    /// Whether all calls are done, also those of graphs that were launched. Does not block.
    pub(super) fn is_done(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// Continues the order without `stream`, which may end.
    pub(super) fn leave(&mut self, stream: &Stream) -> Result<()> {
        let is_last = |last: &LastEagerCall| last.stream.as_ref().is_some_and(|last| last.same(stream));
        if self.last.as_ref().is_some_and(is_last) {
            self.record_again()?;
            self.last = Some(LastEagerCall { id: 0, thread: None, stream: None });
        }
        Ok(())
    }
}
