//! Before the launches of a call: an entry in the history and, with `check_calls`, a comparison on all ranks.

use super::Inner;
use super::call_order::Lane;
use super::graph_part::Recorded;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Enqueue;

impl Inner {
    /// Enters a call in the history and, with `check_calls`, enqueues its comparison on all ranks. Returns whether the
    /// call is the first on the device.
    pub(super) fn announce(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<bool> {
        let compared = self.group.config().check_calls;
        if compared && recorded.is_none() && queue.stream().is_capturing()? {
            self.group.lose_count();
        }
        // Entered before the call can run: a reader of the device's progress looks the entry up.
        let fresh = match recorded {
            Some(recorded) => {
                recorded.note(call);
                false
            }
            None => {
                let fresh = self.arrive(lane, queue)?;
                self.group.note(call);
                fresh
            }
        };
        if compared {
            self.agree(call, fresh, queue)?;
        }
        Ok(fresh)
    }

    /// With `check_calls`, enqueues the comparison of a call without elements, which launches nothing else.
    pub(super) fn announce_empty(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        if self.group.world_size() == 1 || !self.group.config().check_calls {
            return Ok(());
        }
        lane.order_call(queue)?;
        self.announce(call, lane, queue, recorded).map(drop)
    }
}
