//! The memory of all ranks for the caller's kernels.

mod put;
mod signal;

use std::time::Duration;

use super::Communicator;
use crate::bootstrap::LONGEST;
use crate::error::{Error, Result};
use crate::memory::HeapView;
use crate::stream::{Queue, Target};

pub(in crate::collective) use signal::{launch_signal, own_signal};

impl Communicator {
    /// The memory of all ranks for a kernel that you enqueue on `queue`, as an argument of the functions of
    /// `symmetra/device/heap.cuh`. With this view a kernel loads, stores, copies, signals and atomically modifies data in the
    /// symmetric buffers of any rank. Not collective; does not block.
    ///
    /// Waits of the kernel give up after [`Deadlines::steady`](crate::Deadlines::steady); then
    /// [`synchronize`](Self::synchronize) returns the cause. The library does not order the kernel relative to the group's
    /// calls on other ranks: use signals between the kernels of the ranks.
    ///
    /// The view is valid until the communicator is closed. In a capture the graph owns the memory of the group from this call
    /// on, and its launches are refused after the communicator was closed or has failed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; the group's error if the group has failed or is closed.
    pub fn heap<'op>(&self, queue: impl Queue<'op>) -> Result<HeapView> {
        self.heap_on(None, Target::of(&queue))
    }

    /// [`heap`](Self::heap), whose waits give up after `deadline`.
    ///
    /// # Errors
    /// The errors of [`heap`](Self::heap), and [`Error::InvalidArgument`] for a deadline below 1 ms or above 24 h.
    pub fn heap_within<'op>(&self, deadline: Duration, queue: impl Queue<'op>) -> Result<HeapView> {
        self.heap_on(Some(deadline), Target::of(&queue))
    }

    /// Whether links between the devices of all ranks support atomics. Kernels may then modify words of every rank with the
    /// functions of `symmetra/device/heap.cuh` that add, exchange and compare. Loads, stores, copies and signals need no such
    /// links. Equal on all ranks; true on the CPU, and false if the GPU of another rank is invisible to a rank's process.
    pub fn has_native_atomics(&self) -> bool {
        self.group().capabilities().native_atomics
    }

    /// The heap for kernels on a queue. Their waits give up after `deadline`, by default the group's steady deadline.
    pub(crate) fn heap_on(&self, deadline: Option<Duration>, queue: Target<'_>) -> Result<HeapView> {
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
