//! How an exchange moves its data: a pure table of device, world, reach and bytes, so that every
//! rank picks alike. `explain_exchange` prints it.

use super::select::Reach;
use crate::device::DeviceKind;
use crate::types::Transport;

/// One range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportRange {
    /// Largest exchange of the range: bytes that one rank sends one other.
    pub up_to_bytes: u64,
    /// What serves it.
    pub transport: Transport,
    /// Why.
    pub reason: &'static str,
}

/// Up to how many bytes from rank to rank packets are faster than two barriers.
pub(super) const fn packets_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    const KIB: u64 = 1 << 10;
    match (kind, world) {
        (DeviceKind::Host, _) => 2 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 0..=4) => 256 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 128 * KIB,
    }
}

/// The rows for one kind of call, smallest first. Ends with `u64::MAX`.
pub(super) fn ranges(kind: DeviceKind, world: usize, reach: Reach) -> Vec<TransportRange> {
    let row = |up_to_bytes, transport, reason| TransportRange { up_to_bytes, transport, reason };
    match reach {
        Reach::Pushed => {
            vec![row(u64::MAX, Transport::Packets, "peers cannot address the memory, so data go through scratch")]
        }
        Reach::Direct => vec![
            row(packets_up_to_bytes(kind, world), Transport::Packets, "no barrier"),
            row(u64::MAX, Transport::Direct, "no copy through scratch"),
        ],
    }
}

/// The transport of one exchange. Allocates nothing.
pub(super) const fn select(kind: DeviceKind, world: usize, reach: Reach, bytes: u64) -> Transport {
    match reach {
        Reach::Direct if bytes > packets_up_to_bytes(kind, world) => Transport::Direct,
        _ => Transport::Packets,
    }
}

#[cfg(test)]
mod tests {
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
            }
        }
    }
}
