//! A group: ranks that agreed on settings, and the record of the ranks that are alive.

mod abandon;
mod call;
mod capabilities;
mod compare;
mod config;
mod control_page;
mod determinism;
mod exchange;
mod findings;
mod health;
mod history;
mod hold;
mod identity;
mod living;
mod multicast;
mod noted;
mod open;
mod place;
mod record;
mod relayed;
mod seen;
mod silence;
mod sizes;
mod timed;
mod timeline;
mod tuning;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::bootstrap::mesh::Mesh;
use crate::bootstrap::monitor::Monitor;
use crate::bootstrap::{Bootstrap, until};
use crate::device::Device;
use crate::error::{Error, Operation, Result, group_of_world};

pub(crate) use call::{BY_NCCL, CODEC_SHIFT, EnqueuedCall, FUSED, Places};
pub(crate) use capabilities::Capabilities;
pub use config::{Config, Deadlines};
use control_page::{Cause, Stop, WayOut};
pub(crate) use control_page::{Finding, PAGE_NAME};
pub use determinism::Determinism;
use health::Health;
pub(crate) use health::REPORT;
pub use living::dump_all;
pub use multicast::Multicast;
pub(crate) use multicast::unavailable;
pub(crate) use open::{joined, members};
use place::ParallelGroup;
pub use record::{Failed, Record, RecordedCall, RecordedWait};
pub(crate) use seen::{HostWait, KernelWait, Seen, Unfit};
pub(crate) use timed::Announced;
use timed::Labels;
pub(crate) use timeline::{LastCall, TimedCall};
pub use tuning::{TunedCodec, TunedExperts, TunedGrid, TunedNorm, TunedRow, TunedTable, TunedTiming, Tuning};

/// The most ranks of a group.
pub const MAX_WORLD_SIZE: usize = crate::kernel::args::kMaxWorld as usize;

/// The ranks of one host that work together. Cheap to clone; usable from any thread.
///
/// Every rank opens the group at the same time, and the group fails as one. After a rank died, a deadline passed or a
/// rank called [`abort`](Self::abort), every call on every rank returns the same error, and no kernel spins.
///
/// A rank that [departs](crate::Communicator::depart) leaves regularly: only calls that the rank did not make fail on
/// the others. The same holds for a rank that drops its communicator after all its calls are done, but errors about
/// this rank mention the drop. A rank that drops it earlier counts as lost. A forked child of a rank is not a rank: its
/// calls fail with [`Error::Unsupported`], and it may drop its copy of the group without harm.
#[derive(Clone)]
#[must_use = "dropping the last clone leaves the group"]
pub struct Group(Arc<Inner>);

struct Inner {
    id: u64,
    rank: usize,
    world_size: usize,
    device: Device,
    config: Config,
    /// The labels of calls, if calls are timed.
    labels: Option<Labels>,
    health: Arc<Health>,
    processes: Vec<usize>,
    capabilities: Capabilities,
    mesh: Mutex<Mesh>,
    monitor: Mutex<Option<Monitor>>,
    /// Whether the group was closed. A call holds the read lock from its check until its work is enqueued, so closing
    /// happens before or after a call. No call ever waits for this lock.
    closed: RwLock<bool>,
    /// Whether all calls of this rank were done when their communicator was dropped or departed.
    done: AtomicBool,
    /// Whether this rank has disconnected.
    hung_up: AtomicBool,
    /// Whether this rank closed or departed with valid results, which later failures of peers cannot invalidate.
    settled: AtomicBool,
}

/// Proof that a call began in an open group. The group closes only after this is dropped.
#[must_use = "dropped, the group may close before the call is enqueued"]
pub(crate) struct Entered<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, bool>);

/// Source of group numbers that are unique in this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Group {
    /// This rank's number, 0 to world size - 1.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.0.world_size
    }

    /// This rank's device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The settings all ranks agreed on.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Stops the group on every rank. Waits on all devices give up within milliseconds, and every later call fails with
    /// [`Error::Aborted`]. Does not block: it only writes flags. Any thread may call it at any time, more than once.
    /// Does nothing after this rank has closed the group or departed from it: its results are valid.
    pub fn abort(&self) {
        if self.may_stop() {
            self.0.health.let_go();
            self.stop_all();
        }
    }

    /// Whether this rank may stop the group. A forked child is not a rank.
    fn may_stop(&self) -> bool {
        self.0.device.is_here() && !self.0.hung_up.load(Ordering::Relaxed)
    }

    /// Makes the waits on all devices give up, because of this rank.
    fn stop_all(&self) {
        self.0.health.stop_all(self.stop());
    }

    /// The stop that this rank itself causes.
    fn stop(&self) -> Stop {
        Stop { cause: Cause::Abort, by: self.0.rank, culprit: self.0.rank }
    }

    /// Makes `error` the group's failure unless there is one, stops the group on every rank, and returns the failure.
    /// Peers receive the name of a lost or late rank; for other errors they receive an [`abort`](Self::abort) with the
    /// reason.
    pub(crate) fn fail(&self, error: Error) -> Error {
        match error {
            Error::PeerLost { .. } | Error::Timeout { .. } => self.0.health.fail(error),
            _ => {
                // The failure is stored first: a thread that reads the flags afterwards finds the cause.
                let failure = self.0.health.keep(error);
                self.0.health.own().report.write(&failure);
                if self.may_stop() {
                    self.stop_all();
                }
                failure
            }
        }
    }

    /// The error of another library's operation that exceeded its deadline.
    pub(crate) fn late(&self, operation: Operation, waited: Duration) -> Error {
        self.0.health.late(operation, waited)
    }

    /// Checks, without blocking, that the group is open and every rank is healthy as far as this rank knows.
    ///
    /// # Errors
    /// [`Error::Closed`], or the group's first failure.
    pub fn check(&self) -> Result<()> {
        self.enter_well().map(drop)
    }

    #[inline(always)]
    fn enter_well(&self) -> Result<Entered<'_>> {
        self.0.device.check_process("a group")?;
        // The write lock is held only while the group closes.
        let closed = self.0.closed.try_read().filter(|closed| !**closed).ok_or(Error::Closed)?;
        self.0.health.check()?;
        Ok(Entered(closed))
    }

    /// Checks for a call that the group is open and healthy and that no rank has left, and keeps the group open until
    /// the result is dropped. Until then the peers' memory stays mapped. Does not block.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let entered = self.enter_well()?;
        self.0.health.all_here()?;
        Ok(entered)
    }

    /// Checks that the group is open and healthy and that no rank has left. Does not block.
    pub(crate) fn all_here(&self) -> Result<()> {
        self.enter().map(drop)
    }

    /// As [`enter`](Self::enter), for work that needs only `peer`.
    pub(crate) fn enter_with(&self, peer: usize) -> Result<Entered<'_>> {
        let entered = self.enter_well()?;
        self.0.health.is_here(peer)?;
        Ok(entered)
    }

    /// As [`enter`](Self::enter), for messages: of each, the peer and whether this rank sends. A peer that has sent a message
    /// and left is not needed to receive the message.
    pub(crate) fn enter_with_messages(
        &self,
        messages: impl Iterator<Item = (usize, bool)> + Clone,
    ) -> Result<Entered<'_>> {
        let (entered, health) = (self.enter_well()?, &self.0.health);
        for (peer, sends) in messages.clone().filter(|(peer, _)| health.is_missing(*peer)) {
            let received = messages.clone().filter(|message| *message == (peer, false)).count();
            if sends || !health.has_sent(peer, received as u64) {
                health.is_here(peer)?;
            }
        }
        Ok(entered)
    }

    /// Checks the outcome of finished calls: that none failed, and that the calls that the ranks have made so far are
    /// equal. Also for a group that is closed. Does not block.
    pub(crate) fn confirm(&self) -> Result<()> {
        if self.0.settled.load(Ordering::Relaxed) { Ok(()) } else { self.0.health.confirm() }
    }

    /// For each rank, the lowest rank of its process. Ranks with equal values are threads of one process.
    pub(crate) fn processes(&self) -> &[usize] {
        &self.0.processes
    }

    pub(crate) fn is_one_process(&self) -> bool {
        self.processes().iter().all(|process| *process == self.processes()[0])
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// The fault that kernels of this rank found, unless another rank had stopped them.
    pub(crate) fn own_finding(&self) -> Option<Finding> {
        self.0.health.pages[self.0.rank].finding()
    }

    /// Address of this rank's status block, valid for host and device.
    pub(crate) fn status_address(&self) -> *mut u8 {
        self.0.health.pages[self.0.rank].address()
    }

    /// Waits for the calls of this rank's device, which `are_done` checks, and records that this rank leaves regularly.
    /// Gives up if another rank has enqueued fewer calls or the group fails: then the calls may never be done.
    pub(crate) fn finish(&self, are_done: impl Fn() -> Result<bool>) {
        let until = until(self.0.config.deadlines.steady);
        loop {
            match are_done() {
                Ok(true) if self.0.health.is_well() => return self.0.done.store(true, Ordering::Relaxed),
                Ok(false) if self.0.health.can_finish() && Instant::now() < until => {}
                _ => return,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Records that this rank, whose device is idle, leaves regularly.
    ///
    /// # Errors
    /// The group's error, also for ranks that made different calls.
    pub(crate) fn finished(&self) -> Result<()> {
        self.confirm()?;
        self.0.done.store(true, Ordering::Relaxed);
        self.0.settled.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a goodbye to the peers, which continue, and leaves the bootstrap. Needs no peer.
    pub(crate) fn hang_up(&self) {
        self.0.hang_up();
    }

    /// Makes the waits of this rank's device give up permanently, and lets failed calls end.
    pub(crate) fn stop_own_device(&self) {
        self.0.health.let_go();
        self.0.health.own().stop(self.stop());
    }

    /// Leaves this rank's status block mapped permanently, because its device may never stop polling it.
    pub(crate) fn leak_status(&self) {
        std::mem::forget(self.0.health.clone());
    }

    /// Waits for calls that have entered. Every later call fails, and failed calls end.
    pub(crate) fn begin_close(&self) -> Result<()> {
        self.0.device.check_process("a group")?;
        match std::mem::replace(&mut *self.0.closed.write(), true) {
            true => Err(Error::Closed),
            false => {
                self.0.health.let_go();
                Ok(())
            }
        }
    }

    /// Compares the calls of all ranks after their devices became idle. Afterwards peers may leave without counting as
    /// lost.
    pub(crate) fn settle(&self) -> Result<()> {
        // Dropping the monitor joins its thread. No peer leaves regularly before the barrier, which this rank has not
        // reached, so a peer that closes first is not reported as dead.
        drop(self.0.monitor.lock().take());
        self.0.health.check()?;
        self.exchange_heeding(|mesh, deadline| {
            mesh.announce("close");
            mesh.barrier(deadline)
        })?;
        crate::log!(INFO, "closed: {self:?}");
        // Every rank has made its last call, so every rank finds different calls.
        self.confirm()?;
        self.0.settled.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Inner {
    /// Whether this rank has closed the group, departed from it or abandoned it.
    fn is_ended(&self) -> bool {
        *self.closed.read() || self.health.own().has_left()
    }

    /// Disconnects, once: sends a goodbye, or the failure because of which this rank leaves. A plain goodbye would make
    /// this rank the cause of the group's failure.
    fn hang_up(&self) {
        if self.hung_up.swap(true, Ordering::Relaxed) {
            return;
        }
        drop(self.monitor.lock().take());
        let mut mesh = self.mesh.lock();
        let [done, settled] = [&self.done, &self.settled].map(|flag| flag.load(Ordering::Relaxed));
        let reason = if done { None } else { self.health.reason_to_leave() };
        let failed = reason.is_some();
        if let Some(error) = reason {
            mesh.fail(&error);
        } else if !self.is_ended() && self.world_size > 1 && !self.config.silence {
            let place = self.health.place.get();
            let group = place.map(|ParallelGroup { name, world, .. }| group_of_world(name, world, &[self.rank]));
            let group = group.map_or_else(String::new, |group| format!(": {group}"));
            crate::log!(
                WARN,
                "rank {} of {} drops its communicator without close(){group}",
                self.rank,
                self.world_size
            );
        }
        if done || settled && !failed {
            // The peers' monitors detect the disconnect after this, and observers know from then on that this rank has not died.
            let own = self.health.own();
            own.leave(if settled { WayOut::Departed } else { WayOut::Dropped }, own.history.enqueued());
        }
        mesh.hang_up();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.is_here() {
            self.hang_up();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group(rank {} of {} on {:?})", self.0.rank, self.0.world_size, self.0.device)
    }
}
