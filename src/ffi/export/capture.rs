//! Captures and graphs, without the lifetimes that C++ cannot name.

use std::pin::Pin;
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::bridge::Recorder;
use super::report::guard;
use super::{Report, Stream, Tensor};
use crate::error::{Error, Result};
use crate::stream;

/// A capture in progress, as the function that records sees it.
pub struct Capture {
    raw: *const stream::Capture<'static>,
    thread: ThreadId,
    kept: Mutex<Vec<Tensor>>,
}

impl Capture {
    /// Where to record work that uses `tensors`, which then live as long as the graph.
    pub(super) fn keep<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<&stream::Capture<'static>> {
        let here = std::thread::current().id();
        if here != self.thread {
            let limit = format!("the capture belongs to {:?}", self.thread);
            return Err(Error::invalid("the thread", format!("{here:?}"), limit));
        }
        self.kept.lock().extend(tensors.into_iter().cloned());
        // SAFETY: C++ reaches `self` only while the function that records runs, inside the frame
        // that holds the capture (borrowing); on another thread the check above ends this.
        Ok(unsafe { &*self.raw })
    }
}

/// What a capture calls once, with itself.
pub(super) type Record<'r> = &'r mut dyn FnMut(&stream::Capture<'static>) -> Result<()>;

/// A graph and what it uses. The operands are borrowed for `'static` in name only: the tensors among
/// them are owned here, and the first field is dropped first (keeping); the rest is the caller's duty.
pub struct Graph {
    graph: stream::Graph<'static>,
    _kept: Vec<Tensor>,
}

pub(super) fn stream_capture(stream: &Stream, recorder: Pin<&mut Recorder>) -> Result<Box<Graph>, Report> {
    guard(|| capture_with(recorder, |record| stream.capture(record)))
}

/// Captures what the function that records enqueues, by `capture`, which calls what it is given once.
pub(super) fn capture_with(
    mut recorder: Pin<&mut Recorder>,
    capture: impl FnOnce(Record<'_>) -> Result<stream::Graph<'static>>,
) -> Result<Box<Graph>> {
    let mut kept = Vec::new();
    let graph = capture(&mut |raw| {
        let capture = Capture { raw, thread: std::thread::current().id(), kept: Mutex::default() };
        recorder.as_mut().record(&capture)?;
        kept = capture.kept.into_inner();
        Ok(())
    })?;
    Ok(Box::new(Graph { graph, _kept: kept }))
}

pub(super) fn graph_register(graph: &Graph) -> Result<(), Report> {
    guard(|| graph.graph.register())
}

pub(super) fn graph_launch(graph: &Graph, stream: &Stream) -> Result<(), Report> {
    guard(|| graph.graph.launch(stream))
}
