//! The caller's work on each part, while copy engines move other parts.

use crate::collective::{Communicator, CopyParts};
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::op::{ALL_GATHER, ALL_TO_ALL, Call};
use crate::stream::{Queue, Target};
use crate::types::Element;

impl Communicator {
    /// Gathers the `input` of all ranks into `output`, as [`all_gather`](crate::ProcessGroup::all_gather) does, and enqueues
    /// the caller's work for each part after the part's arrival: copy engines move a part while the queue works on another part.
    /// Enqueues and returns. The function `_pipelined_all_gather_and_consume` of PyTorch's symmetric memory does the same.
    ///
    /// `consume(source)` enqueues on `queue` work that reads elements `source * n..(source + 1) * n` of `output`, where `n` is
    /// the length of `input`. This rank's part is first, then the part of the next rank, and so on. Without elements, `consume`
    /// is also called for every rank, and no data are copied. An error of `consume` ends the call; work that is already enqueued
    /// stays enqueued, and the calls of other ranks are not affected.
    ///
    /// `consume` cannot call this communicator, which is busy until `consume` returns: calls, plans, launches of graphs and
    /// `close` are [`Error::Unsupported`](crate::Error::Unsupported). Calls of other threads wait.
    ///
    /// Copies read the `input` of peers as a [low-contention all-gather](crate::ProcessGroup::low_contention_all_gather) does.
    ///
    /// # Errors
    /// The errors of [`low_contention_all_gather`](crate::ProcessGroup::low_contention_all_gather), and of `consume`.
    pub fn all_gather_and_consume<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
        mut consume: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let call = Call::new(&ALL_GATHER, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.run_by_parts(&call, Some(CopyParts::new(&mut consume)), Target::of(&queue))?
            .wait_untyped(Target::of(&queue))
    }

    /// Sends part `p` of `input` to rank `p`, as [`all_to_all`](crate::ProcessGroup::all_to_all) does. Before a part is sent,
    /// the caller's work fills the part: copy engines move a part while the queue fills another part. Enqueues and
    /// returns. The function `_pipelined_produce_and_all2all` of PyTorch's symmetric memory does the same.
    ///
    /// `produce(destination)` enqueues on `queue` work that writes elements `destination * n..(destination + 1) * n` of `input`,
    /// where `n` is the length of `input` divided by the world size. The part of the next rank is first, this rank's part last.
    /// Without elements, `produce` is also called for every rank, and no data are copied. An error of `produce` fails the group,
    /// because other ranks wait for parts; work that is already enqueued stays enqueued. In a capture the error ends only the
    /// call. `produce` cannot call this communicator, like `consume` of
    /// [`all_gather_and_consume`](Self::all_gather_and_consume).
    ///
    /// Parts go through a workspace as large as `output`: see
    /// [`reserve_workspace`](crate::ProcessGroup::reserve_workspace). Copies directly into the `output` of a
    /// peer could not be cancelled after the peer has given up the call.
    ///
    /// # Errors
    /// The errors of [`all_to_all`](crate::ProcessGroup::all_to_all) and of `produce`;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a natively captured stream, and in a capture if the
    /// workspace is too small;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no room for the workspace.
    pub fn produce_and_all_to_all<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
        mut produce: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let call = Call::new(&ALL_TO_ALL, T::DTYPE).input(input.view_of()).output(output.view_of());
        self.run_by_parts(&call, Some(CopyParts::new(&mut produce)), Target::of(&queue))?
            .wait_untyped(Target::of(&queue))
    }
}
