//! *We*: the ranks that work together, agreed on how, and who of them is alive.

mod call;
mod capabilities;
mod config;
mod health;
mod history;
mod open;
mod control_page;
mod tuning;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::bootstrap::mesh::Mesh;
use crate::bootstrap::monitor::Monitor;
use crate::bootstrap::{Bootstrap, until};
use crate::device::{Device, Memory};
use crate::error::{Error, Operation, Result};

pub(crate) use call::{BY_NCCL, Call};
pub(crate) use capabilities::Capabilities;
pub use config::{Config, Deadlines, Determinism};
pub(crate) use control_page::Finding;
use control_page::{Cause, PageMapping, Stop};
pub use open::boot_id;
pub use tuning::{TunedRow, TunedTable, TunedTiming, Tuning};

/// Most ranks a group may have.
pub const MAX_WORLD_SIZE: usize = crate::kernel::args::kMaxWorld as usize;

/// The ranks of one host that work together. Cheap to clone; usable from any thread.
///
/// Opened by every rank at once; fails as one: after a rank died, a deadline passed or
/// somebody called [`abort`](Self::abort), every call returns the same error, on every rank,
/// and nothing spins. Dropped without [`close`](crate::Communicator::close), the rank counts
/// as lost by the others.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    id: u64,
    rank: usize,
    world_size: usize,
    device: Device,
    config: Config,
    health: Arc<Health>,
    /// For every rank the lowest rank of its process.
    processes: Vec<usize>,
    capabilities: Capabilities,
    mesh: Mutex<Mesh>,
    monitor: Mutex<Option<Monitor>>,
    /// Whether the group was closed. Read for as long as a call takes from its look to what it enqueues, so that
    /// closing comes before a call or behind it; no call ever waits for it.
    closed: RwLock<bool>,
}

/// A call that began in an open group, which closes when it has enqueued what it will.
#[must_use = "dropped, the group may close before the call is enqueued"]
pub(crate) struct Entered<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, bool>);

/// What is known of the ranks' lives.
struct Health {
    rank: usize,
    /// The device's view of the own page; dropped before that is unmapped.
    _pinned: Memory,
    /// The page of every rank.
    pages: Vec<PageMapping>,
    /// The first failure, kept for good.
    failure: OnceCell<Error>,
    deadlines: Deadlines,
}

/// Numbers groups of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Group {
    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> usize {
        self.0.world_size
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The settings all ranks agreed on.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Blocks until every rank called it. Says nothing about work on streams.
    ///
    /// # Errors
    /// The group's error; [`Error::Timeout`] after `deadlines.open`.
    pub fn barrier(&self) -> Result<()> {
        self.exchange(Bootstrap::barrier)
    }

    /// Gives `bytes` to every rank and returns those of every rank, in rank order. Blocks.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(|mesh, deadline| Bootstrap::all_gather(mesh, bytes, deadline))
    }

    /// Stops the group on every rank: waits on all devices give up within milliseconds and every
    /// later call fails with [`Error::Aborted`]. Only writes flags: may be called from any thread
    /// at any time, more than once.
    pub fn abort(&self) {
        let stop = Stop { cause: Cause::Abort, by: self.0.rank, culprit: self.0.rank };
        self.0.health.pages.iter().for_each(|page| page.stop(stop));
    }

    /// Makes `error` the group's failure, unless there is one, and stops the group on every rank: a death and a
    /// rank that is late by their names, everything else as by [`abort`](Self::abort). What the failure is.
    pub(crate) fn fail(&self, error: Error) -> Error {
        match error {
            Error::PeerLost { .. } | Error::Timeout { .. } => self.0.health.fail(error),
            _ => {
                // First: whoever looks when the flags are there finds out why.
                let failure = self.0.health.keep(error);
                self.abort();
                failure
            }
        }
    }

    /// The error of another library's operation that did not end in time.
    pub(crate) fn late(&self, operation: Operation, waited: Duration) -> Error {
        self.0.health.late(operation, waited)
    }

    /// Whether the group is open and every rank well, as far as this rank knows. Does not block.
    ///
    /// # Errors
    /// [`Error::Closed`], or what went wrong first.
    pub fn check(&self) -> Result<()> {
        self.enter().map(drop)
    }

    /// The same for what enqueues: until the result is dropped the group is not closed, and the memory of peers
    /// stays mapped. Does not block.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        // Not to be had: the group is about to close.
        let closed = self.0.closed.try_read().filter(|closed| !**closed).ok_or(Error::Closed)?;
        self.0.health.check()?;
        Ok(Entered(closed))
    }

    /// For every rank the lowest rank of its process: equal for ranks that are threads of one.
    pub(crate) fn processes(&self) -> &[usize] {
        &self.0.processes
    }

    /// Whether all ranks are threads of one process.
    pub(crate) fn is_one_process(&self) -> bool {
        self.processes().iter().all(|process| *process == self.processes()[0])
    }

    /// What every rank's device has.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Runs a collective exchange of the host. A failure is the group's failure, and the group's ends it.
    #[doc(hidden)]
    pub fn exchange<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        self.check()?;
        self.exchange_heeding(run)
    }

    fn exchange_heeding<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        let health = self.0.health.clone();
        self.exchange_unchecked(|mesh, deadline| {
            mesh.heed(Some(Box::new(move || health.check())));
            let result = run(mesh, deadline);
            mesh.heed(None);
            result.map_err(|error| self.reason_of(error))
        })
    }

    /// Why an exchange failed with `error`: a rank that was told of the group's failure first passes it on as its own,
    /// but for a loss or a timeout, which a notice carries as what it is; or, after an abort, it is gone already.
    fn reason_of(&self, error: Error) -> Error {
        match (&error, self.0.health.check()) {
            (Error::Peer { .. }, Err(Error::PeerLost { .. } | Error::Timeout { .. })) => error,
            (Error::Peer { .. }, Err(failure)) => failure,
            (Error::PeerLost { .. }, Err(aborted @ Error::Aborted { .. })) => aborted,
            _ => error,
        }
    }

    /// The same while the group closes.
    pub(crate) fn exchange_unchecked<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        let deadline = until(self.0.config.deadlines.open);
        let result = run(&mut self.0.mesh.lock(), deadline);
        if let Err(error @ (Error::PeerLost { .. } | Error::Timeout { .. } | Error::Bootstrap { .. })) = &result {
            self.0.health.fail(error.clone());
        }
        result
    }

    /// What kernels of this rank found amiss first, if it was none that stopped them.
    pub(crate) fn own_finding(&self) -> Option<Finding> {
        self.0.health.pages[self.0.rank].finding()
    }

    /// Status block of this rank, at its address for host and device.
    pub(crate) fn status_address(&self) -> *mut u8 {
        self.0.health.pages[self.0.rank].address()
    }

    /// Notes a call in the own history. One thread at a time.
    pub(crate) fn note(&self, call: Call) {
        self.0.health.pages[self.0.rank].history.push(call);
    }

    /// Makes the waits of the own device give up, for good.
    pub(crate) fn stop_own_device(&self) {
        let stop = Stop { cause: Cause::Abort, by: self.0.rank, culprit: self.0.rank };
        self.0.health.pages[self.0.rank].stop(stop);
    }

    /// Leaves the status block of this rank mapped for good: its device may never end looking at it.
    pub(crate) fn leak_status(&self) {
        std::mem::forget(self.0.health.clone());
    }

    /// Waits for calls that have entered. From here on every call fails.
    pub(crate) fn begin_close(&self) -> Result<()> {
        match std::mem::replace(&mut *self.0.closed.write(), true) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// The verdict of all ranks on what their devices did, which are idle; peers may then leave without being lost.
    pub(crate) fn settle(&self) -> Result<()> {
        // Its drop joins the thread. Nobody leaves in good order before the barrier, to which this rank has yet to
        // come: so a peer that closes first is not taken for dead.
        drop(self.0.monitor.lock().take());
        self.0.health.check()?;
        self.exchange_heeding(|mesh, deadline| mesh.barrier(deadline))
    }
}

impl Drop for Inner {
    /// A rank that leaves because of a failure says so: a mere goodbye would make it the one that failed the group.
    fn drop(&mut self) {
        drop(self.monitor.get_mut().take());
        if let Some(error) = self.health.reason_to_leave() {
            self.mesh.get_mut().fail(&error);
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group(rank {} of {} on {:?})", self.0.rank, self.0.world_size, self.0.device)
    }
}
