//! Messages between pairs of ranks. No other rank takes part.

use crate::backend::ProcessGroup;
use crate::error::Result;
use crate::op::Pairs;
use crate::stream::{Queue, Target};

impl ProcessGroup {
    /// Sends to and receives from any ranks: `fill` adds messages, and then all messages are enqueued as one operation.
    /// Only the ranks of a pair take part: a rank without a message makes no call, and may make other calls meanwhile.
    /// [`batch`](Self::batch) needs every rank, and moves data directly between symmetric buffers.
    ///
    /// Any number of messages go from one rank to another. The receiver receives messages in the order in which they are
    /// sent, within a call and from call to call. Sizes in bytes are compared, types are not. A message may have no bytes. A
    /// rank's message to itself is a copy; a call must send and receive equally many of them.
    ///
    /// The messages of a call progress concurrently, so all ranks of a ring may send before they receive, in one call. A
    /// call ends when the messages to this rank have arrived and the messages of this rank have left its memory. A sender
    /// waits for the receiver only if the queue, of [`Config::pair_bytes`](crate::Config::pair_bytes) bytes, is full.
    /// Ranks may split the same
    /// messages into different calls, in an order in which no calls wait for each other in a circle. A call of more than 96
    /// messages is split in this way, by the number of a message in its pair.
    ///
    /// Enqueues and returns. A graph may hold messages. Ranks may replay graphs, and make other calls, in any order in
    /// which the messages of each pair match. With symmetra kernels, calls of one rank on several streams run one after the
    /// other, and also in order with collectives. If a peer has not enqueued any call of the communicator yet, and this
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
    /// operands or a stream of another device, received memory that the call also uses otherwise (unless
    /// [`Pairs::allow_overlaps`] accepts it), or messages of a rank to itself whose numbers or sizes differ; [`Error::Unsupported`](crate::Error::Unsupported) for a group that spans
    /// hosts without NCCL, because its engine needs all ranks; [`Error::PeerLost`](crate::Error::PeerLost) for a rank that
    /// left; the group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails. If
    /// sender and receiver of a message expect different sizes, later calls of every rank fail with
    /// [`Error::Mismatch`](crate::Error::Mismatch), which names both ranks and both sizes; received data are undefined
    /// then. NCCL does not compare sizes.
    pub fn pairs<'op>(&self, queue: impl Queue<'op>, fill: impl FnOnce(&mut Pairs<'op>) -> Result<()>) -> Result<()> {
        let mut messages = Pairs::new(self.world_size());
        fill(&mut messages)?;
        self.calls.run_pairs(messages.as_slice(), Target::of(&queue))
    }
}
