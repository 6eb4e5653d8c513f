//! The first-fit allocator of symmetric buffers. It is deterministic, so ranks that make the same calls get equal
//! offsets. A block is free only after all ranks have dropped it.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{ALIGN, Region};

/// Number of an allocation, equal on every rank.
pub(crate) type BlockId = u64;

/// The free and allocated blocks of a region.
#[derive(Debug)]
pub(crate) struct Heap {
    region: Region,
    /// Size and number of each allocated block, by offset.
    taken: BTreeMap<u64, (u64, BlockId)>,
    next_id: BlockId,
    /// Blocks that this rank has dropped but some rank may not have dropped.
    dropped: BTreeSet<BlockId>,
}

impl Heap {
    pub(crate) fn new(region: Region) -> Self {
        Self { region, taken: BTreeMap::new(), next_id: 0, dropped: BTreeSet::new() }
    }

    /// Allocates `bytes` in the lowest gap that is large enough. On failure returns the size of the largest gap.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<(BlockId, Region), u64> {
        let bytes = bytes.checked_next_multiple_of(ALIGN).ok_or(0u64)?;
        let (mut start, mut largest) = (self.region.offset, 0);
        let end = self.region.offset + self.region.bytes;
        let limits = self.taken.iter().map(|(offset, (bytes, _))| (*offset, offset + bytes)).chain([(end, end)]);
        for (limit, next) in limits {
            let gap = limit.saturating_sub(start);
            if gap >= bytes {
                let id = self.next_id;
                self.next_id += 1;
                self.taken.insert(start, (bytes, id));
                return Ok((id, Region { offset: start, bytes }));
            }
            largest = largest.max(gap);
            start = next;
        }
        Err(largest)
    }

    pub(crate) fn drop_block(&mut self, id: BlockId) {
        self.dropped.insert(id);
    }

    /// All blocks that this rank has dropped and that are not yet freed.
    pub(crate) fn dropped(&self) -> &BTreeSet<BlockId> {
        &self.dropped
    }

    pub(crate) fn reclaim(&mut self, everywhere: &BTreeSet<BlockId>) {
        self.taken.retain(|_, (_, id)| !everywhere.contains(id));
        self.dropped.retain(|id| !everywhere.contains(id));
    }
}

#[cfg(test)]
#[path = "../../tests/unit/memory/heap.rs"]
mod tests;
