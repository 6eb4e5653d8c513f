//! Work of the caller's own, part by part, while copy engines move other parts.

use crate::collective::{Communicator, Parts};
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_GATHER, ALL_TO_ALL, Call};
use crate::stream::Queue;
use crate::types::Element;

impl Communicator {
    /// Gathers the `input` of all ranks into `output`, as [`all_gather`](Self::all_gather) does, and enqueues the caller's
    /// work for each part as soon as the part is there: copy engines move a part while the queue works on another.
    /// Enqueues and returns. PyTorch's symmetric memory has such a function under the name `_pipelined_all_gather_and_consume`.
    ///
    /// `consume(source)` enqueues on `queue` what reads elements `source * n..(source + 1) * n` of `output`, where `n` is the
    /// length of `input`. The own part comes first, then that of the next rank, and so on. Without elements, `consume` is called
    /// for every rank too, and nothing is copied. An error of `consume` ends the call; work that is enqueued by then stays
    /// enqueued, and the calls of other ranks are not affected.
    ///
    /// `consume` cannot call this communicator, which is busy until `consume` returns: calls, plans, launches of graphs and
    /// `close` are [`Error::Unsupported`](crate::Error::Unsupported). Calls of other threads wait.
    ///
    /// Copies read the `input` of peers as a [low-contention all-gather](Self::low_contention_all_gather) does.
    ///
    /// # Errors
    /// Those of [`low_contention_all_gather`](Self::low_contention_all_gather), and of `consume`.
    pub fn all_gather_and_consume<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
        mut consume: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let call = Call::new(&ALL_GATHER, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.run_by_parts(&call, Some(Parts::new(&mut consume)), &queue)?.wait_untyped(&queue)
    }

    /// Sends part `p` of `input` to rank `p`, as [`all_to_all`](Self::all_to_all) does, and has the caller's work fill each
    /// part before: copy engines move a part while the queue fills another. Enqueues and returns. PyTorch's symmetric memory
    /// has such a function under the name `_pipelined_produce_and_all2all`.
    ///
    /// `produce(destination)` enqueues on `queue` what writes elements `destination * n..(destination + 1) * n` of `input`,
    /// where `n` is the length of `input` divided by the world size. The part of the next rank comes first, the own part last.
    /// Without elements, `produce` is called for every rank too, and nothing is copied. An error of `produce` ends the group,
    /// because other ranks wait for parts; work that is enqueued by then stays enqueued. In a capture the error ends the call
    /// alone. `produce` cannot call this communicator, as `consume` of [`all_gather_and_consume`](Self::all_gather_and_consume)
    /// cannot.
    ///
    /// Parts go through a workspace as large as `output`: see [`reserve_workspace`](Self::reserve_workspace). Copies straight
    /// into the `output` of a peer could not be called back when the peer has given up the call.
    ///
    /// # Errors
    /// Those of [`all_to_all`](Self::all_to_all) and of `produce`; [`Error::Unsupported`](crate::Error::Unsupported) for a
    /// natively captured stream, and in a capture if the workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no room for the workspace.
    pub fn produce_and_all_to_all<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
        mut produce: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let call = Call::new(&ALL_TO_ALL, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.run_by_parts(&call, Some(Parts::new(&mut produce)), &queue)?.wait_untyped(&queue)
    }
}
