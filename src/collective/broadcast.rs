//! Broadcast: what one rank has, in the buffer of every rank.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Shared, Strip, Way};
use super::{Communicator, Inner};
use crate::error::Result;
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element};

impl Communicator {
    /// Copies the `buffer` of rank `root` into that of every other rank; all have as many elements.
    /// Enqueues and returns; the buffer is used when the queue gets there. Any number of elements,
    /// also 0; any element-aligned address.
    ///
    /// All but small messages go in two hops: each rank gets a share of the root's buffer and hands it
    /// on to all others, so that the root sends a message once and not once a rank.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn sampled(communicator: &Communicator, token: &DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
    ///     communicator.broadcast(token, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group or a buffer of another device;
    /// [`Error::Unsupported`](crate::Error::Unsupported) where `Config::transport` asks for what the memory cannot do; the group's
    /// error when it failed before; [`Error::Device`](crate::Error::Device) when the launch fails.
    pub fn broadcast<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.broadcast(T::DTYPE, &buffer.view_of(), root, &queue)
    }

    /// The same for an operand whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn broadcast_untyped(
        &self,
        dtype: Dtype,
        buffer: &View<'_>,
        root: usize,
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.broadcast(dtype, buffer, root, queue)
    }
}

impl Inner {
    fn broadcast(self: &Arc<Self>, dtype: Dtype, buffer: &View<'_>, root: usize, queue: &impl Enqueue) -> Result<()> {
        let _entered = self.begin(&[("buffer", buffer)], queue)?;
        self.check_rank("root", root)?;
        let whole = Strip { address: buffer.address, bytes: (buffer.elems * dtype.bytes()) as u64 };
        let shared = Shared { way: Way::Relay, operand: buffer, offsets_bytes: [0; MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: whole.bytes, shared: Some(shared) };
        let mut exchange = Exchange { root, ..Exchange::new(args::kOpBroadcast, dtype, counts) };
        if self.group.rank() == root {
            exchange.from[..self.group.world_size()].fill(whole);
        }
        exchange.into[root] = whole;
        self.exchange(&exchange, queue)
    }
}
