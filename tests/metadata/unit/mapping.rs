//! Tests of `crates/ring/src/mapping.rs`, whose module they are.

use super::*;

#[test]
fn regions_are_disjoint_and_chunks_hold_what_they_are_given() {
    for (parties, slots, chunk_bytes) in [(1, 1, 1), (2, 3, 64), (16, 31, 100), (9, 40, 4096)] {
        let layout = RingLayout { parties, slots, chunk_bytes };
        assert!(layout.slots_at() + slots * LINE_BYTES <= layout.chunks());
        assert!(layout.chunk(slots - 1) + chunk_bytes <= layout.bytes());
        let mapping = RingMapping::create(layout).unwrap();
        mapping.board().begin(u32::MAX);
        for slot in 0..slots {
            // SAFETY: no other party has the ring.
            unsafe { mapping.fill(slot, &vec![slot as u8 + 1; chunk_bytes]) }.unwrap();
        }
        let mut all = Vec::new();
        for slot in 0..slots {
            // SAFETY: as above.
            unsafe { mapping.append(slot, chunk_bytes, &mut all) }.unwrap();
        }
        let expected: Vec<u8> = (0..slots).flat_map(|slot| vec![slot as u8 + 1; chunk_bytes]).collect();
        assert!(all == expected);
        for (slot, bytes) in [(slots, 0), (usize::MAX, 1), (0, chunk_bytes + 1), (slots - 1, usize::MAX)] {
            // SAFETY: as above.
            let error = unsafe { mapping.append(slot, bytes, &mut all) }.unwrap_err();
            assert!(matches!(error, Error::Internal { .. }), "{error}");
        }
        // SAFETY: as above.
        assert!(unsafe { mapping.fill(0, &vec![0; chunk_bytes + 1]) }.is_err());
        assert!(all == expected, "nothing was appended");
        assert_eq!(mapping.board().behind(0, u32::MAX), 0);
    }
}

#[test]
fn memory_of_another_size_or_without_seals_is_refused() {
    let layout = RingLayout { parties: 2, slots: 2, chunk_bytes: 64 };
    let mapping = RingMapping::create(layout).unwrap();
    let fd = || mapping.fd().try_clone_to_owned().unwrap();
    assert!(RingMapping::map(fd(), layout).is_ok());
    assert!(RingMapping::map(fd(), RingLayout { slots: 90, ..layout }).is_err());
    assert!(RingMapping::map(descriptor().unwrap(), layout).is_err());
    assert!(ftruncate(mapping.fd(), 0).is_err());
}
