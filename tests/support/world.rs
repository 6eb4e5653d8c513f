//! Ranks as threads, and limits on the time of a test.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{Communicator, Config, Deadlines, Device, Stream};

use super::device::{device, fits, is_host};

/// One rank with everything it works with.
pub struct Rank {
    pub communicator: Communicator,
    pub stream: Stream,
    pub device: Device,
}

impl Rank {
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    pub fn world(&self) -> usize {
        self.communicator.world_size()
    }

    /// Waits for the stream and fails if its work did.
    pub fn finish(&self) {
        self.communicator.synchronize(&self.stream).unwrap();
    }
}

/// Runs `enqueue` on every rank; on the host device, on rank `late` only after all others have returned. A stream of
/// that device keeps memory for the largest number of commands that ever waited in its queue. The commands that are
/// enqueued here wait in the queues of all ranks but one, so a test that measures memory calls this for two late ranks
/// first. Collective.
pub fn behind<R>(rank: &Rank, late: usize, enqueue: impl FnOnce() -> R) -> R {
    let meet = || rank.communicator.group().barrier().unwrap();
    if !is_host() {
        return enqueue();
    }
    if rank.rank() == late {
        meet();
        return enqueue();
    }
    let result = enqueue();
    meet();
    result
}

/// Bytes of the guards that a group checks when it closes.
pub const GUARD_BYTES: u64 = 4096;

/// Small scratch with guards around it, and deadlines that a slow machine meets.
pub fn config() -> Config {
    let minute = Duration::from_secs(60);
    let mut config = Config::default();
    config.deadlines = Deadlines::default().open(minute).first_use(minute).steady(minute);
    config.heap_bytes = 8 << 20;
    config.guard_bytes = GUARD_BYTES;
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(64 << 10), 256 << 10);
    config
}

/// Opens the group of a rank on the device under test.
pub fn open(bootstrap: impl Bootstrap, config: &Config) -> symmetra::Result<Rank> {
    let device = device(bootstrap.rank());
    open_on(&device, bootstrap, config)
}

/// Opens the group of a rank on a device.
pub fn open_on(device: &Device, bootstrap: impl Bootstrap, config: &Config) -> symmetra::Result<Rank> {
    let communicator = Communicator::open(bootstrap, device, config.clone())?;
    let stream = Stream::new(device)?;
    Ok(Rank { communicator, stream, device: device.clone() })
}

/// Runs `body` as every rank of a world of threads, in an open group that is closed at the end. Returns nothing when
/// the world does not fit this machine.
pub fn threads<R: Send>(world: usize, config: &Config, body: impl Fn(&Rank) -> R + Sync) -> Vec<R> {
    meet(world, |bootstrap| {
        let rank = open(bootstrap, config).unwrap();
        let result = body(&rank);
        rank.communicator.close().unwrap();
        result
    })
}

/// Runs `body` as every rank of a world of threads, before any group is open.
pub fn meet<R: Send>(world: usize, body: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    if !fits(world) {
        return Vec::new();
    }
    let _turn = Turn::take(if is_host() { 1 } else { WORLDS });
    bounded(Duration::from_secs(300), || {
        std::thread::scope(|scope| {
            let ranks = Threads::new(world).unwrap();
            let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| body(rank))).collect();
            let results: Vec<_> = ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    })
}

/// Waits until no other world runs in this process, and keeps others from starting. A test that measures the process, or
/// makes worlds by other means than [`meet`], holds this for its whole length. Worlds of the thread that holds this run.
pub fn alone() -> Turn {
    Turn::take(WORLDS)
}

/// How many worlds run at once. Few, because ranks that spin for each other need the processors; but most worlds of tests of
/// failures wait for a deadline. Kernels of two worlds on one GPU may keep each other from running.
const WORLDS: usize = 2;

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// The right to run worlds in this thread.
pub struct Turn(usize);

impl Turn {
    /// A thread that has a turn takes no more.
    fn take(worlds: usize) -> Self {
        if HELD.get() > 0 {
            return Self(0);
        }
        let mut taken = TAKEN.lock();
        GIVEN_BACK.wait_while(&mut taken, |taken| *taken + worlds > WORLDS);
        *taken += worlds;
        HELD.set(worlds);
        Self(worlds)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0 > 0 {
            HELD.set(0);
            *TAKEN.lock() -= self.0;
            GIVEN_BACK.notify_all();
        }
    }
}

/// Aborts the process, with a message, when `body` takes longer than `limit`.
pub fn bounded<R>(limit: Duration, body: impl FnOnce() -> R) -> R {
    let (done, watched) = channel::<()>();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name} did not end within {limit:?}");
            std::process::exit(101);
        }
    });
    let result = body();
    drop(done);
    result
}

/// Polls until `so` is true; fails after `limit`.
pub fn until(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A barrier of a test's threads that does not depend on their group. When one thread does not come in time, the others
/// fail.
pub struct Gate {
    size: usize,
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    pub fn new(size: usize) -> Self {
        Self { size, arrived: Mutex::new(0), changed: Condvar::new() }
    }

    pub fn pass(&self) {
        let mut arrived = self.arrived.lock();
        *arrived += 1;
        let round = arrived.div_ceil(self.size);
        self.changed.notify_all();
        while *arrived < round * self.size {
            let late = self.changed.wait_for(&mut arrived, Duration::from_secs(40)).timed_out();
            assert!(!late, "{} of {} threads came", *arrived % self.size, self.size);
        }
    }
}
