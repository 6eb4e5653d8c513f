//! Tests of `src/collective/transport.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

/// The row that serves `bytes` bytes; rows ascend, and the last row covers every larger size.
fn row(rows: &[Range<Transport>], bytes: u64) -> Range<Transport> {
    assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
    assert!(rows.is_sorted_by(|row, next| row.up_to_bytes < next.up_to_bytes), "{rows:?}");
    *rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap()
}

proptest! {
    #[test]
    fn the_table_is_what_runs(
        world in 2usize..=16,
        (bytes, huge) in (0u64..1 << 24, 0u32..16),
        slot_bytes in 2048u64..8 << 20,
        direct: bool,
    ) {
        let bytes = bytes << huge;
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        for kind in [DeviceKind::Host, DeviceKind::Cuda] {
            let place = TransportFacts { kind, world, reach, slot_bytes };
            let few = |bytes| bytes <= MOST_LAUNCHES * slot_bytes;
            let any = row(&place.ranges(), bytes);
            prop_assert_eq!(any.choice, place.select(bytes));
            prop_assert!(direct || any.choice == Transport::Packets);
            let packets = any.choice == Transport::Packets;
            prop_assert_eq!(packets && any.reason.contains("data"), packets && place.takes_escapes(bytes));
            prop_assert!(!direct || !packets || !place.takes_escapes(bytes) || few(bytes));

            let broadcast = row(&place.broadcast_ranges(), bytes);
            prop_assert_eq!(broadcast.choice, place.select_broadcast(bytes));
            let relayed = place.relays(bytes);
            let packets = broadcast.choice == Transport::Packets;
            prop_assert_eq!(broadcast.reason.contains("sends it once"), relayed && packets);

            for dtype in Dtype::ALL {
                let reduction = row(&place.reduction_ranges(dtype), bytes);
                prop_assert_eq!(reduction.choice, place.select_reduction(dtype, bytes));
                let packets = reduction.choice == Transport::Packets;
                prop_assert!(direct || packets);
                let sentinels = place.takes_sentinels(dtype, bytes);
                prop_assert!(bytes == 0 || (packets && reduction.reason.contains("all data")) == (packets && sentinels));
                prop_assert!(!direct || !packets || !place.takes_sentinels(dtype, bytes) || few(bytes));
            }
        }
    }
}
