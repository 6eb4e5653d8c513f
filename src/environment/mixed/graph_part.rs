//! A grid's part of a graph: each launch takes its place in the order of the grid's calls, which share a workspace.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::stream::{Order, Part, Recording, Stream};

/// The calls of one grid in one graph.
struct Recorded {
    order: Arc<Mutex<Order>>,
}

/// Makes launches of the graph that is being captured wait for the last call of a grid, and later calls for them.
pub(super) fn record(order: &Arc<Mutex<Order>>, recording: &Recording) {
    // The graph keeps the order, so no other grid has its address.
    recording.part(Arc::as_ptr(order) as u64, || Recorded { order: order.clone() });
}

impl Part for Recorded {
    fn before_launch(&self, stream: &Stream) -> Result<()> {
        self.order.lock().order(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}
