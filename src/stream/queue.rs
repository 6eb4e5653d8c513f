//! The places where an operation may be enqueued: a stream, or a capture of a stream.

use super::{Capture, Event, Recording, Stream};
use crate::error::Result;
use crate::sys::device as sys;

mod sealed {
    /// Returns the queue's kind. Not nameable outside the crate, so no other type can implement it.
    pub trait Sealed {
        fn target(&self) -> super::Target<'_>;
    }
}

/// A place to enqueue work whose operands are borrowed for `'op`.
///
/// `&Stream` takes operands of any lifetime, because memory waits for the device before it is freed. `&Capture<'scope,
/// 'env>` takes operands that live for `'scope`, as long as the graph. Sealed.
pub trait Queue<'op>: sealed::Sealed {}

impl Queue<'_> for &Stream {}
impl<'op: 'scope, 'scope> Queue<'op> for &Capture<'scope, '_> {}

impl sealed::Sealed for &Stream {
    fn target(&self) -> Target<'_> {
        Target::Eager(self)
    }
}

impl sealed::Sealed for &Capture<'_, '_> {
    fn target(&self) -> Target<'_> {
        Target::Captured(Capture::recording(self))
    }
}

/// A part of a graph enqueues its remaining work when the capture ends.
impl sealed::Sealed for &Recording {
    fn target(&self) -> Target<'_> {
        Target::Captured(self)
    }
}

/// The kind of a [`Queue`].
#[derive(Clone, Copy)]
pub enum Target<'a> {
    Eager(&'a Stream),
    Captured(&'a Recording),
}

pub(crate) trait Enqueue {
    fn stream(&self) -> &Stream;
    fn recording(&self) -> Option<&Recording>;
    fn enqueue(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()>;

    /// Records this point of the work in `event`.
    fn record(&self, event: &Event) -> Result<()> {
        self.enqueue("record an event", |raw| raw.record(&event.raw))
    }

    /// Makes work enqueued from now on wait for `event`'s last recorded point.
    fn wait(&self, event: &Event) -> Result<()> {
        self.enqueue("wait for an event", |raw| raw.wait(&event.raw))
    }
}

impl<Q: sealed::Sealed> Enqueue for Q {
    fn stream(&self) -> &Stream {
        match self.target() {
            Target::Eager(stream) => stream,
            Target::Captured(recording) => recording.stream(),
        }
    }

    fn recording(&self) -> Option<&Recording> {
        match self.target() {
            Target::Eager(_) => None,
            Target::Captured(recording) => Some(recording),
        }
    }

    fn enqueue(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        match self.target() {
            Target::Eager(stream) => stream.enqueue(call, work),
            Target::Captured(recording) => recording.stream().enqueue_captured(call, work),
        }
    }
}
