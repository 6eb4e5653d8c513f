//! The places where an operation may be enqueued: a stream, or a capture of a stream.

use std::sync::Arc;

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

impl<'a> Target<'a> {
    /// The target of a queue that a caller gave.
    pub(crate) fn of<Q: sealed::Sealed>(queue: &'a Q) -> Self {
        queue.target()
    }

    pub(crate) fn stream(self) -> &'a Stream {
        match self {
            Self::Eager(stream) => stream,
            Self::Captured(recording) => recording.stream(),
        }
    }

    pub(crate) fn recording(self) -> Option<&'a Recording> {
        match self {
            Self::Eager(_) => None,
            Self::Captured(recording) => Some(recording),
        }
    }

    pub(crate) fn enqueue(self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        match self {
            Self::Eager(stream) => stream.enqueue(call, work),
            Self::Captured(recording) => recording.stream().enqueue_captured(call, work),
        }
    }

    /// Keeps a value as long as the graph of a capture lives. A stream needs no value: memory waits for the device.
    pub(crate) fn keep<T: Send + Sync + 'static>(self, owner: &Arc<T>) {
        if let Self::Captured(recording) = self {
            recording.keep(owner.clone());
        }
    }

    /// Records this point of the work in `event`.
    pub(crate) fn record(self, event: &Event) -> Result<()> {
        self.enqueue("record an event", |raw| raw.record(&event.raw))
    }

    /// Makes later work wait for the last recorded point of `event`.
    pub(crate) fn wait(self, event: &Event) -> Result<()> {
        self.enqueue("wait for an event", |raw| raw.wait(&event.raw))
    }
}

impl<'a> From<&'a Stream> for Target<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self::Eager(stream)
    }
}

impl<'a> From<&'a Capture<'_, '_>> for Target<'a> {
    fn from(capture: &'a Capture<'_, '_>) -> Self {
        Self::Captured(capture.recording())
    }
}

impl<'a> From<&'a Recording> for Target<'a> {
    fn from(recording: &'a Recording) -> Self {
        Self::Captured(recording)
    }
}
