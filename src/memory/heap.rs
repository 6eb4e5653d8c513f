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
    /// Blocks that this rank has dropped and some rank perhaps has not.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REGION: Region = Region { offset: 4096, bytes: 64 * ALIGN };

    #[test]
    fn says_how_much_is_free() {
        let mut heap = Heap::new(REGION);
        let (first, _) = heap.allocate(40 * ALIGN).unwrap();
        assert_eq!(heap.allocate(25 * ALIGN), Err(24 * ALIGN));
        heap.drop_block(first);
        assert_eq!(heap.allocate(25 * ALIGN), Err(24 * ALIGN), "dropped here is not dropped everywhere");
        heap.reclaim(&heap.dropped().clone());
        assert!(heap.allocate(40 * ALIGN).is_ok());
        assert_eq!(heap.allocate(u64::MAX), Err(0));
    }

    proptest! {
        #[test]
        fn blocks_never_overlap(steps in prop::collection::vec((1u64..20 * ALIGN, any::<bool>()), 1..60)) {
            let mut heap = Heap::new(REGION);
            let mut live: Vec<(BlockId, Region)> = Vec::new();
            for (bytes, free) in steps {
                if free && !live.is_empty() {
                    let (id, _) = live.remove(bytes as usize % live.len());
                    heap.drop_block(id);
                    heap.reclaim(&[id].into());
                } else if let Ok(block) = heap.allocate(bytes) {
                    prop_assert!(block.1.bytes >= bytes && block.1.offset >= REGION.offset);
                    prop_assert!(block.1.offset + block.1.bytes <= REGION.offset + REGION.bytes);
                    for (_, other) in &live {
                        let apart = block.1.offset + block.1.bytes <= other.offset
                            || other.offset + other.bytes <= block.1.offset;
                        prop_assert!(apart);
                    }
                    live.push(block);
                }
            }
        }
    }
}
