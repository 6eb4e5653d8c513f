//! The order of a communicator's calls, which share scratch and epochs.

use crate::device::Device;
use crate::error::Result;
use crate::stream::{Enqueue, Order, Stream};

/// The order of a communicator's eager calls and graph launches.
pub(crate) struct Lane {
    calls: Order,
    /// Whether nothing has run yet. A peer may then still be loading.
    pub(super) fresh: bool,
    /// Whether this rank has signalled its first call to the peers.
    pub(super) told: bool,
    /// The ranks that have sent, or will have sent when enqueued work is done, a message between pairs to this rank: bit r
    /// is rank r. They have loaded by then.
    pub(super) heard: u32,
    /// Whether a natively captured call has taken the arguments of a first call.
    pub(super) captured: bool,
}

impl Lane {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self { calls: Order::new(device)?, fresh: true, told: false, heard: 0, captured: false })
    }

    /// Makes the next work of `stream` wait for the last call.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        self.calls.order(stream)
    }

    /// Makes the next work of a queue wait for the last call.
    pub(crate) fn order_call(&mut self, queue: &impl Enqueue) -> Result<()> {
        self.calls.order_call(queue)
    }

    /// Whether all calls are done, but for those that a stream's owner captured. Does not block.
    pub(super) fn is_done(&self) -> Result<bool> {
        self.calls.is_done()
    }

    /// Keeps the order without `stream`, which may end.
    pub(super) fn leave(&mut self, stream: &Stream) -> Result<()> {
        self.calls.leave(stream)
    }
}
