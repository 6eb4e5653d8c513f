//! Tests of `src/memory/heap.rs`, whose module they are.

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
