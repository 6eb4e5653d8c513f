//! Aborts that go on when their callers have stopped waiting. A process that ends waits for them, since libraries
//! take down what they work with while it does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::exit;

/// How long the end of the process is put off. Aborts whose graphs are never dropped do not end.
const LIMIT: Duration = Duration::from_secs(5);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
/// Whether `wait` is still to be called. What ends while the process does may abort after it was: then once more.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs `work` in a thread, and waits for it for a while. Whether it has ended.
pub(super) fn begin(work: impl FnOnce() + Send + 'static, patience: Duration) -> io::Result<bool> {
    *RUNNING.lock() += 1;
    if !REGISTERED.swap(true, Ordering::SeqCst) {
        exit::before(wait, "aborts of NCCL's may disturb the end of the process");
    }
    let running = Running;
    let (done, ended) = mpsc::channel();
    let run = move || {
        let _running = running;
        work();
        // Perhaps nobody waits any more.
        let _ = done.send(());
    };
    std::thread::Builder::new().name("symmetra-abort".to_owned()).spawn(run)?;
    Ok(ended.recv_timeout(patience).is_ok())
}

/// One of those that are counted, dropped also where its thread did not start.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ENDED.notify_all();
    }
}

extern "C" fn wait() {
    REGISTERED.store(false, Ordering::SeqCst);
    let until = Instant::now() + LIMIT;
    let mut running = RUNNING.lock();
    while *running > 0 && !ENDED.wait_until(&mut running, until).timed_out() {}
}
