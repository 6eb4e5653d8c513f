//! All-reduces.

use crate::backend::ProcessGroup;
use crate::collective::BoundAllReduce;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_REDUCE, AllReduceOptions, Call};
use crate::stream::{Queue, Target};
use crate::types::Element;

impl ProcessGroup {
    /// Sums `input` over all ranks into `output`, which has as many elements. Enqueues and returns: the operands are
    /// used in stream order.
    ///
    /// The bits of the result are equal on all ranks and from run to run. [`Reduction`](crate::Reduction) defines the
    /// bits. The ring and recursive doubling reduce floating types in another order and round at every rank, unless
    /// [`Config::determinism`](crate::Config) forbids these algorithms. `input` and `output` may be the same memory but
    /// may not overlap otherwise. Any number of elements, including 0; any element-aligned address. Symmetric memory of
    /// another group counts as plain memory. If one rank captures a plain buffer again, all ranks must capture a buffer
    /// again: [`Graph::register`](crate::Graph::register) compares.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for operands of different lengths, of another device,
    /// or that overlap; the group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the
    /// launch fails.
    pub fn all_reduce<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.all_reduce_with(AllReduceOptions::default(), input, output, queue)
    }

    /// Sums `buffer` over all ranks in place: [`all_reduce`](Self::all_reduce) with one operand.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let buffer = buffer.view_of();
        self.calls.run(&Call::new(&ALL_REDUCE, T::DTYPE).input(buffer.clone()).output(buffer), Target::of(&queue))
    }

    /// Reduces `input` over all ranks into `output`: [`all_reduce`](Self::all_reduce) with a
    /// [`Reduction`](crate::Reduction), an [`Algorithm`](crate::Algorithm), a [`Codec`](crate::Codec) or several of these. A
    /// message that is too large for one launch of a push algorithm takes several launches. Over one rank the result is the
    /// input. Only symmetra kernels serve a call that names an algorithm or a codec. Enqueues and returns; the
    /// operands are used in stream order.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce). [`Error::Unsupported`](crate::Error::Unsupported) if the algorithm
    /// does not support the type, cannot address the operands, or violates [`Config::determinism`](crate::Config); and if
    /// the codec does not support the type, the reduction or the algorithm, violates that determinism, or does not fit the
    /// scratch.
    pub fn all_reduce_with<'op, T: Element>(
        &self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&ALL_REDUCE, T::DTYPE).options(options);
        self.calls.run(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Binds an all-reduce (a sum) of `input` into `output`: checks and plans the call once, for any number of
    /// [`BoundAllReduce::enqueue`]. The operands are the same memory or do not overlap. Not collective; does not block.
    /// Only symmetra kernels serve bound calls.
    ///
    /// The operands must outlive the bound call:
    /// ```compile_fail,E0515
    /// # use symmetra::*;
    /// fn leak(communicator: &Communicator) -> Result<BoundAllReduce<'_>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     communicator.bind_all_reduce(&buffer, &buffer)
    /// }
    /// ```
    /// These operands outlive the bound call:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'a>(communicator: &'a Communicator, buffer: &'a SymmetricBuffer<f32>) -> Result<BoundAllReduce<'a>> {
    ///     communicator.bind_all_reduce(buffer, buffer)
    /// }
    /// ```
    /// The communicator cannot be closed while the bound call exists:
    /// ```compile_fail,E0505
    /// # use symmetra::*;
    /// fn close(communicator: Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let bound = communicator.bind_all_reduce(&buffer, &buffer)?;
    ///     communicator.close()?;
    ///     bound.enqueue(stream)
    /// }
    /// ```
    /// After the last use it can be closed:
    /// ```
    /// # use symmetra::*;
    /// fn close(communicator: Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     communicator.bind_all_reduce(&buffer, &buffer)?.enqueue(stream)?;
    ///     communicator.close()
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce) that do not concern a stream.
    pub fn bind_all_reduce<'a, T: Element>(
        &'a self,
        input: impl Operand<'a, T>,
        output: impl Operand<'a, T>,
    ) -> Result<BoundAllReduce<'a>> {
        self.bind_all_reduce_with(AllReduceOptions::default(), input, output)
    }

    /// Binds an all-reduce with a reduction, an algorithm, a codec or several of these: see
    /// [`bind_all_reduce`](Self::bind_all_reduce).
    ///
    /// # Errors
    /// The errors of [`all_reduce_with`](Self::all_reduce_with) that do not concern a stream.
    pub fn bind_all_reduce_with<'a, T: Element>(
        &'a self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'a, T>,
        output: impl Operand<'a, T>,
    ) -> Result<BoundAllReduce<'a>> {
        let call = Call::new(&ALL_REDUCE, T::DTYPE).options(options);
        self.calls.bind(&call.input(input.view_of()).output(output.view_of()), None)
    }
}
