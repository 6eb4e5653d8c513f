//! Capture of a stream's work within a closure.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::graph::Graph;
use super::recording::{Recording, abandon};
use super::{NEXT_ID, Stream};
use crate::error::{Error, Result};
use crate::sys::{Caught, made};

/// A capture in progress, which the closure of [`Stream::capture`] receives.
///
/// Work enqueued here is recorded, not run. The lifetimes are those of [`std::thread::scope`]: `'env` is the life of
/// the graph and of everything that the closure borrows. `'scope`, within it, is the life of operands: values that are
/// borrowed for `'env`, and values that the graph owns ([`keep`](Self::keep)). A capture cannot leave the closure or
/// its thread:
/// ```compile_fail,E0277
/// # use symmetra::*;
/// fn elsewhere<'scope>(
///     buffer: &'scope SymmetricBuffer<f32>,
///     communicator: &Communicator,
///     capture: &Capture<'scope, '_>,
/// ) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| communicator.all_reduce_in_place(buffer, capture).map(drop));
///     });
/// }
/// ```
/// Communicator and operands can be used from other threads:
/// ```
/// # use symmetra::*;
/// fn elsewhere(buffer: &SymmetricBuffer<f32>, communicator: &Communicator, stream: &Stream) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| communicator.all_reduce_in_place(buffer, stream).map(drop));
///     });
/// }
/// ```
pub struct Capture<'scope, 'env: 'scope> {
    recording: Recording,
    /// Invariant in both lifetimes, so that no operand with a shorter life is accepted; neither Send nor Sync.
    _lives: PhantomData<(Cell<&'scope ()>, Cell<&'env ()>, *const ())>,
}

impl<'scope> Capture<'scope, '_> {
    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Makes the graph an owner of `owner`, a buffer or any value from which operands are borrowed, and lends it to the
    /// operations recorded here. So a struct can hold buffers and the graphs that use them:
    /// ```
    /// # use std::sync::Arc;
    /// # use symmetra::*;
    /// struct Layer {
    ///     activations: Arc<SymmetricBuffer<f32>>,
    ///     graph: Graph<'static>,
    /// }
    /// fn layer(communicator: &Communicator, stream: &Stream) -> Result<Layer> {
    ///     let activations = Arc::new(communicator.symmetric(4096)?);
    ///     let graph = stream.capture(|capture| {
    ///         let sums = capture.keep(activations.clone());
    ///         communicator.all_reduce_in_place(sums.slice(0..1024)?, capture)
    ///     })?;
    ///     Ok(Layer { activations, graph })
    /// }
    /// ```
    /// The loan cannot leave the closure or be used in another capture's graph:
    /// ```compile_fail,E0521
    /// # use std::sync::Arc;
    /// # use symmetra::*;
    /// fn escape<'a>(buffer: Arc<DeviceBuffer<f32>>, stream: &Stream, slot: &mut Option<&'a DeviceBuffer<f32>>) -> Result<()> {
    ///     stream.capture(|capture| { *slot = Some(capture.keep(buffer)); Ok(()) }).map(drop)
    /// }
    /// ```
    /// ```compile_fail,E0521
    /// # use std::sync::Arc;
    /// # use symmetra::*;
    /// fn other<'a>(
    ///     buffer: Arc<DeviceBuffer<f32>>,
    ///     communicator: &Communicator,
    ///     streams: [&Stream; 2],
    ///     slot: &mut Option<Graph<'a>>,
    /// ) -> Result<()> {
    ///     let outer = streams[0].capture(|capture| {
    ///         let lent = capture.keep(buffer);
    ///         *slot = Some(streams[1].capture(|inner| communicator.all_reduce_in_place(lent, inner))?);
    ///         Ok(())
    ///     });
    ///     outer.map(drop)
    /// }
    /// ```
    /// Dropping the graph releases it, after launches in flight, and waits as the buffer's own drop does.
    pub fn keep<T: Send + Sync + 'static>(&self, owner: Arc<T>) -> &'scope T {
        let lent = Arc::as_ptr(&owner);
        self.recording.keep(owner);
        // SAFETY: the recording, and then the graph, owns the value, and the value does not move. The reference is used
        // only inside the closure, for which `'scope` can be any life (`Stream::capture`), and recordings last longer.
        // Work recorded on it here is in the graph; another capture accepts it only for a graph that ends inside the
        // closure.
        #[allow(unsafe_code)]
        unsafe {
            &*lent
        }
    }

    /// The stream that is being captured.
    pub fn stream(&self) -> &Stream {
        self.recording.stream()
    }
}

impl fmt::Debug for Capture<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Capture(of {:?})", self.stream())
    }
}

/// Marks a stream as captured while this value lives.
struct CaptureMark<'a>(&'a Stream);

impl<'a> CaptureMark<'a> {
    fn set(stream: &'a Stream) -> Result<Self> {
        stream.0.device.check_process("a stream")?;
        let mut capturing = stream.0.capturing.write();
        if *capturing {
            return Err(Error::unsupported("a capture inside a capture", "this stream is being captured already"));
        }
        *capturing = true;
        Ok(Self(stream))
    }
}

impl Drop for CaptureMark<'_> {
    fn drop(&mut self) {
        *self.0.0.capturing.write() = false;
    }
}

impl Stream {
    /// Records the work that the closure enqueues on the [`Capture`] into a [`Graph`].
    ///
    /// Nothing runs until [`Graph::launch`]. If the closure returns an error or panics, the capture ends, its work is
    /// dropped, and the stream is as before. A graph with plain or foreign pointers of large operands needs
    /// [`Graph::register`] once before its launch.
    ///
    /// # Errors
    /// The closure's error; [`Error::Unsupported`] for a capture inside a capture;
    /// [`Error::Device`] when the runtime refuses.
    ///
    /// The operands must outlive the graph, or the graph must [keep](Capture::keep) them:
    /// ```compile_fail,E0373
    /// # use symmetra::*;
    /// fn leak(device: &Device, communicator: &Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = DeviceBuffer::<f32>::new(device, 8)?;
    ///     stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture))
    /// }
    /// ```
    /// Here the operand outlives the graph:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'env>(buffer: &'env DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<Graph<'env>> {
    ///     stream.capture(|capture| communicator.all_reduce_in_place(buffer, capture))
    /// }
    /// ```
    /// The capture cannot leave the closure:
    /// ```compile_fail,E0521
    /// # use symmetra::*;
    /// fn escape<'env>(stream: &Stream, slot: &mut Option<&'env Capture<'env, 'env>>) -> Result<()> {
    ///     stream.capture(|capture| { *slot = Some(capture); Ok(()) }).map(drop)
    /// }
    /// ```
    pub fn capture<'env, F>(&self, record: F) -> Result<Graph<'env>>
    where
        F: for<'scope> FnOnce(&Capture<'scope, 'env>) -> Result<()>,
    {
        let _mark = CaptureMark::set(self)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let recording = Recording::new(id, self.clone());
        // Dropped after the native capture: devices free nothing while they record.
        let capture = Capture { recording, _lives: PhantomData };
        // SAFETY: `self` outlives the native capture, which ends in this function.
        #[allow(unsafe_code)]
        let native = made(unsafe { self.0.raw.begin_capture() }.caught()?, "capture")?;
        record(&capture)?;
        capture.recording.end()?;
        let (parts, kept) = capture.recording.into_parts();
        let recorded = parts.clone();
        Graph::finish(self.device(), native, parts, kept).inspect_err(|_| abandon(&recorded))
    }
}
