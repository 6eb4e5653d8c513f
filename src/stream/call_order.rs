//! The order of the calls of a communicator.

use super::chains::Chains;
use super::mixed_order::MixedOrder;
use super::{Kept, Stream, StreamOrder};
use crate::device::Device;
use crate::error::Result;

/// The order of eager calls, launches of graphs, and calls that a stream's owner captures.
pub(crate) struct CallOrder {
    eager: Eager,
    chains: Chains,
}

enum Eager {
    /// The owners of streams order the launches of their graphs.
    ByStreams(StreamOrder),
    /// Launches of graphs of owners are in the order too.
    Mixed(MixedOrder),
}

impl CallOrder {
    /// `mixed`: whether graphs that a stream's owner captures keep the order with all other calls.
    pub(crate) fn new(device: &Device, mixed: bool) -> Result<Self> {
        let eager = match mixed {
            true => Eager::Mixed(MixedOrder::new(device)?),
            false => Eager::ByStreams(StreamOrder::new(device)?),
        };
        Ok(Self { eager, chains: Chains::default() })
    }

    /// Makes the next work of `stream` wait for the last call.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        match &mut self.eager {
            Eager::ByStreams(order) => order.order(stream),
            Eager::Mixed(order) => order.order(stream),
        }
    }

    /// Ends a call on `stream` that [`order`](Self::order) began.
    pub(crate) fn end(&mut self, stream: &Stream) -> Result<()> {
        match &mut self.eager {
            Eager::ByStreams(order) => order.end_on(stream),
            Eager::Mixed(order) => order.end(stream),
        }
    }

    /// Makes the next work of `stream`, which `capture` of its owner records, wait for the last call of the capture. The
    /// captured graph holds the result of `kept`.
    pub(crate) fn order_captured(&mut self, capture: u64, stream: &Stream, kept: impl FnOnce() -> Kept) -> Result<()> {
        let event = match &mut self.eager {
            Eager::ByStreams(_) => None,
            Eager::Mixed(order) => Some(order.event_for_graphs()),
        };
        self.chains.order(capture, stream, event, kept)
    }

    /// Ends a call that [`order_captured`](Self::order_captured) began.
    pub(crate) fn end_captured(&mut self, capture: u64, stream: &Stream) -> Result<()> {
        self.chains.end(capture, stream)
    }

    /// Whether all calls are done, except calls that a stream's owner captured in an order without graphs. Does not block.
    pub(crate) fn is_done(&self) -> Result<bool> {
        match &self.eager {
            Eager::ByStreams(order) => order.is_done(),
            Eager::Mixed(order) => order.is_done(),
        }
    }

    /// Continues the order without `stream`, which may then be destroyed.
    pub(crate) fn leave(&mut self, stream: &Stream) -> Result<()> {
        match &mut self.eager {
            Eager::ByStreams(order) => order.leave(stream),
            Eager::Mixed(order) => order.leave(stream),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/stream/call_order.rs"]
mod tests;
