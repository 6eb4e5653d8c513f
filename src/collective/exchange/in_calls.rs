//! Exchanges by packets that take a launch for each part of their chunks. A broadcast takes two hops: the root sends each
//! rank a share of the message, and each rank forwards its share to the others. So the root's link carries the message
//! once, and not once for each rank. A reduction of a floating type uses sentinel packets, like a one-shot all-reduce.
//! Other large exchanges use escaped packets, which are sentinel packets for any bits.

use std::ops::Range;

use super::{Counts, Exchange, ExchangeWay, algorithm, place};
use crate::collective::reach::Peers;
use crate::collective::select::Reach;
use crate::collective::turn::Turn;
use crate::error::Result;
use crate::memory::Arena;
use crate::op::{Strip, Strips};
use crate::types::Transport;

/// An exchange in several launches.
pub(super) struct InCalls<'a> {
    exchange: &'a Exchange<'a>,
    way: ExchangeWay,
    /// The bytes that a launch moves from rank to rank.
    call_bytes: u64,
}

impl<'a> InCalls<'a> {
    /// `None` if one launch suffices. Depends only on facts that all ranks know.
    pub(super) fn of(exchange: &'a Exchange<'a>, transport: Transport, arena: &Arena) -> Option<Self> {
        let Counts::Known { largest_bytes: bytes, .. } = exchange.counts else { return None };
        let place = place(arena.group(), Reach::Pushed);
        // A part of a chunk of several rows might not consist of whole rows.
        let cut = exchange.strips.rows.row_bytes == 0 || bytes <= place.slot_bytes;
        let calls = |way, call_bytes| Self { exchange, way, call_bytes };
        match exchange.way() {
            _ if transport != Transport::Packets => None,
            ExchangeWay::Relay if place.relays(bytes) => {
                // A launch fills all slots of the scratch.
                let slots = arena.layout().one_shot_ll.slot_packets * arena.group().world_size() as u64;
                Some(calls(ExchangeWay::RelayPackets, slots * 8))
            }
            ExchangeWay::Reduce if place.takes_sentinels(exchange.call.dtype, bytes) => {
                cut.then(|| calls(ExchangeWay::ReduceSentinels, place.slot_bytes))
            }
            ExchangeWay::Push | ExchangeWay::Relay if place.takes_escapes(bytes) => {
                cut.then(|| calls(ExchangeWay::PushEscaped, place.slot_bytes))
            }
            _ => None,
        }
    }

    /// Enqueues the launches.
    pub(super) fn enqueue(&self, turn: &mut Turn<'_>) -> Result<()> {
        let Self { exchange, way, call_bytes } = *self;
        let bytes = exchange.largest_bytes();
        let noted = exchange.noted(algorithm(Transport::Packets, way)).at(exchange.place_to_check(turn.inner));
        let mut start = 0;
        while start < bytes {
            let part = exchange.part(start..bytes.min(start + call_bytes));
            let announced = turn.announce_part(noted, part.largest_bytes())?;
            part.launch(way, Transport::Packets, &Peers::NONE, announced, turn)?;
            start += call_bytes;
        }
        Ok(())
    }
}

impl Exchange<'_> {
    /// The given range of bytes of all chunks. A shorter chunk has fewer bytes there, or none.
    fn part(&self, bytes: Range<u64>) -> Self {
        let part_bytes = bytes.end - bytes.start;
        let cut = |strip: Strip| {
            let start = bytes.start.min(strip.bytes);
            let address = strip.address.wrapping_byte_add(start as usize);
            Strip { address, bytes: strip.bytes.min(bytes.end) - start }
        };
        let counts = match self.counts {
            Counts::Known { shared, .. } => Counts::Known { largest_bytes: part_bytes, shared },
            own @ Counts::Own { .. } => own,
        };
        let Strips { from, into, rows } = &self.strips;
        self.with(Strips { from: from.cut(cut), into: into.cut(cut), rows: *rows }, counts)
    }
}
