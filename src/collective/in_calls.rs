//! Exchanges by packets that take a launch for each part of their chunks. A broadcast takes two hops: the root sends each
//! rank a share of the message, and each rank forwards its share to the others. So the root's link carries the message
//! once, and not once for each rank. A reduction of a floating type uses sentinel packets, like a one-shot all-reduce.
//! Other large exchanges use escaped packets, which are sentinel packets for any bits.

use std::ops::Range;

use super::Inner;
use super::call_order::Lane;
use super::exchange::{Counts, Exchange, Way, algorithm};
use super::graph_part::Recorded;
use super::reach::Peers;
use super::select::Reach;
use crate::error::Result;
use crate::op::{Strip, Strips};
use crate::stream::Target;
use crate::types::Transport;

impl Inner {
    /// How the bytes of an exchange in several launches move, and the bytes that a launch moves from rank to rank; `None` if
    /// one launch suffices. Depends only on facts that all ranks know.
    pub(super) fn in_calls(&self, exchange: &Exchange<'_>, transport: Transport) -> Option<(Way, u64)> {
        let Counts::Known { largest_bytes, .. } = &exchange.counts else { return None };
        let (bytes, place) = (*largest_bytes, self.place(Reach::Pushed));
        // A part of a chunk of several rows might not consist of whole rows.
        let cut = exchange.strips.rows.row_bytes == 0 || bytes <= place.slot_bytes;
        match exchange.way() {
            _ if transport != Transport::Packets => None,
            Way::Relay if place.relays(bytes) => {
                // A launch fills all slots of the scratch.
                let slots = self.arena.layout().one_shot_ll.slot_packets * self.group.world_size() as u64;
                Some((Way::RelayPackets, slots * 8))
            }
            Way::Reduce if place.takes_sentinels(exchange.call.dtype, bytes) => {
                cut.then_some((Way::ReduceSentinels, place.slot_bytes))
            }
            Way::Push | Way::Relay if place.takes_escapes(bytes) => cut.then_some((Way::PushEscaped, place.slot_bytes)),
            _ => None,
        }
    }

    /// Enqueues an exchange by packets in several launches.
    pub(super) fn exchange_in_calls(
        &self,
        exchange: &Exchange<'_>,
        (way, call_bytes): (Way, u64),
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let bytes = exchange.largest_bytes();
        let noted = exchange.noted(algorithm(Transport::Packets, way)).at(self.place_to_check(exchange));
        let mut start = 0;
        while start < bytes {
            let part = exchange.part(start..bytes.min(start + call_bytes));
            let fresh = self.announce(noted, lane, queue, recorded)?;
            self.launch_exchange(&part, way, Transport::Packets, &Peers::NONE, fresh, queue)?;
            start += call_bytes;
        }
        Ok(())
    }
}

impl Exchange<'_> {
    /// The given range of bytes of all chunks, which are equally long.
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
