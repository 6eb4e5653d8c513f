//! The turn of one call: its place in the order of a communicator's calls, from the lock to the last launch.

mod call_order;
mod check_calls;
mod first_call;
mod graph_part;
mod note_nccl;

use std::fmt;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Inner;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Target;

pub(in crate::collective) use call_order::{Lane, Turns};
use check_calls::compare;
pub(in crate::collective) use check_calls::probe_peers;
pub(in crate::collective) use graph_part::Recorded;

/// One call that holds the lock of the order of calls. Other threads wait until the turn is dropped.
pub(in crate::collective) struct Turn<'c> {
    /// Dropped first, so that the next call waits no longer than necessary.
    pub(in crate::collective) lane: MutexGuard<'c, Lane>,
    pub(in crate::collective) inner: &'c Arc<Inner>,
    pub(in crate::collective) queue: Target<'c>,
    recorded: Option<Arc<Recorded>>,
}

impl<'c> Turn<'c> {
    /// Waits for the calls of other threads. `what` names the call in errors.
    pub(in crate::collective) fn begin(
        inner: &'c Arc<Inner>,
        what: impl fmt::Display,
        queue: Target<'c>,
    ) -> Result<Self> {
        Self::begin_in(inner, what, queue, Recorded::of(inner, queue))
    }

    /// [`begin`](Self::begin) for a call that has requested its part of the graph before.
    pub(in crate::collective) fn begin_in(
        inner: &'c Arc<Inner>,
        what: impl fmt::Display,
        queue: Target<'c>,
        recorded: Option<Arc<Recorded>>,
    ) -> Result<Self> {
        Ok(Self { lane: inner.lane.take(what)?, inner, queue, recorded })
    }

    /// [`begin`](Self::begin), unless the call of another thread has its turn.
    pub(in crate::collective) fn try_begin(
        inner: &'c Arc<Inner>,
        what: impl fmt::Display,
        queue: Target<'c>,
    ) -> Result<Option<Self>> {
        let recorded = Recorded::of(inner, queue);
        Ok(inner.lane.try_take(what)?.map(|lane| Self { lane, inner, queue, recorded }))
    }

    /// The communicator's part of the graph that records the call; `None` for an eager call.
    pub(in crate::collective) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_deref()
    }

    /// Makes the next work of the queue wait for the last call.
    pub(in crate::collective) fn order(&mut self) -> Result<()> {
        self.lane.order_call(self.queue)
    }

    /// Runs `work`, which may contain a callback of the caller.
    pub(in crate::collective) fn work<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        self.inner.lane.work(|| work(self))
    }

    /// Before the launches of a call: enters the call in the history and, with `check_calls`, enqueues its comparison on all
    /// ranks. Returns whether the call is the first on the device.
    pub(in crate::collective) fn announce(&mut self, call: Call) -> Result<bool> {
        let fresh = match &self.recorded {
            Some(_) => false,
            None => self.arrive()?,
        };
        // Entered before the call can run, because readers of the device's progress look up the entry.
        self.enter(call)?;
        // In a group of one rank there are no calls to compare.
        if self.inner.group.config().check_calls && self.inner.group.world_size() > 1 {
            compare(&self.inner.arena, call, fresh, self.queue)?;
        }
        Ok(fresh)
    }

    /// With `check_calls`, enters a call without elements in the history and enqueues its comparison. Without
    /// `check_calls`, the call launches nothing and waits for no peer, so ranks may omit the call.
    pub(in crate::collective) fn announce_empty(&mut self, call: Call) -> Result<()> {
        if self.inner.group.world_size() == 1 || !self.inner.group.config().check_calls {
            return Ok(());
        }
        self.order()?;
        self.announce(call).map(drop)
    }

    /// Enters a call in the history, or in the list that each launch of a graph enters. A natively captured call is entered
    /// in neither, because it may run any number of times.
    fn enter(&self, call: Call) -> Result<()> {
        match &self.recorded {
            Some(recorded) => recorded.note(call),
            None if self.queue.stream().is_captured_natively()? => self.inner.group.lose_count(),
            None => self.inner.group.note(call),
        }
        Ok(())
    }
}
