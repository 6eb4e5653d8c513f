//! Collectives by copy engines.

use super::both;
use crate::collective::{Communicator, Pending};
use crate::environment::Coordinator;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_GATHER, Call, REDUCE_SCATTER};
use crate::stream::Queue;
use crate::types::{Element, Reduction};

both! {
    /// [`all_gather`](Self::all_gather) by the copy engines, on a stream of the communicator's own that waits for the
    /// queue: what is enqueued behind this call runs beside the copies, up to [`Pending::wait`]. No multiprocessor
    /// moves data; each of the two barriers is a kernel of one block. Own kernels alone serve this form.
    ///
    /// Each rank copies from the `input` of the others where `input` is symmetric or adopted memory, the same elements
    /// of it on every rank. Other memory is copied first, into a workspace of as many bytes in the heap of symmetric
    /// memory: see [`reserve_workspace`](Self::reserve_workspace). So is adopted memory where ranks with GPUs are
    /// threads of one process. `output` is any memory. In place on every rank or on none. No stream may touch either
    /// operand before the end.
    ///
    /// Copies cannot be called back: where a call fails, the copies still read the inputs of others and write into the
    /// own `output`. So adopted memory stays allocated until every rank has closed or dropped its communicator.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn overlap(communicator: &Communicator, shard: &SymmetricBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let pending = communicator.low_contention_all_gather(shard, all, stream)?;
    ///     // Kernels enqueued here run beside the copies.
    ///     pending.wait(stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather); [`Error::Unsupported`](crate::Error::Unsupported) for a stream that
    /// its owner captures, and in a capture where the workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when the heap has no room for the workspace.
    pub fn low_contention_all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        let call = Call::new(&ALL_GATHER, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.run_low_contention(&call, &queue)
    }

    /// [`reduce_scatter`](Self::reduce_scatter), with its bits, by the copy engines, on a stream of the communicator's
    /// own that waits for the queue: see [`low_contention_all_gather`](Self::low_contention_all_gather).
    ///
    /// Each rank copies the parts of its `input` to the ranks that reduce them, into a workspace of as many bytes as
    /// the input has; both operands are any memory. When all parts are there a kernel reduces them, in rank order:
    /// multiprocessors are used for that step alone, and the kernel reads and writes local memory.
    ///
    /// # Errors
    /// Those of [`reduce_scatter`](Self::reduce_scatter); [`Error::Unsupported`](crate::Error::Unsupported) for a
    /// stream that its owner captures, and in a capture where the workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when the heap has no room for the workspace.
    pub fn low_contention_reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        let call = Call::new(&REDUCE_SCATTER, T::DTYPE).options(reduction);
        self.run_low_contention(&call.input(input.view_of()).output(output.view_of()), &queue)
    }
}
