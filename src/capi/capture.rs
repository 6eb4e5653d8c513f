//! Captures and graphs, without the lifetimes that C++ cannot name.

use std::pin::Pin;
use std::sync::Arc;
use std::thread::ThreadId;

use super::bridge::Recorder;
use super::report::guard;
use super::{Report, Stream, Tensor};
use crate::error::{Error, Result};
use crate::stream;
use crate::sys::Caught;

/// A capture in progress, passed to the recording function.
pub struct Capture {
    raw: *const stream::Capture<'static, 'static>,
    thread: ThreadId,
}

impl Capture {
    /// The queue that records work on `tensors`, which are kept as long as the graph.
    pub(super) fn keep<'a>(
        &self,
        tensors: impl IntoIterator<Item = &'a Tensor>,
    ) -> Result<&stream::Capture<'static, 'static>> {
        let here = std::thread::current().id();
        if here != self.thread {
            let limit = format!("the capture belongs to {:?}", self.thread);
            return Err(Error::invalid("the thread", format!("{here:?}"), limit));
        }
        // SAFETY: C++ uses `self` only while the recording function runs, inside the frame that holds the capture
        // (borrowing); the check above refuses other threads.
        let raw = unsafe { &*self.raw };
        for tensor in tensors {
            raw.keep(Arc::new(tensor.clone()));
        }
        Ok(raw)
    }
}

/// The function that a capture calls once, with itself.
pub(super) type RecordFn<'r> = &'r mut dyn for<'scope> FnMut(&stream::Capture<'scope, 'static>) -> Result<()>;

/// A graph, which owns the tensors among its operands. Other operands are only nominally `'static`: the caller's duty.
pub struct Graph(Made);

/// A graph by the kind of its capture.
enum Made {
    ByUs(stream::Graph<'static>),
    ByOwner(stream::NativeGraph),
}

pub(super) fn stream_capture(stream: &Stream, recorder: Pin<&mut Recorder>) -> Result<Box<Graph>, Report> {
    guard(|| capture_with(recorder, |record| stream.capture(record)))
}

/// Captures the work of the recording function. `capture` calls its argument once.
pub(super) fn capture_with(
    mut recorder: Pin<&mut Recorder>,
    capture: impl FnOnce(RecordFn<'_>) -> Result<stream::Graph<'static>>,
) -> Result<Box<Graph>> {
    let graph = capture(&mut |raw| {
        let raw = std::ptr::from_ref(raw).cast();
        recorder.as_mut().record(&Capture { raw, thread: std::thread::current().id() }).caught()?;
        Ok(())
    })?;
    Ok(Box::new(Graph(Made::ByUs(graph))))
}

/// A capture by the stream's owner; empty once ended.
pub struct NativeCapture(Option<stream::NativeCapture>);

/// # Safety
/// The recorded work uses memory that lives as long as the headers require: *caller's duty*.
pub(super) unsafe fn capture_begin(stream: &Stream) -> Result<Box<NativeCapture>, Report> {
    // SAFETY: passed on.
    guard(|| unsafe { stream.begin_capture() }.map(|capture| Box::new(NativeCapture(Some(capture)))))
}

pub(super) fn capture_end(capture: &mut NativeCapture) -> Result<Box<Graph>, Report> {
    guard(|| match capture.0.take() {
        Some(capture) => Ok(Box::new(Graph(Made::ByOwner(capture.end()?)))),
        None => Err(Error::invalid("the capture", "ended", "a capture ends once")),
    })
}

pub(super) fn graph_register(graph: &Graph) -> Result<(), Report> {
    guard(|| match &graph.0 {
        Made::ByUs(graph) => graph.register(),
        Made::ByOwner(_) => Err(Error::unsupported("to register a graph", "the owner of the stream captured it")),
    })
}

pub(super) fn graph_launch(graph: &Graph, stream: &Stream) -> Result<(), Report> {
    guard(|| match &graph.0 {
        Made::ByUs(graph) => graph.launch(stream),
        Made::ByOwner(graph) => graph.launch(stream),
    })
}
