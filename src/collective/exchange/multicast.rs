//! Exchanges by multicast.
#![allow(unsafe_code)]

use super::{Exchange, ExchangeWay};
use crate::collective::limits_of;
use crate::collective::multicast::{allowance, call_args, check_open, offset_of, outside, unable};
use crate::collective::turn::Turn;
use crate::error::{Error, Result};
use crate::kernel::{PACKET_BYTES, args, geometry};
use crate::memory::Arena;
use crate::op::{Algorithm, InPlace, Op, Strip, Strips};
use crate::types::WAY_MULTICAST;

/// Most bytes of one launch.
const MOST_CALL_BYTES: u64 = 1 << 33;

/// An exchange by multicast: an all-gather, a reduce-scatter, or a broadcast.
pub(super) struct MulticastExchange<'a> {
    exchange: &'a Exchange<'a>,
    /// The task of the kernel.
    task: u32,
    /// The part of this rank.
    own: Strip,
    /// Where the exchange begins, from the start of the arena.
    arena_bytes: u64,
    /// Where the exchange begins, from the start of the operand.
    offset_bytes: u64,
}

impl<'a> MulticastExchange<'a> {
    /// Checks an exchange. Enqueues nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an exchange that multicast does not support.
    pub(super) fn new(exchange: &'a Exchange<'a>, arena: &Arena) -> Result<Self> {
        let (call, group) = (exchange.call, arena.group());
        let what = || format!("{} by multicast", call.op.operation);
        check_open(arena, &what())?;
        let Strips { from, into, rows } = &exchange.strips;
        let Some((way, operand, offset_bytes)) =
            exchange.shared().filter(|(way, ..)| has(call.op, *way) && rows.row_bytes == 0)
        else {
            let reason = "multicast makes whole all-gathers, reduce-scatters and broadcasts: use transport `auto`";
            return Err(Error::unsupported(what(), reason));
        };
        let arena_bytes = offset_of(arena, operand).ok_or_else(|| outside(&what()))? + offset_bytes;
        let (task, own) = match way {
            ExchangeWay::Reduce if !Algorithm::MulticastTwoShot.reduces(call.dtype, call.options.reduction) => {
                let what = format!("{} of the {} of {}", what(), call.options.reduction, call.dtype);
                return Err(Error::unsupported(
                    what,
                    "multicast only adds, in floats of at most 32 bits and integers of at least 32",
                ));
            }
            ExchangeWay::Reduce => {
                if let Some(why) = unable(call.dtype, group.capabilities().adds_f8) {
                    return Err(Error::unsupported(format!("{} of {}", what(), call.dtype), why));
                }
                let (kind, world) = (group.device().kind(), group.world_size());
                let allowed = allowance(Algorithm::MulticastTwoShot, kind, world, call.dtype);
                let asked = group.config().determinism;
                if asked > allowed {
                    let reason = format!("the configuration asks for {asked} determinism; `{allowed}` allows it");
                    return Err(Error::unsupported(format!("{} of {}", what(), call.dtype), reason));
                }
                (args::kMulticastSum, into[group.rank()])
            }
            _ => (args::kMulticastToAll, from[group.rank()]),
        };
        Ok(Self { exchange, task, own, arena_bytes, offset_bytes })
    }

    pub(super) fn enqueue(&self, turn: &mut Turn<'_>) -> Result<()> {
        let Self { exchange, task, own, arena_bytes, offset_bytes } = *self;
        let (call, inner) = (exchange.call, turn.inner);
        turn.order()?;
        let whole = call_args(&inner.arena, task, call.dtype, call.op.operation.number())?;
        let place = exchange.place(Some(arena_bytes - offset_bytes));
        let (bytes, noted) = (exchange.largest_bytes(), exchange.noted(WAY_MULTICAST).at(place));
        let mut start = 0;
        while start < bytes {
            let part_bytes = (bytes - start).min(MOST_CALL_BYTES);
            let announced = turn.announce_part(noted, part_bytes)?;
            let launch = geometry::zero_copy(limits_of(&inner.group), part_bytes.div_ceil(PACKET_BYTES as u64));
            let own_address = own.address.wrapping_byte_add(start as usize);
            let args = args::MulticastArgs {
                wait: inner.arena.wait(announced),
                lanes_log2: launch.lanes_log2,
                bytes: part_bytes.min(own.bytes.saturating_sub(start)),
                from: own_address.cast(),
                into: own_address.cast(),
                from_bytes: arena_bytes + start,
                into_bytes: arena_bytes + start,
                ..whole
            };
            let queue = turn.queue;
            // SAFETY: as for an all-reduce; the check of the call ensures the length of this rank's chunk.
            queue.enqueue("launch an exchange by multicast", |raw| unsafe { raw.launch(&args, &launch.geometry) })?;
            start += part_bytes;
        }
        Ok(())
    }
}

/// Whether multicast supports the operation: a broadcast, or an operation in which every rank's smaller operand is a part of
/// the larger one.
fn has(op: &Op, way: ExchangeWay) -> bool {
    matches!(way, ExchangeWay::Relay) || op.in_place == InPlace::OwnPart
}
