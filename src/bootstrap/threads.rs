//! Ranks that are threads of one process.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::all_gather::Bootstrap;
use super::frame::{check_length, check_world_size};
use crate::error::{Error, Result};
use crate::fork::Maker;

/// One rank of a world of threads of this process.
///
/// [`Threads::new`] makes all of them; each is moved to its own thread.
///
/// ```
/// use std::time::{Duration, Instant};
/// use symmetra::bootstrap::{Bootstrap, Threads};
///
/// let deadline = Instant::now() + Duration::from_secs(5);
/// let ranks = Threads::new(3)?.into_iter().map(|mut rank| {
///     std::thread::spawn(move || rank.all_gather(&[rank.rank() as u8], deadline))
/// });
/// for thread in ranks.collect::<Vec<_>>() {
///     assert_eq!(thread.join().unwrap()?, [[0], [1], [2]]);
/// }
/// # Ok::<(), symmetra::Error>(())
/// ```
///
/// When a rank is dropped, also by a panic, the calls of the others fail at once with [`Error::PeerLost`].
pub struct Threads {
    shared: Arc<Shared>,
    rank: usize,
    world_size: usize,
    maker: Maker,
}

struct Shared {
    meeting: Mutex<ThreadMeeting>,
    changed: Condvar,
}

/// The current all-gather and the result of the previous one.
struct ThreadMeeting {
    round: u64,
    given: Vec<Option<Vec<u8>>>,
    result: Arc<[Vec<u8>]>,
    /// The error of every further call.
    failed: Option<Error>,
}

impl Threads {
    /// All ranks of a world of `world_size` threads, in order.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `world_size` is not in 1..=256.
    pub fn new(world_size: usize) -> Result<Vec<Self>> {
        check_world_size(world_size)?;
        let meeting = ThreadMeeting { round: 0, given: vec![None; world_size], result: Arc::new([]), failed: None };
        let shared = Arc::new(Shared { meeting: Mutex::new(meeting), changed: Condvar::new() });
        let maker = Maker::this();
        Ok((0..world_size).map(|rank| Self { shared: Arc::clone(&shared), rank, world_size, maker }).collect())
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Threads(rank {} of {})", self.rank, self.world_size)
    }
}

impl Bootstrap for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        check_length(bytes.len())?;
        self.maker.check("a bootstrap")?;
        let start = Instant::now();
        let mut meeting = self.shared.meeting.lock();
        if let Some(error) = &meeting.failed {
            return Err(error.clone());
        }
        let round = meeting.round;
        meeting.given[self.rank] = Some(bytes.to_vec());
        if meeting.given.iter().all(Option::is_some) {
            meeting.result = meeting.given.iter_mut().map(|bytes| bytes.take().unwrap_or_default()).collect();
            meeting.round += 1;
            self.shared.changed.notify_all();
        }
        // The result stays until every rank has fetched it: the next round needs this rank too.
        while meeting.round == round {
            if let Some(error) = &meeting.failed {
                return Err(error.clone());
            }
            if self.shared.changed.wait_until(&mut meeting, deadline).timed_out() && meeting.round == round {
                let missing = meeting.given.iter().position(Option::is_none);
                let error = Error::exchange_timeout(missing, start.elapsed(), "it did not take part in the all-gather");
                let error = meeting.failed.get_or_insert(error).clone();
                self.shared.changed.notify_all();
                return Err(error);
            }
        }
        let result = Arc::clone(&meeting.result);
        drop(meeting); // lets the others continue during the copy
        Ok(result.to_vec())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A forked child has copies of the ranks, but no thread waits there.
        if !self.maker.is_here() {
            return;
        }
        let why = if std::thread::panicking() { "its thread panicked" } else { "it was dropped" };
        let mut meeting = self.shared.meeting.lock();
        let error = Error::PeerLost { rank: self.rank, detail: format!(": {why}") };
        meeting.failed.get_or_insert(error);
        self.shared.changed.notify_all();
    }
}
