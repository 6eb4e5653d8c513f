//! Closure-scoped capture of a stream's work.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::graph::{Graph, Part};
use super::{NEXT_ID, Stream};
use crate::error::{Error, Result};

/// A capture in progress, handed to the closure of [`Stream::capture`].
///
/// What is enqueued here is recorded, not run. Operands must live for `'env`, which outlives
/// the graph. It cannot leave the closure, nor its thread:
/// ```compile_fail,E0277
/// # use symmetra::*;
/// fn elsewhere<'env>(buffer: &'env SymmetricBuffer<f32>, communicator: &Communicator, capture: &Capture<'env>) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| communicator.all_reduce_in_place(buffer, capture).map(drop));
///     });
/// }
/// ```
/// while communicator and operands can:
/// ```
/// # use symmetra::*;
/// fn elsewhere(buffer: &SymmetricBuffer<f32>, communicator: &Communicator, stream: &Stream) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| communicator.all_reduce_in_place(buffer, stream).map(drop));
///     });
/// }
/// ```
pub struct Capture<'env> {
    recording: Recording,
    /// Invariant in `'env`, so that no operand with a shorter life is accepted; not Send, not Sync.
    _env: PhantomData<(Cell<&'env ()>, *const ())>,
}

impl Capture<'_> {
    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Nothing more is recorded.
    fn end(&self) -> Result<()> {
        self.recording.parts.lock().iter().try_for_each(|(_, part)| part.end(self))
    }

    /// The stream that is being captured.
    pub fn stream(&self) -> &Stream {
        self.recording.stream()
    }
}

impl fmt::Debug for Capture<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Capture(of {:?})", self.stream())
    }
}

/// What a capture has recorded beside the work itself.
pub struct Recording {
    /// No other recording has it.
    id: u64,
    stream: Stream,
    parts: Mutex<Vec<(u64, Arc<dyn Part>)>>,
}

impl Recording {
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The part of this kind that the group with this id has here, made by `make` the first time.
    pub(crate) fn part<P: Part>(&self, id: u64, make: impl FnOnce() -> P) -> Arc<P> {
        let mut parts = self.parts.lock();
        let known = parts.iter().filter(|(owner, _)| *owner == id).find_map(|(_, part)| {
            let any: Arc<dyn Any + Send + Sync> = part.clone();
            any.downcast().ok()
        });
        known.unwrap_or_else(|| {
            let part = Arc::new(make());
            parts.push((id, part.clone()));
            part
        })
    }
}

/// Marks a stream as captured for as long as it lives.
struct Mark<'a>(&'a Stream);

impl<'a> Mark<'a> {
    fn set(stream: &'a Stream) -> Result<Self> {
        let mut capturing = stream.0.capturing.write();
        if *capturing {
            return Err(Error::unsupported("a capture inside a capture", "this stream is being captured already"));
        }
        *capturing = true;
        Ok(Self(stream))
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        *self.0.0.capturing.write() = false;
    }
}

impl Stream {
    /// Records what the closure enqueues on the [`Capture`] into a [`Graph`].
    ///
    /// Nothing runs until [`Graph::launch`]. When the closure returns an error or panics the
    /// capture ends, what was recorded is dropped and the stream is as before. Graphs that
    /// hold plain or foreign pointers of large operands need [`Graph::register`] once.
    ///
    /// # Errors
    /// The closure's error; [`Error::Unsupported`] for a capture inside a capture;
    /// [`Error::Device`] when the runtime refuses.
    ///
    /// The operands must outlive the graph:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn leak(device: &Device, communicator: &Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = DeviceBuffer::<f32>::new(device, 8)?;
    ///     stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture))
    /// }
    /// ```
    /// as they do here:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'env>(buffer: &'env DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<Graph<'env>> {
    ///     stream.capture(|capture| communicator.all_reduce_in_place(buffer, capture))
    /// }
    /// ```
    /// The capture cannot leave the closure:
    /// ```compile_fail,E0521
    /// # use symmetra::*;
    /// fn escape<'env>(stream: &Stream, slot: &mut Option<&'env Capture<'env>>) -> Result<()> {
    ///     stream.capture(|capture| { *slot = Some(capture); Ok(()) }).map(drop)
    /// }
    /// ```
    pub fn capture<'env, F>(&self, record: F) -> Result<Graph<'env>>
    where
        F: FnOnce(&Capture<'env>) -> Result<()>,
    {
        let _mark = Mark::set(self)?;
        // SAFETY: `self` outlives the native capture, which ends in this function.
        #[allow(unsafe_code)]
        let native = unsafe { self.0.raw.begin_capture() }?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let recording = Recording { id, stream: self.clone(), parts: Mutex::new(Vec::new()) };
        let capture = Capture { recording, _env: PhantomData };
        record(&capture)?;
        capture.end()?;
        Graph::finish(self.device(), native, capture.recording.parts.into_inner())
    }
}
