//! The choice of an exchange's transport: a pure table of device, world size, reach and bytes, so that every rank
//! chooses alike. `explain_exchange`, `explain_broadcast` and `explain_reduction` print the table.

use super::select::Reach;
use crate::device::DeviceKind;
use crate::types::{Dtype, Transport};

/// A range of sizes and the transport that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportRange {
    /// Largest exchange of the range: bytes that one rank sends one other.
    pub up_to_bytes: u64,
    /// The transport that serves the range.
    pub transport: Transport,
    /// Why this transport serves the range.
    pub reason: &'static str,
}

/// Largest exchange, in bytes from rank to rank, for which packets are faster than two barriers.
pub(super) const fn packets_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    const KIB: u64 = 1 << 10;
    match (kind, world) {
        (DeviceKind::Host, _) => 2 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 512 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => 256 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 128 * KIB,
    }
}

/// Smallest broadcast by packets that is relayed: there the root's link saves more time than the second hop costs.
/// `None` for two ranks, which have no second hop. On GPUs the hop costs as much as 128 KiB on that link, and relaying
/// spares the link the message `world - 2` times. Measured on 4 H200: equal at 64 KiB with the root changing from call
/// to call, faster from 32 KiB with a fixed root.
pub(super) const fn relayed_from_bytes(kind: DeviceKind, world: usize) -> Option<u64> {
    const KIB: u64 = 1 << 10;
    match (kind, world) {
        (_, 0..=2) => None,
        (DeviceKind::Host, _) => Some(4 * KIB),
        (DeviceKind::Cuda | DeviceKind::Hip, _) => Some(128 * KIB / (world as u64 - 2)),
    }
}

/// Largest broadcast for which packets are faster than two barriers.
const fn broadcast_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    match (kind, world) {
        (DeviceKind::Host, _) | (_, 0..=2) => packets_up_to_bytes(kind, world),
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 1 << 20,
    }
}

/// Whether packets of a reduction are sentinel packets, which are all data. Small strips are faster in LL packets, which
/// nobody clears.
pub(super) const fn takes_sentinels(dtype: Dtype, bytes: u64) -> bool {
    dtype.is_float() && bytes > REDUCED_BY_LL_UP_TO_BYTES
}

/// Largest strip of a floating type that is reduced by LL packets.
const REDUCED_BY_LL_UP_TO_BYTES: u64 = 2 << 10;

/// Largest reduction, in bytes from rank to rank, for which packets are faster than two barriers. Those in sentinel packets
/// take one launch, of strips that fit a slot.
const fn reduced_up_to_bytes(kind: DeviceKind, world: usize, dtype: Dtype, slot_bytes: u64) -> u64 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if !dtype.is_float() {
        return packets_up_to_bytes(kind, world);
    }
    let most = match (kind, world) {
        (DeviceKind::Host, _) => 4 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 4 * MIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => MIB,
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 256 * KIB,
    };
    let fitting = if slot_bytes < most { slot_bytes } else { most };
    if fitting > REDUCED_BY_LL_UP_TO_BYTES { fitting } else { REDUCED_BY_LL_UP_TO_BYTES }
}

/// The rows for reduce-scatters and reduces of a type, smallest first. Ends with `u64::MAX`.
pub(super) fn reduction_ranges(
    kind: DeviceKind,
    world: usize,
    reach: Reach,
    dtype: Dtype,
    slot_bytes: u64,
) -> Vec<TransportRange> {
    if !dtype.is_float() {
        return ranges(kind, world, reach);
    }
    let row = |up_to_bytes, transport, reason| TransportRange { up_to_bytes, transport, reason };
    let all_data = "no barrier, and packets that are all data";
    let small = row(REDUCED_BY_LL_UP_TO_BYTES, Transport::Packets, "no barrier, and packets that nobody clears");
    match reach {
        Reach::Pushed => vec![small, row(u64::MAX, Transport::Packets, all_data)],
        Reach::Direct => {
            let up_to_bytes = reduced_up_to_bytes(kind, world, dtype, slot_bytes);
            let large = row(u64::MAX, Transport::Direct, "no copy through scratch");
            let medium = row(up_to_bytes, Transport::Packets, all_data);
            let all = [small, medium, large];
            all.into_iter().filter(|row| *row == small || row.up_to_bytes > REDUCED_BY_LL_UP_TO_BYTES).collect()
        }
    }
}

/// The transport of one reduction. Allocates nothing.
pub(super) const fn select_reduction(
    kind: DeviceKind,
    world: usize,
    reach: Reach,
    dtype: Dtype,
    bytes: u64,
    slot_bytes: u64,
) -> Transport {
    match reach {
        Reach::Direct if bytes > reduced_up_to_bytes(kind, world, dtype, slot_bytes) => Transport::Direct,
        _ => Transport::Packets,
    }
}

/// The rows for one kind of exchange, smallest first. Ends with `u64::MAX`.
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

/// The rows for broadcasts, smallest first. Ends with `u64::MAX`.
pub(super) fn broadcast_ranges(kind: DeviceKind, world: usize, reach: Reach) -> Vec<TransportRange> {
    let row = |up_to_bytes, transport, reason| TransportRange { up_to_bytes, transport, reason };
    let packets_up_to_bytes = match reach {
        Reach::Pushed => u64::MAX,
        Reach::Direct => broadcast_up_to_bytes(kind, world),
    };
    let one_hop_up_to_bytes = match relayed_from_bytes(kind, world) {
        Some(relayed_from_bytes) => packets_up_to_bytes.min(relayed_from_bytes - 1),
        None => packets_up_to_bytes,
    };
    let mut rows = vec![row(one_hop_up_to_bytes, Transport::Packets, "no barrier, and one hop")];
    if one_hop_up_to_bytes < packets_up_to_bytes {
        rows.push(row(packets_up_to_bytes, Transport::Packets, "no barrier, and the root sends it once"));
    }
    if packets_up_to_bytes < u64::MAX {
        rows.push(row(u64::MAX, Transport::Direct, "no copy through scratch"));
    }
    rows
}

/// The transport of one broadcast. Allocates nothing.
pub(super) const fn select_broadcast(kind: DeviceKind, world: usize, reach: Reach, bytes: u64) -> Transport {
    match reach {
        Reach::Direct if bytes > broadcast_up_to_bytes(kind, world) => Transport::Direct,
        _ => Transport::Packets,
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
#[path = "../../tests/unit/collective/transport.rs"]
mod tests;
