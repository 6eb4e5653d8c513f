//! The signal array of a symmetric buffer, and the offsets of its words.

use std::fmt;
use std::sync::Arc;

use super::arena::Arena;
use super::layout::SIGNAL_CHANNELS;
use super::view::{PadView, pad_at};
use crate::error::{Error, Result};
use crate::kernel::args;

/// Signals between the ranks of a symmetric buffer, borrowed from the buffer.
///
/// A signal is a counter in the receiver's memory, one for every channel and sender. `put` increments the counter after
/// all earlier work of its stream, with release order at system scope. `wait` blocks its stream until the counter was
/// incremented once more, with acquire order. Counters only grow and are in device memory, so both calls may be
/// captured and replayed.
#[derive(Clone, Copy)]
pub struct SignalPad<'buffer> {
    arena: &'buffer Arc<Arena>,
    offset_bytes: u64,
}

impl<'buffer> SignalPad<'buffer> {
    pub(crate) fn new(arena: &'buffer Arc<Arena>, offset_bytes: u64) -> Self {
        Self { arena, offset_bytes }
    }

    pub(crate) fn arena(&self) -> &'buffer Arc<Arena> {
        self.arena
    }

    /// The pad for a kernel of yours: plain data for the functions of `symmetra/device/signal.cuh`. Its addresses are
    /// valid until the communicator is closed.
    pub fn view(&self) -> PadView {
        PadView::new(pad_at(self.arena, self.offset_bytes, SIGNAL_CHANNELS, self.arena.wait(false)))
    }

    /// The argument block for an action on a channel, with `peer` if the action has one.
    pub(crate) fn args(&self, action: u32, peer: usize, channel: usize) -> Result<args::SignalArgs> {
        let group = self.arena.group();
        if channel >= SIGNAL_CHANNELS {
            return Err(Error::invalid("channel", channel, format!("a pad has {SIGNAL_CHANNELS}")));
        }
        if peer >= group.world_size() {
            return Err(Error::invalid("peer", peer, format!("the world size is {}", group.world_size())));
        }
        let args::SignalPad { pads, sent, awaited, wait, rank, world } =
            pad_at(self.arena, self.offset_bytes, SIGNAL_CHANNELS, self.arena.wait(false));
        Ok(args::SignalArgs {
            pads,
            sent,
            awaited,
            wait,
            rank,
            world,
            channel: channel as u32,
            peer: peer as u32,
            action,
            op: args::kOpSignalBarrier,
        })
    }
}

impl fmt::Debug for SignalPad<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SignalPad({SIGNAL_CHANNELS} channels of {:?})", self.arena.group())
    }
}
