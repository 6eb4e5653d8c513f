//! The communicator that a graph of a stream's owner holds.

use std::sync::Arc;

use crate::collective::Inner;
use crate::stream::Kept;

/// A communicator whose memory a graph may use.
struct HeldCommunicator(Arc<Inner>);

/// A value that keeps the communicator and its memory for a graph.
pub(super) fn held(inner: &Arc<Inner>) -> Kept {
    inner.arena.add_graph();
    Arc::new(HeldCommunicator(inner.clone()))
}

impl Drop for HeldCommunicator {
    fn drop(&mut self) {
        self.0.arena.remove_graph();
    }
}
