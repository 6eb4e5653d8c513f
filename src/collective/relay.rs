//! A broadcast by packets in two hops: the root sends each rank a share of the message, and each rank passes its share
//! on to the others. The root's link carries the message once instead of once a rank.

use std::ops::Range;

use super::Inner;
use super::call_order::Lane;
use super::exchange::{Counts, Exchange, Way};
use super::graph_part::Recorded;
use super::reach::Peers;
use super::transport::relayed_from_bytes;
use crate::error::Result;
use crate::kernel::args;
use crate::op::{Strip, Strips};
use crate::stream::Enqueue;
use crate::types::Transport;

impl Inner {
    /// Whether an exchange is a broadcast that gains from two hops. Depends on what all ranks know.
    pub(super) fn relays(&self, exchange: &Exchange<'_>, transport: Transport) -> bool {
        let Counts::Known { largest_bytes, shared: Some(shared) } = &exchange.counts else { return false };
        let (kind, world) = (self.group.device().kind(), self.group.world_size());
        let from_bytes = relayed_from_bytes(kind, world);
        let relays = matches!(shared.way, Way::Relay) && transport == Transport::Packets;
        relays && from_bytes.is_some_and(|from_bytes| *largest_bytes >= from_bytes)
    }

    /// Enqueues a broadcast by packets, in as many launches as its size needs. A launch carries what all slots of the
    /// scratch hold together.
    pub(super) fn relay(
        &self,
        exchange: &Exchange<'_>,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let call_bytes = self.arena.layout().one_shot_ll.slot_packets * 8 * self.group.world_size() as u64;
        let bytes = exchange.largest_bytes();
        let noted = exchange.noted(args::kRelayPackets);
        let mut start = 0;
        while start < bytes {
            let part = exchange.part(start..bytes.min(start + call_bytes));
            let fresh = self.announce(noted, lane, queue, recorded)?;
            self.launch_exchange(&part, Way::RelayPackets, Transport::Packets, Peers::NONE, fresh, queue)?;
            start += call_bytes;
        }
        Ok(())
    }
}

impl Exchange<'_> {
    /// The strips of this range of bytes. All strips are equally long.
    fn part(&self, bytes: Range<u64>) -> Self {
        let part_bytes = bytes.end - bytes.start;
        let cut = |strip: Strip| match strip.bytes {
            0 => strip,
            _ => Strip { address: strip.address.wrapping_byte_add(bytes.start as usize), bytes: part_bytes },
        };
        let counts = match self.counts {
            Counts::Known { shared, .. } => Counts::Known { largest_bytes: part_bytes, shared },
            own @ Counts::Own { .. } => own,
        };
        let Strips { from, into, rows } = self.strips;
        self.with(Strips { from: from.map(cut), into: into.map(cut), rows }, counts)
    }
}
