//! A heap block. It is owned by its buffer and by every object through which other ranks may still write to it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::heap::{BlockId, Heap};
use crate::device::Allocation;

/// A share of a block. When this rank's last share is dropped, the rank releases the block.
///
/// The block keeps the memory alive, not the arena: two arenas that hold each other's blocks would never be dropped.
pub(super) struct BlockShare {
    heap: Arc<Mutex<Heap>>,
    id: BlockId,
    memory: Arc<Allocation>,
}

impl BlockShare {
    pub(super) fn new(heap: &Arc<Mutex<Heap>>, id: BlockId, memory: &Arc<Allocation>) -> Self {
        Self { heap: heap.clone(), id, memory: memory.clone() }
    }
}

impl Drop for BlockShare {
    fn drop(&mut self) {
        if !self.memory.is_here() {
            return;
        }
        self.heap.lock().drop_block(self.id);
    }
}
