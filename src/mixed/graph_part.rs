//! A grid's part of a graph: each launch is ordered among the grid's calls, because they share a workspace.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::stream::{GraphPart, Recording, Stream, StreamOrder};

/// The calls of one grid in one graph.
struct RecordedGrid {
    order: Arc<Mutex<StreamOrder>>,
}

/// Orders launches of the captured graph after the last call of the grid, and later calls after the launches.
pub(super) fn record(order: &Arc<Mutex<StreamOrder>>, recording: &Recording) {
    // The graph keeps `order` alive, so no other grid can have the same address.
    recording.part(Arc::as_ptr(order) as u64, || RecordedGrid { order: order.clone() });
}

impl GraphPart for RecordedGrid {
    fn before_launch(&self, stream: &Stream) -> Result<()> {
        self.order.lock().order(stream)
    }

    fn after_launch(&self, stream: &Stream) -> Result<()> {
        self.order.lock().end_on(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}
