//! What goes ahead of the launches of a call: the history learns of the call, and ranks compare it.

use super::Inner;
use super::call_order::Lane;
use super::graph_part::Recorded;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Enqueue;

impl Inner {
    /// Notes a call before its launches and, if asked to, has all ranks compare it. Whether it is the
    /// first on the device.
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
        // Noted before it can run: whoever reads of it may look it up.
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

    /// Has all ranks compare a call without elements, if asked to: nothing else is enqueued.
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
