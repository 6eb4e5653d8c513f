//! Collectives by copy engines.

use crate::backend::ProcessGroup;
use crate::collective::Pending;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_GATHER, Call, REDUCE_SCATTER};
use crate::stream::{Queue, Target};
use crate::types::{Element, Reduction};

impl ProcessGroup {
    /// [`all_gather`](Self::all_gather) by the copy engines, on a side stream that waits for the queue. Work enqueued
    /// after this call runs concurrently with the copies, up to [`Pending::wait`]. No multiprocessor moves data; each of
    /// the two barriers is a kernel of one block. Only symmetra kernels serve this form.
    ///
    /// Each rank copies from the `input` of the others, if `input` is symmetric or registered memory at the same offset
    /// on every rank. Other memory is staged in a workspace of the same size in the symmetric heap: see
    /// [`reserve_workspace`](Self::reserve_workspace). Registered memory is also staged if ranks with GPUs are threads of
    /// one process. `output` is any memory. Either all ranks call in place or none does. A stream may read or write
    /// the operands only after [`Pending::wait`] on that stream.
    ///
    /// The call waits for its queue, but not for calls of the communicator on other streams. Later calls on other streams
    /// do not wait for this call either. If such calls use the same memory, let the streams wait for each other.
    ///
    /// Copies cannot be cancelled: after a failed call, they still read the inputs of peers and write this rank's
    /// `output`. So registered memory stays allocated until every rank has closed or dropped its communicator.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn overlap(communicator: &Communicator, shard: &SymmetricBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let pending = communicator.low_contention_all_gather(shard, all, stream)?;
    ///     // Kernels enqueued here run concurrently with the copies.
    ///     pending.wait(stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`all_gather`](Self::all_gather); [`Error::Unsupported`](crate::Error::Unsupported) for a natively
    /// captured stream, and in a capture if the workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no room for the workspace.
    pub fn low_contention_all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        let call = Call::new(&ALL_GATHER, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.calls.run_low_contention(&call, Target::of(&queue))
    }

    /// [`reduce_scatter`](Self::reduce_scatter) by the copy engines, with equal bits, on a side stream that waits for
    /// the queue: see [`low_contention_all_gather`](Self::low_contention_all_gather).
    ///
    /// Each rank copies the parts of its `input` to the ranks that reduce them, into a workspace of the size of the
    /// input. Both operands are any memory. A kernel then reduces the parts in rank order. Only this kernel uses
    /// multiprocessors, and it reads and writes only local memory.
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter); [`Error::Unsupported`](crate::Error::Unsupported) for a
    /// natively captured stream, and in a capture if the workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no room for the workspace.
    pub fn low_contention_reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        let call = Call::new(&REDUCE_SCATTER, T::DTYPE).options(reduction);
        self.calls.run_low_contention(&call.input(input.view_of()).output(output.view_of()), Target::of(&queue))
    }

    /// Allocates a workspace in the symmetric heap for low-contention collectives of operands of up to `bytes` bytes.
    /// Collective; blocks. Without a large enough workspace, the next call allocates one: that call is collective and
    /// blocks, and a captured call is refused. The old workspace is freed when no call or graph uses it any more.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no contiguous free space of that size;
    /// [`Error::Mismatch`](crate::Error::Mismatch) if ranks request different sizes;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a group that spans hosts.
    pub fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        self.calls.reserve_workspace(bytes)
    }
}
