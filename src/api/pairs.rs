//! Messages between pairs of ranks, in which no other rank takes part.

use super::both;
use crate::collective::Communicator;
use crate::environment::Coordinator;
use crate::error::Result;
use crate::op::Pairs;
use crate::stream::Queue;

both! {
    /// Sends to and receives from any ranks: `fill` adds messages, and then all messages are enqueued as one operation.
    /// Only the ranks of a pair take part: a rank without a message makes no call, and may make other calls meanwhile.
    /// [`batch`](Self::batch) needs every rank, and moves data directly between symmetric buffers.
    ///
    /// Any number of messages go from one rank to another. The first that a rank sends is the first that the other
    /// receives, and so on, from call to call. Types are not compared, bytes are. A message may have no bytes. A rank's
    /// message to itself is a copy; as many are sent as are received, in one call.
    ///
    /// The messages of a call progress side by side, so all ranks of a ring may send before they receive, in one call. A
    /// call ends when the messages to this rank have arrived and those of this rank have left its memory: a sender waits
    /// for the receiver only where [`Config::pair_bytes`](crate::Config::pair_bytes) has no room. Ranks may cut what they
    /// exchange into other calls than their peers do, in an order in which no calls wait for each other in a circle. A
    /// call of more than 96 messages is cut so, by the number of a message in its pair.
    ///
    /// Enqueues and returns. A graph may hold messages. Ranks may replay graphs, and make other calls, in any order in
    /// which the messages of each pair match. On own kernels, calls of one rank on several streams run one after the
    /// other, also behind and ahead of collectives. Where a peer has not enqueued any call of the communicator yet, and this
    /// rank no collective, the waits of a call may take `deadlines.first_use`. Other waits take at most `deadlines.steady`. A
    /// graph keeps the deadline that its waits had in the capture.
    ///
    /// ```
    /// # use symmetra::*;
    /// /// The first rank asks the last; the others do not take part.
    /// fn ask(communicator: &Communicator, question: &DeviceBuffer<u8>, answer: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let last = communicator.world_size() - 1;
    ///     communicator.pairs(stream, |messages| {
    ///         messages.send(question, last)?;
    ///         messages.receive(answer, last)
    ///     })
    /// }
    /// ```
    ///
    /// The operands must outlive the call:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn early(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     communicator.pairs(stream, |messages| {
    ///         let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///         messages.send(&out, 0)
    ///     })
    /// }
    /// ```
    /// These operands outlive the call:
    /// ```
    /// # use symmetra::*;
    /// fn kept(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///     communicator.pairs(stream, |messages| messages.send(&out, 0))
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of `fill`; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a peer outside the group,
    /// operands or a stream of another device, received memory that the call also uses otherwise, or messages of a rank
    /// to itself whose numbers or sizes differ; [`Error::Unsupported`](crate::Error::Unsupported) for a group that spans
    /// hosts without NCCL: its engine needs all ranks; [`Error::PeerLost`](crate::Error::PeerLost) for a rank that left;
    /// the group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails. If a
    /// message has other sizes at its two ends, later calls of every rank fail with
    /// [`Error::Mismatch`](crate::Error::Mismatch), which names both ranks and both sizes; what is received is undefined
    /// then. NCCL does not compare sizes.
    pub fn pairs<'op>(
        &self,
        queue: impl Queue<'op>,
        fill: impl FnOnce(&mut Pairs<'op>) -> Result<()>,
    ) -> Result<()> {
        let mut messages = Pairs::new(self.world_size());
        fill(&mut messages)?;
        self.run_pairs(messages.as_slice(), &queue)
    }
}
