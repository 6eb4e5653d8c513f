//! The choice of an exchange's transport: a pure table of device, world size, reach, bytes and the size of a slot, so that
//! all ranks choose equally. `explain_exchange`, `explain_broadcast` and `explain_reduction` print the table.

use super::select::Reach;
use crate::choice::{Range, Ranges};
use crate::device::DeviceKind;
use crate::group::Config;
use crate::memory::escaped_room;
use crate::types::{Dtype, Transport};

/// The facts, other than the size of an exchange, that decide its transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransportFacts {
    kind: DeviceKind,
    world: usize,
    reach: Reach,
    /// The bytes of a chunk that one launch moves in sentinel or escaped packets.
    pub(super) slot_bytes: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Why packets serve small exchanges.
const NO_BARRIER: &str = "no barrier";

/// Most launches in which packets are faster than two barriers.
const MOST_LAUNCHES: u64 = 2;

/// Largest exchange, in bytes from rank to rank, for which LL packets are faster than two barriers. For exchanges whose sizes
/// ranks exchange on the device, and for reductions of integers.
pub(super) const fn packets_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    match (kind, world) {
        (DeviceKind::Host, _) => 2 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 512 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => 256 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 128 * KIB,
    }
}

/// Largest chunk that is sent as LL packets although escaped packets could carry it. LL packets need no additional words and
/// no clearing, but only half of their bytes are data. Measured on 2 H100; for more ranks an estimate, from the bytes that
/// cross the link of a rank.
const fn ll_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    match (kind, world) {
        (DeviceKind::Host, _) => 2 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 64 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => 32 * KIB,
        (DeviceKind::Cuda | DeviceKind::Hip, _) => 16 * KIB,
    }
}

/// Largest chunk of a floating type that is reduced with LL packets, which need no clearing. On GPUs sentinel packets are
/// never slower.
const fn reduced_by_ll_up_to_bytes(kind: DeviceKind) -> u64 {
    match kind {
        DeviceKind::Host => 2 * KIB,
        DeviceKind::Cuda | DeviceKind::Hip => 0,
    }
}

/// Smallest broadcast by packets that is relayed. From this size on, relaying saves more time on the root's link than the
/// second hop costs. `None` for two ranks, which have no second hop. On GPUs the hop costs as much as 128 KiB on that link,
/// and relaying removes the message `world - 2` times from the link. Measured on 4 H200: equal at 64 KiB with a root that
/// changes from call to call, faster from 32 KiB with a fixed root.
const fn relayed_from_bytes(kind: DeviceKind, world: usize) -> Option<u64> {
    match (kind, world) {
        (_, 0..=2) => None,
        (DeviceKind::Host, _) => Some(4 * KIB),
        (DeviceKind::Cuda | DeviceKind::Hip, _) => Some(128 * KIB / (world as u64 - 2)),
    }
}

impl TransportFacts {
    pub(super) fn new(kind: DeviceKind, world: usize, reach: Reach, config: &Config) -> Self {
        Self { kind, world, reach, slot_bytes: escaped_room(config.one_shot_sentinel_bytes_for(world)) }
    }

    /// Whether an exchange without a reduction uses escaped packets.
    pub(super) const fn takes_escapes(self, bytes: u64) -> bool {
        bytes > ll_up_to_bytes(self.kind, self.world)
    }

    /// Whether a reduction uses sentinel packets.
    pub(super) const fn takes_sentinels(self, dtype: Dtype, bytes: u64) -> bool {
        dtype.is_float() && bytes > reduced_by_ll_up_to_bytes(self.kind)
    }

    /// Whether packets of a broadcast are relayed.
    pub(super) fn relays(self, bytes: u64) -> bool {
        relayed_from_bytes(self.kind, self.world).is_some_and(|from_bytes| bytes >= from_bytes)
    }

    /// Largest exchange for which packets are faster than two barriers. Measured on 2 H100; for more ranks an estimate.
    pub(super) const fn pushed_up_to_bytes(self) -> u64 {
        let most = match (self.kind, self.world) {
            (DeviceKind::Host, _) => 2 * KIB,
            (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 4 * MIB,
            (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => MIB,
            (DeviceKind::Cuda | DeviceKind::Hip, _) => 256 * KIB,
        };
        self.in_few_launches(most, ll_up_to_bytes(self.kind, self.world))
    }

    /// Largest broadcast for which packets are faster than two barriers.
    const fn broadcast_up_to_bytes(self) -> u64 {
        match (self.kind, self.world) {
            (DeviceKind::Host, _) | (_, 0..=2) => self.pushed_up_to_bytes(),
            (DeviceKind::Cuda | DeviceKind::Hip, _) => MIB,
        }
    }

    /// Largest reduction for which packets are faster than two barriers. Measured on 2 H100; for more ranks an estimate.
    const fn reduced_up_to_bytes(self, dtype: Dtype) -> u64 {
        if !dtype.is_float() {
            return packets_up_to_bytes(self.kind, self.world);
        }
        let most = match (self.kind, self.world) {
            (DeviceKind::Host, _) => 4 * KIB,
            (DeviceKind::Cuda | DeviceKind::Hip, 0..=2) => 8 * MIB,
            (DeviceKind::Cuda | DeviceKind::Hip, 3..=4) => MIB,
            (DeviceKind::Cuda | DeviceKind::Hip, _) => 256 * KIB,
        };
        self.in_few_launches(most, reduced_by_ll_up_to_bytes(self.kind))
    }

    /// `most` bytes, but at most the bytes of [`MOST_LAUNCHES`] launches and at least the limit of LL packets.
    const fn in_few_launches(self, most: u64, by_ll: u64) -> u64 {
        let few = self.slot_bytes.saturating_mul(MOST_LAUNCHES);
        let fitting = if few < most { few } else { most };
        if fitting > by_ll { fitting } else { by_ll }
    }

    /// The transport of one exchange. Allocates nothing.
    pub(super) const fn select(self, bytes: u64) -> Transport {
        self.direct_above(self.pushed_up_to_bytes(), bytes)
    }

    /// The transport of one broadcast. Allocates nothing.
    pub(super) const fn select_broadcast(self, bytes: u64) -> Transport {
        self.direct_above(self.broadcast_up_to_bytes(), bytes)
    }

    /// The transport of one reduction. Allocates nothing.
    pub(super) const fn select_reduction(self, dtype: Dtype, bytes: u64) -> Transport {
        self.direct_above(self.reduced_up_to_bytes(dtype), bytes)
    }

    const fn direct_above(self, up_to_bytes: u64, bytes: u64) -> Transport {
        match self.reach {
            Reach::Direct if bytes > up_to_bytes => Transport::Direct,
            _ => Transport::Packets,
        }
    }

    /// The rows for one kind of exchange, smallest first. Ends with `u64::MAX`.
    pub(super) fn ranges(self) -> Ranges<Transport> {
        let nearly = "no barrier, and packets that are nearly all data";
        self.by_packets(&[(ll_up_to_bytes(self.kind, self.world), NO_BARRIER), (self.pushed_up_to_bytes(), nearly)])
    }

    /// The rows for broadcasts, smallest first. Ends with `u64::MAX`.
    pub(super) fn broadcast_ranges(self) -> Ranges<Transport> {
        let up_to_bytes = self.broadcast_up_to_bytes();
        let one_hop = "no barrier, and one hop";
        match relayed_from_bytes(self.kind, self.world) {
            None => self.by_packets(&[(up_to_bytes, one_hop)]),
            Some(from) => {
                self.by_packets(&[(from - 1, one_hop), (up_to_bytes, "no barrier, and the root sends it once")])
            }
        }
    }

    /// The rows for reduce-scatters and reduces of a type, smallest first. Ends with `u64::MAX`.
    pub(super) fn reduction_ranges(self, dtype: Dtype) -> Ranges<Transport> {
        let all_data = "no barrier, and packets that are all data";
        let by_ll = if dtype.is_float() { reduced_by_ll_up_to_bytes(self.kind) } else { u64::MAX };
        self.by_packets(&[(by_ll, NO_BARRIER), (self.reduced_up_to_bytes(dtype), all_data)])
    }

    /// Rows of packets, followed by direct access above the limit of the last row if peers can address the operand. Else the
    /// last row serves all larger sizes.
    fn by_packets(self, rows: &[(u64, &'static str)]) -> Ranges<Transport> {
        let last = rows.last().map_or(0, |(up_to_bytes, _)| *up_to_bytes);
        let end = if self.reach == Reach::Direct { last } else { u64::MAX };
        let packets = rows.iter().enumerate().map(|(number, (up_to_bytes, reason))| {
            let up_to_bytes = if number + 1 == rows.len() { end } else { end.min(*up_to_bytes) };
            Range::new(up_to_bytes, Transport::Packets, reason)
        });
        let direct = Range::new(u64::MAX, Transport::Direct, "no copy through scratch");
        Ranges::new(packets.chain([direct]))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/transport.rs"]
mod tests;
