//! Reductions of a mesh's one-shot mode in one launch, after FlashInfer's MixedComm. In the all-reduce within groups of
//! consecutive ranks, whose results all ranks receive, every rank sends its whole input to every peer. In the reduce-scatter
//! whose parts go to several consecutive ranks, every rank sends each peer that peer's part. Each rank reduces the received
//! data.

use super::Inner;
use super::call_order::Lane;
use super::exchange::{Counts, Exchange, Way};
use super::graph_part::Recorded;
use super::reach::Peers;
use crate::error::{Error, Result};
use crate::op::{Apart, Call, Rows, Shape, Strip, Strips};
use crate::stream::Target;
use crate::types::{Transport, WAY_APART, WAY_NOTHING};

impl Inner {
    /// Enqueues a checked `Numbers::Apart` call. Supports any memory.
    pub(super) fn all_reduce_apart(
        &self,
        call: &Call<'_>,
        (Apart { ranks, rows }, shape): (Apart, &Shape),
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let (Some(input), Some(output)) = (&call.input, &call.output) else {
            return Err(Error::Internal { message: "an all-reduce without operands was found right".to_owned() });
        };
        let bytes = shape.bytes();
        let row_bytes = bytes / rows as u64;
        let into = |peer| Strip { bytes, ..Strip::part(output, peer / ranks, row_bytes) };
        let strips = Strips::each(shape.world, |_| Strip::whole(input, call.dtype), into);
        let rows = match rows {
            1 => Rows::default(),
            _ => Rows {
                row_bytes,
                from_pitch_bytes: row_bytes,
                into_pitch_bytes: row_bytes * (shape.world / ranks) as u64,
            },
        };
        self.reduce_packets(call, (Strips { rows, ..strips }, bytes), lane, queue, recorded)
    }

    /// Enqueues a checked `Numbers::Shared` call. Supports any memory.
    pub(super) fn reduce_shared(
        &self,
        call: &Call<'_>,
        (ranks, shape): (usize, &Shape),
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let (Some(input), Some(output)) = (&call.input, &call.output) else {
            return Err(Error::Internal { message: "a reduce-scatter without operands was found right".to_owned() });
        };
        let bytes = shape.bytes();
        let mut strips = Strips::each(shape.world, |peer| Strip::part(input, peer / ranks, bytes), |_| Strip::NONE);
        strips.into[shape.rank] = Strip::whole(output, call.dtype);
        self.reduce_packets(call, (strips, bytes), lane, queue, recorded)
    }

    /// `bytes`: the size of the largest chunk.
    fn reduce_packets(
        &self,
        call: &Call<'_>,
        (strips, bytes): (Strips, u64),
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        if bytes == 0 {
            return self.announce_empty(call.noted(0, WAY_NOTHING), lane, queue, recorded);
        }
        lane.order_call(queue)?;
        let exchange = Exchange { call, strips, counts: Counts::Known { largest_bytes: bytes, shared: None } };
        if let Some(calls) = self.in_calls(&exchange, Transport::Packets) {
            return self.exchange_in_calls(&exchange, calls, lane, queue, recorded);
        }
        let fresh = self.announce(exchange.noted(WAY_APART), lane, queue, recorded)?;
        self.launch_exchange(&exchange, Way::Reduce, Transport::Packets, &Peers::NONE, fresh, queue)
    }
}
