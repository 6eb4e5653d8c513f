//! Sends and receives between pairs of ranks.

use crate::backend::ProcessGroup;
use crate::error::Result;
use crate::memory::Operand;
use crate::op::{Call, Messages, Numbers, SEND_RECEIVE};
use crate::stream::{Queue, Target};
use crate::types::{Dtype, Element};

impl ProcessGroup {
    /// Sends to and receives from any ranks at once: `fill` adds messages, and then all messages are enqueued as one
    /// operation. Enqueues and returns; the operands are used in stream order. Every rank of the group takes part,
    /// even without messages. A rank sends at most one message to each
    /// rank, itself included, and receives at most one from each. Ranks compare the sizes in bytes on the device before
    /// data move; NCCL does not compare sizes. Transfers are zero-copy if all received messages go to symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// /// To the next stage of a pipeline, and from the previous one.
    /// fn step(communicator: &Communicator, out: &DeviceBuffer<f32>, into: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let (rank, world) = (communicator.rank(), communicator.world_size());
    ///     communicator.batch(stream, |messages| {
    ///         if rank + 1 < world {
    ///             messages.send(out, rank + 1);
    ///         }
    ///         if rank > 0 {
    ///             messages.receive(into, rank - 1);
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// The operands must outlive the batch:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn early(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     communicator.batch(stream, |messages| {
    ///         let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///         messages.send(&out, 0);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    /// These operands outlive the batch:
    /// ```
    /// # use symmetra::*;
    /// fn kept(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///     communicator.batch(stream, |messages| {
    ///         messages.send(&out, 0);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of `fill`; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a peer outside the group,
    /// several messages of one direction for one peer, operands of another device, a rank whose message to itself has
    /// two sizes, or received memory that the batch also uses otherwise;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support `Config::transport`; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails. If the sizes
    /// at sender and receiver differ, later calls of every rank fail with [`Error::Mismatch`](crate::Error::Mismatch),
    /// which names both ranks; received data are undefined then.
    pub fn batch<'op>(
        &self,
        queue: impl Queue<'op>,
        fill: impl FnOnce(&mut Messages<'op>) -> Result<()>,
    ) -> Result<()> {
        let mut messages = Messages::new(self.rank(), self.world_size());
        fill(&mut messages)?;
        let call = Call::new(&SEND_RECEIVE, Dtype::U8).numbers(Numbers::Messages(messages.as_slice()));
        self.calls.run(&call, Target::of(&queue))
    }

    /// Sends `operand` to the next rank; the last rank sends to the first. This is a whole [`batch`](Self::batch), in
    /// which the next rank receives. A rank that neither sends nor receives calls `batch` with no message.
    ///
    /// # Errors
    /// The errors of [`batch`](Self::batch).
    pub fn send_next<'op, T: Element>(&self, operand: impl Operand<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.batch(queue, |messages| {
            messages.send_next(operand);
            Ok(())
        })
    }

    /// Receives `operand` from the previous rank; the first rank receives from the last. This is a whole
    /// [`batch`](Self::batch), in which the previous rank sends.
    ///
    /// # Errors
    /// The errors of [`batch`](Self::batch).
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
