//! Reductions of a mesh's one-shot mode in one launch, after FlashInfer's MixedComm. In the all-reduce within groups of
//! consecutive ranks, whose results all ranks receive, every rank sends its whole input to every peer. In the reduce-scatter
//! whose parts go to several consecutive ranks, every rank sends each peer that peer's part. Each rank reduces the received
//! data.

use super::in_calls::InCalls;
use super::{Counts, Exchange, ExchangeWay};
use crate::collective::reach::Peers;
use crate::collective::turn::Turn;
use crate::error::Result;
use crate::op::{Apart, Call, CheckedShape, Rows, Strip, Strips};
use crate::types::{Transport, WAY_APART, WAY_NOTHING};

/// Enqueues a checked `Numbers::Apart` call. Supports any memory.
pub(in crate::collective) fn all_reduce_apart(
    call: &Call<'_>,
    apart: Apart,
    shape: &CheckedShape,
    turn: &mut Turn<'_>,
) -> Result<()> {
    let [input, output] = call.operands()?;
    let Apart { ranks, rows } = apart;
    let bytes = shape.bytes();
    let row_bytes = bytes / rows as u64;
    let into = |peer| Strip { bytes, ..Strip::part(output, peer / ranks, row_bytes) };
    let strips = Strips::each(shape.world, |_| Strip::whole(input, call.dtype), into);
    let rows = match rows {
        1 => Rows::default(),
        _ => {
            Rows { row_bytes, from_pitch_bytes: row_bytes, into_pitch_bytes: row_bytes * (shape.world / ranks) as u64 }
        }
    };
    reduce_packets(call, Strips { rows, ..strips }, bytes, turn)
}

/// Enqueues a checked `Numbers::Shared` call. Supports any memory.
pub(in crate::collective) fn reduce_shared(
    call: &Call<'_>,
    ranks: usize,
    shape: &CheckedShape,
    turn: &mut Turn<'_>,
) -> Result<()> {
    let [input, output] = call.operands()?;
    let bytes = shape.bytes();
    let mut strips = Strips::each(shape.world, |peer| Strip::part(input, peer / ranks, bytes), |_| Strip::NONE);
    strips.into[shape.rank] = Strip::whole(output, call.dtype);
    reduce_packets(call, strips, bytes, turn)
}

/// `bytes`: the size of the largest chunk.
fn reduce_packets(call: &Call<'_>, strips: Strips, bytes: u64, turn: &mut Turn<'_>) -> Result<()> {
    if bytes == 0 {
        return turn.announce_empty(call.noted(0, WAY_NOTHING));
    }
    turn.order()?;
    let exchange = Exchange { call, strips, counts: Counts::Known { largest_bytes: bytes, shared: None } };
    if let Some(calls) = InCalls::of(&exchange, Transport::Packets, &turn.inner.arena) {
        return calls.enqueue(turn);
    }
    let announced = turn.announce_part(exchange.noted(WAY_APART), bytes)?;
    exchange.launch(ExchangeWay::Reduce, Transport::Packets, &Peers::NONE, announced, turn)
}
