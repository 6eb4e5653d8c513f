//! Captures by a stream's owner, like those of `cudaStreamBeginCapture`: the library does not know their contents.
#![allow(unsafe_code)]

use std::fmt;

use cxx::UniquePtr;

use super::Stream;
use super::graph::Raw;
use crate::error::Result;
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

impl Stream {
    /// Begins a capture as the owner of the stream, as `cudaStreamBeginCapture` does: all work that is enqueued on the
    /// stream from now on is recorded instead of run, until [`NativeCapture::end`]. Unlike in
    /// [`capture`](Self::capture), the library treats each call as an eager call on a stream that its owner captures:
    /// see "Graphs of the engine" in `docs/porting.md`. So the code of an engine that captures with CUDA's or HIP's
    /// functions can be tested unchanged on the host device. Works on every device. Does not block.
    /// ```
    /// # #![allow(unsafe_code)]
    /// # use symmetra::*;
    /// fn engine(communicator: &Communicator, engines: &Stream, sums: &SymmetricBuffer<f32>) -> Result<()> {
    ///     // SAFETY: the stream, and what is recorded, outlive the graph and its launch.
    ///     let (stream, capture) =
    ///         unsafe { (Stream::borrow_raw(communicator.device(), engines.as_raw())?, engines.begin_capture()?) };
    ///     communicator.all_reduce_in_place(sums, &stream)?;
    ///     let graph = capture.end()?;
    ///     graph.launch(engines)?;
    ///     communicator.synchronize(engines)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) inside a capture by [`capture`](Self::capture);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) or [`Error::Device`](crate::Error::Device) inside
    /// another capture, and where the runtime refuses.
    ///
    /// # Safety
    /// The stream's handle is valid until the capture has ended. The memory and the communicators of all recorded work
    /// live until the graph and its last launch have ended. Launches of the graph are ordered like calls of the
    /// communicators, equally on all ranks; on each rank [`Config::graph_mixing`](crate::Config::graph_mixing) keeps this
    /// order.
    pub unsafe fn begin_capture(&self) -> Result<NativeCapture> {
        self.refuse_captured("begin a capture")?;
        self.expose();
        // SAFETY: the result keeps a clone of the stream, declared after the capture.
        let raw = unsafe { self.0.raw.begin_capture() }.caught()?;
        // SAFETY: the lifetime in the type is that of the stream to which the capture refers. The stream is in the
        // `Arc` of the clone that the result keeps, so it does not move, and it is dropped after the capture.
        let raw: UniquePtr<sys::Capture<'static>> = unsafe { std::mem::transmute(raw) };
        Ok(NativeCapture { raw: OfMaker::new(made(raw, "capture")?), stream: self.clone() })
    }

    /// The number of the capture by which the owner records the stream, unique in the process; `None` if the owner captures
    /// nothing. Does not block.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) for a capture that the runtime has made invalid.
    pub fn native_capture(&self) -> Result<Option<u64>> {
        if !self.is_exposed() {
            return Ok(None);
        }
        Ok(Some(self.raw()?.capture_id().caught()?).filter(|capture| *capture != 0))
    }
}

/// A capture that the owner of a stream began: see [`Stream::begin_capture`]. It belongs to the thread that began it.
/// Dropping it ends the capture and drops the recorded work.
#[must_use = "dropping a capture ends it"]
pub struct NativeCapture {
    /// The stream of a forked child is not captured.
    raw: OfMaker<UniquePtr<sys::Capture<'static>>>,
    stream: Stream,
}

impl NativeCapture {
    /// Ends the capture, as `cudaStreamEndCapture` and `cudaGraphInstantiate` do. Does not wait for work of the stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the runtime refuses,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when a command could not be recorded.
    pub fn end(mut self) -> Result<NativeGraph> {
        self.stream.device().check_process("a capture")?;
        let keepalive = sys::Keepalive { data: std::ptr::null_mut(), release };
        // SAFETY: the capture is live; `finish` is called once, because `end` takes the capture.
        let raw = unsafe { self.raw.pin_mut().finish(keepalive) }.caught()?;
        Ok(NativeGraph(Raw { graph: OfMaker::new(made(raw, "graph")?), device: self.stream.device().clone() }))
    }
}

/// The graph owns nothing.
extern "C" fn release(_: *mut std::ffi::c_void) {}

impl fmt::Debug for NativeCapture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NativeCapture(of {:?})", self.stream)
    }
}

/// Work that the owner of a stream captured: see [`Stream::begin_capture`]. The library does not know when it runs: the
/// owner orders launches, unless [`Config::graph_mixing`](crate::Config::graph_mixing) is on, and makes one eager call on all
/// ranks before the first launch.
#[must_use = "captured work runs only when the graph is launched"]
pub struct NativeGraph(Raw);

impl NativeGraph {
    /// Enqueues the captured work on `stream`, as `cudaGraphLaunch` does. Does not block. A launch in flight outlives the
    /// graph.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device,
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a stream that [`Stream::capture`] records,
    /// [`Error::Device`](crate::Error::Device) when the runtime refuses.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.0.device.check_same("stream", stream.device())?;
        stream.enqueue("launch a graph", |raw| self.0.graph.launch(raw))
    }
}

impl fmt::Debug for NativeGraph {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NativeGraph(on {:?})", self.0.device)
    }
}
