//! Tests of `src/collective/transport.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_table_is_what_runs(world in 2usize..=16, bytes in 0u64..1 << 40, direct: bool) {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        for kind in [DeviceKind::Host, DeviceKind::Cuda] {
            let rows = ranges(kind, world, reach);
            prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
            let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
            prop_assert_eq!(row.transport, select(kind, world, reach, bytes));
            prop_assert!(direct || row.transport == Transport::Packets);
            let rows = broadcast_ranges(kind, world, reach);
            prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
            prop_assert!(rows.is_sorted_by(|row, next| row.up_to_bytes < next.up_to_bytes));
            let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
            prop_assert_eq!(row.transport, select_broadcast(kind, world, reach, bytes));
            let relayed = relayed_from_bytes(kind, world).is_some_and(|from_bytes| bytes >= from_bytes);
            prop_assert_eq!(row.reason.contains("sends it once"), relayed && row.transport == Transport::Packets);
        }
    }

    #[test]
    fn the_table_of_reductions_is_what_runs(
        world in 2usize..=16,
        bytes in 0u64..1 << 24,
        slot_bytes in 16u64..8 << 20,
        direct: bool,
    ) {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        for (kind, dtype) in [DeviceKind::Host, DeviceKind::Cuda].into_iter().flat_map(|kind| Dtype::ALL.map(|dtype| (kind, dtype))) {
            let rows = reduction_ranges(kind, world, reach, dtype, slot_bytes);
            prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
            prop_assert!(rows.is_sorted_by(|row, next| row.up_to_bytes < next.up_to_bytes));
            let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
            prop_assert_eq!(row.transport, select_reduction(kind, world, reach, dtype, bytes, slot_bytes));
            prop_assert_eq!(row.transport == Transport::Direct, direct && row.reason == "no copy through scratch");
            if row.transport == Transport::Packets {
                prop_assert_eq!(row.reason.contains("all data"), takes_sentinels(dtype, bytes));
            }
            // What is chosen takes one launch.
            let one_launch = !takes_sentinels(dtype, bytes) || bytes <= slot_bytes;
            prop_assert!(!direct || row.transport == Transport::Direct || one_launch);
        }
    }
}
