//! Failed calls that keep their streams: see [`Config::hold_after_failure`](super::Config::hold_after_failure).

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::living::living;
use super::{Group, Health};
use crate::error::Result;
use crate::exit;
use crate::stream::Stream;

/// Pause between two looks at a stream.
const PAUSE: Duration = Duration::from_micros(20);
/// How long the end of the process waits for another thread that opens a group.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Set when [`end`] is registered.
static ENDS: OnceCell<()> = OnceCell::new();

impl Health {
    /// From here on a kernel of this rank that gives up does not end, until [`let_go`](Self::let_go) or until the process ends.
    pub(super) fn hold(&self) {
        self.own().hold.store(1, Ordering::Release);
        ENDS.get_or_init(|| exit::before(end, "a failed call may keep the process from ending"));
    }

    /// Lets failed kernels of this rank end, now and later.
    pub(super) fn let_go(&self) {
        self.own().hold.store(0, Ordering::Release);
    }

    /// Whether a kernel of this rank that gives up does not end.
    fn holds(&self) -> bool {
        self.own().hold.load(Ordering::Relaxed) != 0
    }
}

/// Lets all failed kernels of this process end: a device runtime may wait for them.
extern "C" fn end() {
    if let Some(ranks) = living().and_then(|ranks| ranks.try_lock_for(LAST_LOOK)) {
        ranks.iter().filter_map(Weak::upgrade).for_each(|rank| rank.let_go());
    }
}

impl Group {
    /// Blocks until the work of `stream` is done. A failure of the group that holds the stream ends the wait.
    pub(crate) fn wait_for(&self, stream: &Stream) -> Result<()> {
        while self.0.health.holds() {
            if stream.is_done()? {
                return Ok(());
            }
            self.0.health.check()?;
            std::thread::sleep(PAUSE);
        }
        stream.synchronize()
    }
}
