//! All collectives except all-reduce. Each method enqueues and returns: the operands are used in stream order. Any number
//! of elements, including 0; any element-aligned address.

use crate::backend::ProcessGroup;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{
    ALL_GATHER, ALL_GATHER_V, ALL_TO_ALL, ALL_TO_ALL_V, BROADCAST, Call, GATHER, Numbers, PartCounts, REDUCE,
    REDUCE_SCATTER, REDUCE_SCATTER_V, SCATTER, SHIFT,
};
use crate::stream::{Queue, Target};
use crate::types::{Element, Reduction};

impl ProcessGroup {
    /// Puts the `input` of every rank, in rank order, into the `output` of every rank. `input` has n elements, equal
    /// on all ranks, and `output` has n x world size elements. Enqueues and returns; the operands are used in stream
    /// order.
    ///
    /// In place: `input` is this rank's part of `output`; otherwise they may not overlap. Any number of elements,
    /// including 0; any element-aligned address. `output` decides the transport: peers write into `output` directly if
    /// they can address `output`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn logits(communicator: &Communicator, shard: &DeviceBuffer<f32>, stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let all = communicator.symmetric::<f32>(communicator.world_size() * shard.len())?;
    ///     communicator.all_gather(shard, &all, stream)?;
    ///     Ok(all)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit each other, operands of
    /// another device, or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support
    /// `Config::transport`; the group's error if the group has failed; [`Error::Device`](crate::Error::Device)
    /// if the launch fails.
    pub fn all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.calls
            .run(&Call::new(&ALL_GATHER, T::DTYPE).input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// All-gather along dimension `dim` of a row-major tensor: `input` has this `shape` on every rank. `output` has
    /// the shape with `shape[dim]` times the world size, with the parts of the ranks adjacent along `dim`. No data are
    /// copied before or after. Enqueues and returns; the operands are used in stream order.
    ///
    /// In place: `input` is this rank's part of `output`, if all dimensions before `dim` are 1; otherwise they may not
    /// overlap.
    ///
    /// # Errors
    /// The errors of [`all_gather`](Self::all_gather); also for a `dim` that the shape does not have.
    pub fn all_gather_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&ALL_GATHER, T::DTYPE).numbers(Numbers::Along(dim, shape));
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// All-gather in which each rank has its own count: `input` has `counts[rank]` elements, and `output` the sum of the
    /// counts. All ranks pass the same counts. A count may be 0. Data parallel attention gathers the tokens of a step
    /// in this way. Enqueues and returns; the operands are used in stream order. Any element-aligned address.
    ///
    /// In place: `input` is this rank's part of `output`; otherwise they may not overlap. `output` decides the transport,
    /// by the largest count: peers write into `output` directly if they can address `output`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn tokens(communicator: &Communicator, own: &DeviceBuffer<f32>, counts: &[usize], stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let all = communicator.symmetric::<f32>(counts.iter().sum())?;
    ///     communicator.all_gather_v(own, &all, counts, stream)?;
    ///     Ok(all)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`all_gather`](Self::all_gather); also if the number of counts is not the world size.
    /// [`Error::Mismatch`](crate::Error::Mismatch) if ranks pass different counts: before the call with
    /// `Config::check_calls` and on the host backend, else at the latest from `synchronize`; outputs are undefined then.
    pub fn all_gather_v<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        counts: &[usize],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&ALL_GATHER_V, T::DTYPE).numbers(Numbers::Parts(PartCounts(counts)));
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Reduces `input` over all ranks and puts this rank's part of the result into `output`. `input` holds a part for
    /// every rank, in rank order: on every rank world size times as many elements as `output`. Enqueues and returns;
    /// the operands are used in stream order.
    ///
    /// Values are reduced in rank order and rounded once: see [`Reduction`]. In place: `output` is this rank's part of
    /// `input`; otherwise they may not overlap. Any element-aligned address. `input` decides the transport: peers read
    /// `input` directly if they can address `input`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn shard(communicator: &Communicator, partial: &SymmetricBuffer<f32>, stream: &Stream) -> Result<DeviceBuffer<f32>> {
    ///     let shard = DeviceBuffer::new(communicator.device(), partial.len() / communicator.world_size())?;
    ///     communicator.reduce_scatter(partial, &shard, Reduction::Sum, stream)?;
    ///     Ok(shard)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit each other, operands of
    /// another device, or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support
    /// `Config::transport`; the group's error if the group has failed; [`Error::Device`](crate::Error::Device)
    /// if the launch fails.
    pub fn reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&REDUCE_SCATTER, T::DTYPE).options(reduction);
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Reduce-scatter along dimension `dim` of a row-major tensor: `input` has this `shape` on every rank. `output`
    /// has the shape with `shape[dim]` divided by the world size. No data are copied before or after. Enqueues and
    /// returns; the operands are used in stream order.
    ///
    /// In place: `output` is this rank's part of `input`, if all dimensions before `dim` are 1; otherwise they may not
    /// overlap.
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter); also for a `dim` that the shape does not have, or whose
    /// length is not a multiple of the world size.
    pub fn reduce_scatter_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&REDUCE_SCATTER, T::DTYPE).options(reduction).numbers(Numbers::Along(dim, shape));
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Reduce-scatter in which each rank has its own count: `input` has the sum of the counts, the same on every rank, and
    /// `output` has `counts[rank]` elements. All ranks pass the same counts. A count may be 0. Data parallel
    /// attention gets the tokens of each rank back in this way. Enqueues and returns; the operands are used in stream
    /// order. Any element-aligned address.
    ///
    /// Values are reduced in rank order and rounded once: see [`Reduction`]. In place: `output` is this rank's part of
    /// `input`; otherwise they may not overlap. `input` decides the transport, by the largest count: peers read `input`
    /// directly if they can address `input`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn own(communicator: &Communicator, all: &SymmetricBuffer<f32>, counts: &[usize], stream: &Stream) -> Result<DeviceBuffer<f32>> {
    ///     let own = DeviceBuffer::new(communicator.device(), counts[communicator.rank()])?;
    ///     communicator.reduce_scatter_v(all, &own, counts, Reduction::Sum, stream)?;
    ///     Ok(own)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter); also if the number of counts is not the world size.
    /// [`Error::Mismatch`](crate::Error::Mismatch) if ranks pass different counts, as in
    /// [`all_gather_v`](Self::all_gather_v).
    pub fn reduce_scatter_v<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        counts: &[usize],
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let numbers = Numbers::Parts(PartCounts(counts));
        let call = Call::new(&REDUCE_SCATTER_V, T::DTYPE).options(reduction).numbers(numbers);
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Cuts `input` into a part for every rank, in rank order, and fills `output` with the parts from every rank. Both
    /// have the same number of elements on every rank, a multiple of the world size. Enqueues and returns; the operands
    /// are used in stream order.
    ///
    /// `input` and `output` may not overlap. Any element-aligned address. `output` decides the transport: peers write
    /// into `output` directly if they can address `output`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn exchange(communicator: &Communicator, tokens: &DeviceBuffer<f32>, stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let exchanged = communicator.symmetric::<f32>(tokens.len())?;
    ///     communicator.all_to_all(tokens, &exchanged, stream)?;
    ///     Ok(exchanged)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that differ or do not divide, operands of
    /// another device, or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support
    /// `Config::transport`; the group's error if the group has failed; [`Error::Device`](crate::Error::Device)
    /// if the launch fails.
    pub fn all_to_all<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.calls
            .run(&Call::new(&ALL_TO_ALL, T::DTYPE).input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// All-to-all with a count of elements for each rank. The first `send_counts[0]` elements of `input` go to rank 0,
    /// the next `send_counts[1]` to rank 1, and so on. The elements from rank 0 fill the first `receive_counts[0]` of
    /// `output`, and so on. Other elements of `input` are not read, and other elements of `output` are not modified.
    /// The operands may not overlap. Enqueues and returns; the operands are used in stream order. Ranks exchange
    /// their counts on the device, by an additional small kernel. Data move directly only into symmetric memory. NCCL
    /// does not compare the counts of sender and receiver.
    ///
    /// ```
    /// # use symmetra::*;
    /// /// Rank r gives r + 1 elements to each rank.
    /// fn ragged(communicator: &Communicator, from: &DeviceBuffer<f32>, into: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let world = communicator.world_size();
    ///     let sends = vec![communicator.rank() + 1; world];
    ///     let receives: Vec<usize> = (1..=world).collect();
    ///     communicator.all_to_all_v(from, &sends, into, &receives, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`all_to_all`](Self::all_to_all); also if the number of counts is not the world size, or if the
    /// counts exceed the operand. If sender and receiver differ in a count, later calls of every rank fail with
    /// [`Error::Mismatch`](crate::Error::Mismatch), which names both ranks; all outputs are undefined then.
    pub fn all_to_all_v<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        send_counts: &[usize],
        output: impl Operand<'op, T>,
        receive_counts: &[usize],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&ALL_TO_ALL_V, T::DTYPE).numbers(Numbers::Counts([send_counts, receive_counts]));
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Copies the `buffer` of rank `root` into the buffer of every other rank. All buffers have the same length. Enqueues
    /// and returns; the buffer is used in stream order. Any number of elements, including 0; any element-aligned address.
    ///
    /// Except for small messages, data go in two hops: each rank receives a share of the root's buffer and forwards the
    /// share to all others. So the root sends the message once, and not once for each rank.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn sampled(communicator: &Communicator, token: &DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
    ///     communicator.broadcast(token, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group or a buffer of another
    /// device; [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support `Config::transport`;
    /// the group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn broadcast<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.calls.run(&Call::new(&BROADCAST, T::DTYPE).parameter(root).output(buffer.view_of()), Target::of(&queue))
    }

    /// Reduces `input` over all ranks into the `output` of rank `root`, which has as many elements; on other ranks
    /// `output` is ignored and may be `None`. Enqueues and returns; the operands are used in stream order.
    ///
    /// Values are reduced in rank order and rounded once: see [`Reduction`]. The root's operands may be the same memory
    /// but may not overlap otherwise. Any number of elements, including 0; any element-aligned address. The root reads
    /// `input` of every rank directly if peers can address `input`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn loss(communicator: &Communicator, mine: &DeviceBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let output = (communicator.rank() == 0).then_some(all);
    ///     communicator.reduce(mine, output, Reduction::Average, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group, a root without output,
    /// operands of different lengths, of another device, or that overlap;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support `Config::transport`; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn reduce<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        reduction: Reduction,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&REDUCE, T::DTYPE).options(reduction).parameter(root);
        self.calls.run(&call.input(input.view_of()).output(output.as_ref().map(WithView::view_of)), Target::of(&queue))
    }

    /// Reduces `buffer` over all ranks into the `buffer` of rank `root`. The buffers of other ranks are not modified. Some
    /// ranks may call [`reduce`](Self::reduce) instead: both methods run the same operation.
    ///
    /// # Errors
    /// The errors of [`reduce`](Self::reduce).
    pub fn reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        reduction: Reduction,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let buffer = buffer.view_of();
        let call = Call::new(&REDUCE, T::DTYPE).options(reduction).parameter(root);
        self.calls.run(&call.input(buffer.clone()).output(buffer), Target::of(&queue))
    }

    /// Puts the `input` of every rank, in rank order, into the `output` of rank `root`. `input` has n elements, equal
    /// on all ranks, and `output` has n x world size elements. On other ranks `output` is ignored and may be `None`.
    /// Enqueues and returns; the operands are used in stream order.
    ///
    /// In place: the root's `input` is its part of `output`; otherwise they may not overlap. Any number of elements,
    /// including 0; any element-aligned address. `output` decides the transport of large messages: peers write directly
    /// into symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn collect(communicator: &Communicator, mine: &DeviceBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     communicator.gather(mine, (communicator.rank() == 0).then_some(all), 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group, a root without output,
    /// lengths that do not fit each other, operands of another device, or that overlap;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support `Config::transport`; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn gather<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let output = output.as_ref().map(WithView::view_of);
        self.calls.run(
            &Call::new(&GATHER, T::DTYPE).parameter(root).input(input.view_of()).output(output),
            Target::of(&queue),
        )
    }

    /// Cuts the `input` of rank `root` into a part for every rank, in rank order, and puts each part into that rank's
    /// `output`. `output` has n elements, equal on all ranks, and `input` has n x world size elements. On other ranks
    /// `input` is ignored and may be `None`. Enqueues and returns; the operands are used in stream order.
    ///
    /// In place: the root's `output` is its part of `input`; otherwise they may not overlap. Any number of elements,
    /// including 0; any element-aligned address. `output` decides the transport of large messages: the root writes
    /// directly into symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn deal(communicator: &Communicator, all: &DeviceBuffer<f32>, mine: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     communicator.scatter((communicator.rank() == 0).then_some(all), mine, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group, a root without input,
    /// lengths that do not fit each other, operands of another device, or that overlap;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support `Config::transport`; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn scatter<'op, T: Element, I: Operand<'op, T>>(
        &self,
        input: Option<I>,
        output: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let input = input.as_ref().map(WithView::view_of);
        self.calls.run(
            &Call::new(&SCATTER, T::DTYPE).parameter(root).input(input).output(output.view_of()),
            Target::of(&queue),
        )
    }

    /// Puts the `input` of rank r into the `output` of rank r + `by`, modulo the world size: a step of ring attention or
    /// of a pipeline. `by` is the same on every rank and may be negative. Both operands have the same number of elements
    /// on every rank. Enqueues and returns; the operands are used in stream order.
    ///
    /// `input` and `output` may not overlap. Any number of elements, including 0; any element-aligned address. `output`
    /// decides the transport: the peer writes into `output` directly if the peer can address `output`.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn next(communicator: &Communicator, keys: &DeviceBuffer<f32>, stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let received = communicator.symmetric::<f32>(keys.len())?;
    ///     communicator.shift(keys, &received, 1, stream)?;
    ///     Ok(received)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for operands of different lengths, of another device,
    /// or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) if the memory does not support
    /// `Config::transport`; the group's error if the group has failed; [`Error::Device`](crate::Error::Device)
    /// if the launch fails.
    pub fn shift<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        by: isize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let further = by.rem_euclid(self.world_size() as isize) as usize;
        let call = Call::new(&SHIFT, T::DTYPE).parameter(further);
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }
}
