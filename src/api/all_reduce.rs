//! All-reduces.

use super::both;
use crate::collective::{BoundAllReduce, Communicator};
use crate::environment::Coordinator;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_REDUCE, AllReduceOptions, Call};
use crate::stream::Queue;
use crate::types::Element;

both! {
    /// Sums `input` over all ranks into `output`, which has as many elements. Enqueues and returns; the operands are
    /// used when the queue gets to the call.
    ///
    /// The bits of the result are equal on all ranks and from run to run: [`Reduction`](crate::Reduction) says which
    /// bits. The ring and recursive doubling reduce floating types in another order and round at every rank, unless
    /// [`Config::determinism`](crate::Config) forbids these algorithms. `input` and `output` may be the same memory
    /// but may not overlap otherwise. Any number of elements, also 0; any element-aligned address. Symmetric memory of
    /// another group is plain memory here. Where a capture takes a plain buffer that the capture took before, the
    /// captures of all ranks do: [`Graph::register`](crate::Graph::register) compares.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for operands of different lengths, of another
    /// device, or that overlap; the group's error when the group failed before;
    /// [`Error::Device`](crate::Error::Device) when the launch fails.
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
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let buffer = buffer.view_of();
        self.run(&Call::new(&ALL_REDUCE, T::DTYPE).input(buffer.clone()).output(buffer), &queue)
    }

    /// Reduces `input` over all ranks into `output`: [`all_reduce`](Self::all_reduce) with a
    /// [`Reduction`](crate::Reduction), an [`Algorithm`](crate::Algorithm) or both. A message larger than one call of
    /// a push algorithm takes is sent in several. Over one rank the result is the input. Own kernels alone serve a call
    /// that names an algorithm.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce); [`Error::Unsupported`](crate::Error::Unsupported) when the algorithm
    /// cannot carry the type, reach the operands, or keep to [`Config::determinism`](crate::Config).
    pub fn all_reduce_with<'op, T: Element>(
        &self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let call = Call::new(&ALL_REDUCE, T::DTYPE).options(options);
        self.run(&call.input(input.view_of()).output(output.view_of()), &queue)
    }

    /// Binds an all-reduce (a sum) of `input` into `output`: checks and plans the call once, for any number of
    /// [`BoundAllReduce::enqueue`]. The operands are the same memory or do not overlap. Not collective; does not block.
    /// Own kernels alone serve bound calls.
    ///
    /// The operands must outlive what is bound to them:
    /// ```compile_fail,E0515
    /// # use symmetra::*;
    /// fn leak(communicator: &Communicator) -> Result<BoundAllReduce<'_>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     communicator.bind_all_reduce(&buffer, &buffer)
    /// }
    /// ```
    /// Here they do:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'a>(communicator: &'a Communicator, buffer: &'a SymmetricBuffer<f32>) -> Result<BoundAllReduce<'a>> {
    ///     communicator.bind_all_reduce(buffer, buffer)
    /// }
    /// ```
    /// The communicator cannot be closed while something is bound:
    /// ```compile_fail,E0505
    /// # use symmetra::*;
    /// fn close(communicator: Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let bound = communicator.bind_all_reduce(&buffer, &buffer)?;
    ///     communicator.close()?;
    ///     bound.enqueue(stream)
    /// }
    /// ```
    /// After the last use it can:
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
    /// Those of [`all_reduce`](Self::all_reduce) that do not concern a stream.
    pub fn bind_all_reduce<'a, T: Element>(
        &'a self,
        input: impl Operand<'a, T>,
        output: impl Operand<'a, T>,
    ) -> Result<BoundAllReduce<'a>> {
        self.bind_all_reduce_with(AllReduceOptions::default(), input, output)
    }

    /// Binds an all-reduce with a reduction, an algorithm or both: see [`bind_all_reduce`](Self::bind_all_reduce).
    ///
    /// # Errors
    /// Those of [`all_reduce_with`](Self::all_reduce_with) that do not concern a stream.
    pub fn bind_all_reduce_with<'a, T: Element>(
        &'a self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'a, T>,
        output: impl Operand<'a, T>,
    ) -> Result<BoundAllReduce<'a>> {
        let call = Call::new(&ALL_REDUCE, T::DTYPE).options(options);
        self.bind(&call.input(input.view_of()).output(output.view_of()), None)
    }
}
