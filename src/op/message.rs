//! Messages between pairs of ranks.

use std::fmt;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::{Held, Strip};
use crate::device::Device;
use crate::error::Result;
use crate::group::MAX_WORLD_SIZE;
use crate::memory::{Operand, View, WithView};
use crate::types::{Dtype, Element};

/// A message from this rank to another, or to this rank.
pub(crate) struct RankMessage {
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    /// Whether the checks accept that the memory of the message overlaps that of other messages.
    pub(crate) may_overlap: bool,
    operand: Held,
}

impl RankMessage {
    pub(crate) fn new(peer: usize, sends: bool, dtype: Dtype, operand: &View<'_>) -> Self {
        Self { peer, sends, may_overlap: false, operand: Held::new(dtype, operand) }
    }

    pub(crate) fn may_overlap(self, may_overlap: bool) -> Self {
        Self { may_overlap, ..self }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.operand.dtype
    }

    pub(crate) fn view(&self) -> View<'_> {
        self.operand.view()
    }

    pub(crate) fn strip(&self) -> Strip {
        self.operand.strip()
    }

    /// Refuses an operand of another device, and a received message to read-only memory.
    pub(crate) fn check_place(&self, device: &Device) -> Result<()> {
        device.check_same("operand", self.view().device)?;
        if self.sends { Ok(()) } else { self.view().check_writable(self) }
    }

    /// `sent to` or `received from`.
    pub(crate) fn direction(&self) -> &'static str {
        if self.sends { "sent to" } else { "received from" }
    }
}

/// `what is sent to rank 3`, as errors name a message.
impl fmt::Display for RankMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "what is {} rank {}", self.direction(), self.peer)
    }
}

/// The messages that one rank sends and receives in a batch. The batch fails if a message is invalid.
pub struct Messages<'op> {
    rank: usize,
    world_size: usize,
    /// One message to and one from every rank need no allocation.
    messages: SmallVec<[RankMessage; 2 * MAX_WORLD_SIZE]>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Messages<'op> {
    pub(crate) fn new(rank: usize, world_size: usize) -> Self {
        Self { rank, world_size, messages: SmallVec::new(), _operands: PhantomData }
    }

    pub(crate) fn as_slice(&self) -> &[RankMessage] {
        &self.messages
    }

    /// Sends the elements of `operand` to rank `peer` of the group.
    pub fn send<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) {
        self.messages.push(RankMessage::new(peer, true, T::DTYPE, &operand.view_of()));
    }

    /// Receives the elements of `operand` from rank `peer` of the group.
    pub fn receive<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) {
        self.messages.push(RankMessage::new(peer, false, T::DTYPE, &operand.view_of()));
    }

    /// Sends the elements of `operand` to the next rank; the last rank sends to the first.
    pub fn send_next<T: Element>(&mut self, operand: impl Operand<'op, T>) {
        self.send(operand, (self.rank + 1) % self.world_size);
    }

    /// Receives the elements of `operand` from the previous rank; the first rank receives from the last.
    pub fn receive_previous<T: Element>(&mut self, operand: impl Operand<'op, T>) {
        self.receive(operand, (self.rank + self.world_size - 1) % self.world_size);
    }
}

impl fmt::Debug for Messages<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = |sends: bool| {
            let some = self.messages.iter().filter(|message| message.sends == sends);
            some.map(|message| message.peer).collect::<Vec<_>>()
        };
        write!(out, "Messages(to {:?}, from {:?})", peers(true), peers(false))
    }
}
