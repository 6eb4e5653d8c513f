//! Aborts that continue after their callers have stopped waiting. The end of the process waits for them, because
//! libraries then release resources that an abort uses.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex};

use crate::exit;
use crate::fork::Maker;

/// How long the end of the process waits. An abort whose graphs are never dropped does not end.
const LIMIT: Duration = Duration::from_secs(5);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
/// The process whose aborts are counted.
static MAKER: OnceCell<Maker> = OnceCell::new();
/// Whether `wait` is registered. Aborts that begin during the end of the process, after it ran, register it again.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs `work` in a thread and waits for it for at most `patience`. Returns whether it has ended.
pub(super) fn begin(work: impl FnOnce() + Send + 'static, patience: Duration) -> io::Result<bool> {
    MAKER.get_or_init(Maker::this);
    *RUNNING.lock() += 1;
    if !REGISTERED.swap(true, Ordering::SeqCst) {
        exit::before(wait, "aborts of NCCL's may disturb the end of the process");
    }
    let running = Running;
    let (done, ended) = mpsc::channel();
    let run = move || {
        let _running = running;
        work();
        // The receiver may have stopped waiting.
        let _ = done.send(());
    };
    std::thread::Builder::new().name("symmetra-abort".to_owned()).spawn(run)?;
    Ok(ended.recv_timeout(patience).is_ok())
}

/// Counts one abort in progress. It is dropped, and so uncounted, also if its thread did not start.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ENDED.notify_all();
    }
}

extern "C" fn wait() {
    // A forked child has no thread that aborts.
    if MAKER.get().is_none_or(|maker| !maker.is_here()) {
        return;
    }
    REGISTERED.store(false, Ordering::SeqCst);
    let until = Instant::now() + LIMIT;
    let mut running = RUNNING.lock();
    while *running > 0 && !ENDED.wait_until(&mut running, until).timed_out() {}
}
