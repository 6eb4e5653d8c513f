//! A block of the heap, which all own together that may still have something written to it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::heap::{BlockId, Heap};
use crate::device::Memory;

/// Given up by this rank with its last owner: its buffer, and ranks that reach it as plain memory.
///
/// It keeps the memory and not the arena. Two arenas may hold blocks of each other: neither would be dropped.
pub(super) struct Block {
    heap: Arc<Mutex<Heap>>,
    id: BlockId,
    _memory: Arc<Memory>,
}

impl Block {
    pub(super) fn new(heap: &Arc<Mutex<Heap>>, id: BlockId, memory: &Arc<Memory>) -> Self {
        Self { heap: heap.clone(), id, _memory: memory.clone() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.lock().drop_block(self.id);
    }
}
