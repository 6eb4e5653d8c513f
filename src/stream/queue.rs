//! The places where an operation may be enqueued: a stream, or a capture of a stream.

use std::cell::Cell;
use std::marker::PhantomData;
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

/// A stream or a capture as one type, for trait objects and closures: a generic function over [`Queue`] cannot be
/// one. Operands live for `'env`, as long as the graph of a capture, also where the queue is a stream.
///
/// ```no_run
/// # use symmetra::{AnyQueue, Graph, Result, Stream};
/// type Work<'env> = Box<dyn Fn(AnyQueue<'_, 'env>) -> Result<()> + 'env>;
///
/// fn twice<'env>(work: &Work<'env>, stream: &Stream) -> Result<Graph<'env>> {
///     work(stream.into())?;
///     stream.capture(|capture| work(capture.into()))
/// }
/// ```
///
/// An operand that lives shorter than the graph is refused:
///
/// ```compile_fail,E0597
/// # use symmetra::{AnyQueue, Communicator, DeviceBuffer, Result};
/// fn enqueue<'env>(communicator: &Communicator, queue: AnyQueue<'_, 'env>) -> Result<()> {
///     let buffer = DeviceBuffer::<f32>::new(communicator.device(), 1)?;
///     communicator.all_reduce(&buffer, &buffer, queue)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct AnyQueue<'q, 'env> {
    target: Target<'q>,
    /// Invariant, as the lives of a capture are.
    _lives: PhantomData<Cell<&'env ()>>,
}

impl<'q> AnyQueue<'q, '_> {
    /// The stream, or the stream that is captured: work that another library enqueues there becomes a part of the graph.
    pub fn stream(self) -> &'q Stream {
        self.target.stream()
    }
}

impl<'op: 'env, 'env> Queue<'op> for AnyQueue<'_, 'env> {}

impl sealed::Sealed for AnyQueue<'_, '_> {
    fn target(&self) -> Target<'_> {
        self.target
    }
}

impl<'q> From<&'q Stream> for AnyQueue<'q, '_> {
    fn from(stream: &'q Stream) -> Self {
        Self { target: stream.into(), _lives: PhantomData }
    }
}

impl<'q, 'env> From<&'q Capture<'_, 'env>> for AnyQueue<'q, 'env> {
    fn from(capture: &'q Capture<'_, 'env>) -> Self {
        Self { target: capture.into(), _lives: PhantomData }
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
