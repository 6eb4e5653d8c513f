//! How a rank leaves its group without a wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Communicator, Inner};
use crate::stream::{Ending, drop_at_end};

/// How long the peers wait for the exact number of finished calls. After this the group fails for them.
const ENOUGH: Duration = Duration::from_secs(1);
/// How long kernels of graphs that a stream's owner captured, which the order of calls does not contain, may take to give up.
const GRAPHS: Duration = Duration::from_millis(100);

impl Communicator {
    /// Leaves the group without the other ranks and without a wait: calls of this rank that are under way give up, and
    /// every later call fails with [`Error::Closed`](crate::Error::Closed), also on clones. Contents that the calls under
    /// way would have written are undefined. Not collective. Returns at once, from any thread; another thread then notifies the
    /// peers and frees memory, when the work of this communicator has ended. The process may end before that.
    ///
    /// Peers without a call that needs this rank stay well, as after [`depart`](Self::depart). On a peer that has made such
    /// a call, the call and later ones fail with [`Error::PeerLost`](crate::Error::PeerLost). If messages between pairs or
    /// launches of graphs that a stream's owner captured are cut off, or if the work does not end within a second, the
    /// group fails on all peers, as by [`abort`](Self::abort).
    ///
    /// Streams that the program lent may be destroyed afterwards. Operands must live until the work is done, which
    /// `synchronize` of the stream reports.
    pub fn abandon(self) {
        if self.0.group.quit() {
            let since = Instant::now();
            drop_at_end(Arc::new(Abandoned { inner: self.0, since, left: AtomicBool::new(false) }));
        }
    }
}

/// A communicator whose rank has given up its calls.
struct Abandoned {
    inner: Arc<Inner>,
    since: Instant,
    /// Whether the peers know that the rank has left.
    left: AtomicBool,
}

impl Ending for Abandoned {
    fn is_over(&self) -> bool {
        let Inner { group, .. } = &*self.inner;
        let (over, waited) = (self.inner.is_idle(), self.since.elapsed());
        let settled = over && (!group.is_unnumbered() || group.has_given_up() || waited > GRAPHS);
        if (settled || waited > ENOUGH) && !self.left.swap(true, Ordering::Relaxed) {
            group.abandon(settled);
        }
        over && self.left.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// Whether all calls are done, except natively captured calls, or have failed with their device. False while another
    /// thread makes a call. Does not block.
    fn is_idle(&self) -> bool {
        let lane = self.lane.try_take("a departure").ok().flatten();
        let side = self.side.try_lock();
        let (Some(lane), Some(side)) = (lane, side) else { return false };
        [lane.is_done(), side.lane.is_done()].into_iter().all(|done| done.unwrap_or(true))
    }
}
