//! The memory of all ranks for kernels of the caller.

use std::time::Duration;

use super::Communicator;
use crate::bootstrap::LONGEST;
use crate::error::{Error, Result};
use crate::memory::HeapView;
use crate::stream::{Enqueue, Queue};

impl Communicator {
    /// The memory of all ranks for a kernel that you enqueue on `queue`: what the functions of `symmetra/device/heap.cuh` take.
    /// With it a kernel loads, stores, copies, changes atomically and signals what lies in the symmetric buffers of any rank.
    /// Asks no peer, and does not block.
    ///
    /// Waits of the kernel give up after [`Deadlines::steady`](crate::Deadlines::steady); then
    /// [`synchronize`](Self::synchronize) says why. The library does not know of the kernel's order among the group's
    /// calls: signals between the kernels of the ranks make it.
    ///
    /// The view is valid until the communicator is closed. In a capture the graph owns the memory of the group from here on, and
    /// its launches are refused once the communicator is closed or has failed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; the group's error if the group has failed or is closed.
    pub fn heap<'op>(&self, queue: impl Queue<'op>) -> Result<HeapView> {
        self.heap_on(None, &queue)
    }

    /// [`heap`](Self::heap), whose waits give up after `deadline`.
    ///
    /// # Errors
    /// Those of [`heap`](Self::heap), and [`Error::InvalidArgument`] for a deadline below 1 ms or above 24 h.
    pub fn heap_within<'op>(&self, deadline: Duration, queue: impl Queue<'op>) -> Result<HeapView> {
        self.heap_on(Some(deadline), &queue)
    }

    /// Whether links between the devices of all ranks have atomics: kernels then change words of every rank by the functions of
    /// `symmetra/device/heap.cuh` that add, exchange and compare. Loads, stores, copies and signals need no such links. Equal on
    /// all ranks; true on the CPU, and false where a rank's process does not see the GPU of another.
    pub fn has_native_atomics(&self) -> bool {
        self.group().capabilities().native_atomics
    }

    /// The heap for kernels on a queue, whose waits give up after `deadline` or that of the group.
    pub(crate) fn heap_on(&self, deadline: Option<Duration>, queue: &impl Enqueue) -> Result<HeapView> {
        let _entered = self.group().enter()?;
        self.device().check_same("stream", queue.stream().device())?;
        let deadline = deadline.unwrap_or(self.group().config().deadlines.steady);
        if deadline < Duration::from_millis(1) || deadline > LONGEST {
            return Err(Error::invalid("the deadline", format!("{deadline:?}"), "it must be 1 ms to 24 h"));
        }
        if let Some(recording) = queue.recording() {
            recording.keep(self.0.arena.clone());
            self.record_one_sided(queue);
        }
        Ok(HeapView::new(&self.0.arena, deadline))
    }
}
