//! Ranks as threads, and bounds on how long a test may take.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{Communicator, Config, Deadlines, Device, Stream};

use super::device::{device, fits};

/// One rank with what it needs to work.
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

    /// Waits for the stream and for a verdict on its work.
    pub fn finish(&self) {
        self.communicator.synchronize(&self.stream).unwrap();
    }
}

/// Small scratch, deadlines that a slow machine keeps.
pub fn config() -> Config {
    let minute = Duration::from_secs(60);
    let mut config = Config::default();
    config.deadlines = Deadlines { open: minute, first_use: minute, steady: minute };
    config.heap_bytes = 8 << 20;
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

/// Runs `body` as every rank of a world of threads, in an open group that is closed in the end.
/// Empty when the world does not fit this machine.
pub fn threads<R: Send>(world: usize, config: &Config, body: impl Fn(&Rank) -> R + Sync) -> Vec<R> {
    meet(world, |bootstrap| {
        let rank = open(bootstrap, config).unwrap();
        let result = body(&rank);
        rank.communicator.close().unwrap();
        result
    })
}

/// Runs `body` as every rank of a world of threads that have not opened anything yet.
pub fn meet<R: Send>(world: usize, body: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    if !fits(world) {
        return Vec::new();
    }
    let _alone = alone();
    bounded(Duration::from_secs(300), || {
        std::thread::scope(|scope| {
            let ranks = Threads::new(world).unwrap();
            let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| body(rank))).collect();
            let results: Vec<_> = ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    })
}

/// One world at a time: ranks that spin for each other need the processors. A test that measures
/// the process holds this from the first world to the last.
pub fn alone() -> ReentrantMutexGuard<'static, ()> {
    static ALONE: ReentrantMutex<()> = ReentrantMutex::new(());
    ALONE.lock()
}

/// Ends the process when `body` takes longer than `limit`: a test that hangs says so.
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

/// Asks until it is so, or fails after `limit`.
pub fn until(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Where threads of a test meet, whatever became of their group. A thread that does not come in
/// time makes the others fail.
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
