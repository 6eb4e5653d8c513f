//! Messages between ranks of a group, in one batch that all its ranks run together.

use std::marker::PhantomData;

use super::call::{Call, Message};
use super::coordinator::Coordinator;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::stream::Queue;
use crate::types::{Dtype, Element};

/// What one rank sends and receives in a [`Coordinator::batch`].
pub struct Messages<'op> {
    rank: usize,
    world_size: usize,
    messages: Vec<Message>,
    _operands: PhantomData<&'op ()>,
}

impl Coordinator {
    /// Sends to and receives from any ranks of the group at once, as
    /// [`Communicator::batch`](crate::Communicator::batch) does: `fill` says what. Every rank of the group takes
    /// part, if only with nothing. NCCL does not compare what ranks send and expect.
    ///
    /// A step of a pipeline:
    /// ```
    /// # use symmetra::{DeviceBuffer, Result, Stream, environment::Coordinator};
    /// fn step(pp: &Coordinator, out: &DeviceBuffer<f32>, into: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     pp.batch(stream, |messages| {
    ///         if !pp.is_last_rank() {
    ///             messages.send_next(out);
    ///         }
    ///         if !pp.is_first_rank() {
    ///             messages.receive_previous(into);
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// What `fill` returns; as [`Communicator::batch`](crate::Communicator::batch); [`Error::Unsupported`](crate::Error::Unsupported)
    /// where no backend serves the group.
    pub fn batch<'op>(
        &self,
        queue: impl Queue<'op>,
        fill: impl FnOnce(&mut Messages<'op>) -> Result<()>,
    ) -> Result<()> {
        let (rank, world_size) = (self.rank(), self.world_size());
        let mut messages = Messages { rank, world_size, messages: Vec::new(), _operands: PhantomData };
        fill(&mut messages)?;
        self.run(Dtype::U8, &Call::SendReceive { messages: &messages.messages }, &queue)
    }

    /// Sends `operand` to the next rank of the group, going round: all that this rank does in a
    /// [`batch`](Self::batch) in which that one receives. Ranks with neither part call `batch` with nothing.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn send_next<'op, T: Element>(&self, operand: impl Operand<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.batch(queue, |messages| {
            messages.send_next(operand);
            Ok(())
        })
    }

    /// Receives `operand` from the rank before, likewise.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn receive_previous<'op, T: Element>(
        &self,
        operand: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.batch(queue, |messages| {
            messages.receive_previous(operand);
            Ok(())
        })
    }
}

impl<'op> Messages<'op> {
    /// Sends the elements of `operand` to rank `peer` of the group. What is wrong with a message is the error of
    /// the batch.
    pub fn send<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) {
        self.messages.push(Message::new(peer, true, T::DTYPE, &operand.view_of()));
    }

    /// Receives as many elements as `operand` has from rank `peer`, likewise.
    pub fn receive<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) {
        self.messages.push(Message::new(peer, false, T::DTYPE, &operand.view_of()));
    }

    /// Sends to the rank after this one, going round.
    pub fn send_next<T: Element>(&mut self, operand: impl Operand<'op, T>) {
        self.send(operand, (self.rank + 1) % self.world_size);
    }

    /// Receives from the rank before this one, going round.
    pub fn receive_previous<T: Element>(&mut self, operand: impl Operand<'op, T>) {
        self.receive(operand, (self.rank + self.world_size - 1) % self.world_size);
    }
}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peers = |sends: bool| {
            let these = self.messages.iter().filter(|message| message.sends == sends);
            these.map(|message| message.peer).collect::<Vec<_>>()
        };
        write!(out, "Messages(to {:?}, from {:?})", peers(true), peers(false))
    }
}
