//! The turn of one call: its place in the order of a communicator's calls, from the lock to the last launch.

mod call_order;
mod check_calls;
mod first_call;
mod graph_part;
mod held;
mod mark;
mod note_nccl;

use std::fmt;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Inner;
use crate::error::Result;
use crate::group::{Announced, EnqueuedCall};
use crate::stream::Target;

pub(in crate::collective) use call_order::{Lane, TurnLock};
use check_calls::compare;
pub(in crate::collective) use check_calls::probe_peers;
pub(in crate::collective) use graph_part::Recorded;
use held::held;
use mark::Mark;

/// One call that holds the lock of the order of calls. Other threads wait until the turn is dropped.
pub(in crate::collective) struct Turn<'c> {
    /// Dropped first, so that the next call waits no longer than necessary.
    pub(in crate::collective) lane: MutexGuard<'c, Lane>,
    pub(in crate::collective) inner: &'c Arc<Inner>,
    pub(in crate::collective) queue: Target<'c>,
    recorded: Option<Arc<Recorded>>,
    /// Marks the call for tools until the turn ends.
    mark: Option<Mark>,
    /// The number of the capture by which the stream's owner records the call.
    native: Option<u64>,
    is_ordered: bool,
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
        let lane = inner.lane.take(what)?;
        Self::with(lane, inner, queue, recorded)
    }

    /// [`begin`](Self::begin), unless the call of another thread has its turn.
    pub(in crate::collective) fn try_begin(
        inner: &'c Arc<Inner>,
        what: impl fmt::Display,
        queue: Target<'c>,
    ) -> Result<Option<Self>> {
        let recorded = Recorded::of(inner, queue);
        inner.lane.try_take(what)?.map(|lane| Self::with(lane, inner, queue, recorded)).transpose()
    }

    fn with(
        lane: MutexGuard<'c, Lane>,
        inner: &'c Arc<Inner>,
        queue: Target<'c>,
        recorded: Option<Arc<Recorded>>,
    ) -> Result<Self> {
        let native = match recorded {
            Some(_) => None,
            None => queue.stream().native_capture()?,
        };
        Ok(Self { lane, inner, queue, recorded, mark: None, native, is_ordered: false })
    }

    /// The communicator's part of the graph that records the call; `None` for an eager call.
    pub(in crate::collective) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_deref()
    }

    /// Whether the stream's owner captures the call. The graph may run any number of times.
    pub(in crate::collective) fn is_captured_natively(&self) -> bool {
        self.native.is_some()
    }

    /// Makes the next work of the queue wait for the last call. A call in a capture of the library is ordered by the graph, and
    /// the graph at each launch.
    pub(in crate::collective) fn order(&mut self) -> Result<()> {
        let stream = self.queue.stream();
        self.inner.check_device("stream", stream.device())?;
        if self.recorded.is_some() {
            return Ok(());
        }
        self.is_ordered = true;
        match self.native {
            Some(capture) => self.lane.order_captured(capture, stream, || held(self.inner)),
            None => self.lane.order(stream),
        }
    }

    /// Ends the work of a call whose outcome is `result`. Work that was enqueued before a failure has its place in the order too.
    pub(in crate::collective) fn end<T>(&mut self, result: Result<T>) -> Result<T> {
        if !std::mem::take(&mut self.is_ordered) {
            return result;
        }
        let stream = self.queue.stream();
        let ended = match self.native {
            Some(capture) => self.lane.end_captured(capture, stream),
            None => self.lane.end(stream),
        };
        result.and_then(|value| ended.map(|()| value))
    }

    /// Runs `work`, which may contain a callback of the caller.
    pub(in crate::collective) fn work<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        self.inner.lane.work(|| work(self))
    }

    /// Before the launches of a call: enters the call in the history and, with `check_calls`, enqueues its comparison on all
    /// ranks.
    pub(in crate::collective) fn announce(&mut self, call: EnqueuedCall) -> Result<Announced> {
        self.announce_part(call, call.bytes)
    }

    /// [`announce`](Self::announce) for a launch of `bytes` bytes of a call that takes several launches.
    pub(in crate::collective) fn announce_part(&mut self, call: EnqueuedCall, bytes: u64) -> Result<Announced> {
        let fresh = match &self.recorded {
            Some(_) => false,
            None => self.arrive()?,
        };
        self.mark = Some(Mark::of(&self.inner.group, &call));
        // Entered before the call can run, because readers of the device's progress look up the entry.
        self.enter(call);
        let announced = Announced { is_first: fresh, label: self.inner.group.label_of(&call, bytes) };
        // In a group of one rank there are no calls to compare.
        if self.inner.group.config().check_calls && self.inner.group.world_size() > 1 {
            compare(&self.inner.arena, call, announced, self.queue)?;
        }
        Ok(announced)
    }

    /// With `check_calls`, enters a call without elements in the history and enqueues its comparison. Without
    /// `check_calls`, the call launches nothing and waits for no peer, so ranks may omit the call.
    pub(in crate::collective) fn announce_empty(&mut self, call: EnqueuedCall) -> Result<()> {
        if self.inner.group.world_size() == 1 || !self.inner.group.config().check_calls {
            return Ok(());
        }
        self.order()?;
        self.announce(call).map(drop)
    }

    /// Enters a call in the history, or in the list that each launch of a graph enters. A natively captured call is entered
    /// in neither, because it may run any number of times.
    fn enter(&self, call: EnqueuedCall) {
        match &self.recorded {
            Some(recorded) => recorded.note(call),
            None if self.is_captured_natively() => self.inner.group.lose_count(),
            None => self.inner.group.note(call),
        }
    }
}
