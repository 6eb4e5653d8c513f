//! Before the launches of a call: an entry in the history and, with `check_calls`, a comparison on all ranks.

use super::Inner;
use super::call_order::Lane;
use super::graph_part::Recorded;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Target;

impl Inner {
    /// Enters a call in the history and, with `check_calls`, enqueues its comparison on all ranks. Returns whether the
    /// call is the first on the device.
    pub(super) fn announce(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<bool> {
        let fresh = match recorded {
            Some(_) => false,
            None => self.arrive(lane, queue)?,
        };
        // Entered before the call can run, because readers of the device's progress look up the entry.
        self.enter(call, queue, recorded)?;
        // In a group of one rank there are no calls to compare.
        if self.group.config().check_calls && self.group.world_size() > 1 {
            self.agree(call, fresh, queue)?;
        }
        Ok(fresh)
    }

    /// With `check_calls`, enters a call without elements in the history and enqueues its comparison. Without
    /// `check_calls`, the call launches nothing and waits for no peer, so ranks may omit the call.
    pub(super) fn announce_empty(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        if self.group.world_size() == 1 || !self.group.config().check_calls {
            return Ok(());
        }
        lane.order_call(queue)?;
        self.announce(call, lane, queue, recorded).map(drop)
    }

    /// Enters a call in the history, or in the list that each launch of a graph enters. A natively captured call is entered
    /// in neither, because it may run any number of times.
    fn enter(&self, call: Call, queue: Target<'_>, recorded: Option<&Recorded>) -> Result<()> {
        match recorded {
            Some(recorded) => recorded.note(call),
            None if queue.stream().is_captured_natively()? => self.group.lose_count(),
            None => self.group.note(call),
        }
        Ok(())
    }
}
