//! The metadata that a capture records in addition to the work itself, and the values that a graph owns.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Event, Stream};
use crate::error::Result;

/// A communicator's part of a graph. It is called before every launch, and lives as long as the graph or a launch of
/// it.
pub(crate) trait GraphPart: Any + Send + Sync {
    /// Called when the capture ends: enqueues the remaining work, and joins work recorded on other streams to the
    /// captured stream.
    fn end(&self, _recording: &Recording) -> Result<()> {
        Ok(())
    }
    /// Called instead of all other methods if the capture has failed: no graph is created.
    fn abandon(&self) {}
    /// Refuses a launch by this thread, before any part takes a lock.
    fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Runs `launch` while keeping the memory that the graph uses alive. Refuses if the graph may not be launched now.
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        launch()
    }
    /// Orders the launch on `stream` after other work. No part refuses after this: the recorded calls will run.
    fn before_launch(&self, stream: &Stream) -> Result<()>;
    /// Called after a launch was enqueued on `stream`.
    fn after_launch(&self, _stream: &Stream) -> Result<()> {
        Ok(())
    }
    /// Exchanges pointers that were captured for the first time. Collective.
    fn register(&self) -> Result<()>;
}

/// A value of the program that a graph owns.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// The parts of a graph, each with the number of its group.
pub(super) type GraphParts = Vec<(u64, Arc<dyn GraphPart>)>;

/// The metadata that a capture records in addition to the work itself.
pub struct Recording {
    id: u64,
    stream: Stream,
    parts: Mutex<GraphParts>,
    kept: Mutex<Vec<Kept>>,
}

impl Recording {
    pub(super) fn new(id: u64, stream: Stream) -> Self {
        Self { id, stream, parts: Mutex::default(), kept: Mutex::default() }
    }

    /// Ends every part. A part that enqueues more work may request other parts meanwhile, all of which exist already.
    pub(super) fn end(&self) -> Result<()> {
        let parts = self.parts.lock().clone();
        parts.iter().try_for_each(|(_, part)| part.end(self))
    }

    /// The contents of the graph. Parts are in the order in which this rank opened their groups. All ranks that share
    /// two groups opened them in the same order; the order of first uses can differ, because a rank without a message
    /// captures no call of pairs.
    pub(super) fn into_parts(self) -> (GraphParts, Vec<Kept>) {
        let mut parts = std::mem::take(&mut *self.parts.lock());
        parts.sort_by_key(|(group, _)| *group);
        (parts, std::mem::take(&mut self.kept.lock()))
    }

    /// Records that the captured stream waits for `event`.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        self.stream.enqueue_captured("wait for an event", |raw| raw.wait(&event.raw))
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn keep(&self, kept: Kept) {
        self.kept.lock().push(kept);
    }

    /// The part of type `P` of the group with this id. `make` creates it on first use.
    pub(crate) fn part<P: GraphPart>(&self, id: u64, make: impl FnOnce() -> P) -> Arc<P> {
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

impl Drop for Recording {
    /// Abandons the parts of which no graph was made, also if the closure of the capture panics.
    fn drop(&mut self) {
        abandon(&self.parts.get_mut().split_off(0));
    }
}

/// Notifies parts that the capture has failed.
pub(super) fn abandon(parts: &GraphParts) {
    parts.iter().for_each(|(_, part)| part.abandon());
}
