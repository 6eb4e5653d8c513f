//! The life of a communicator: opening, waiting, polling, and the end, regular or by abort.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use parking_lot::ReentrantMutex;

use super::ending;
use super::library::{Library, SUCCESS, UniqueId};
use super::symbols::{NcclConfig, ncclComm_t};
use crate::device::Device;
use crate::error::{Error, Result};

/// `ncclInvalidArgument` and `ncclInvalidUsage`: a call was refused and had no effect.
const REFUSED: [i32; 2] = [4, 5];
/// `ncclInProgress`: NCCL's threads continue the call.
const IN_PROGRESS: i32 = 7;
/// How long a wait only yields; afterwards, the longest sleep at a time.
const YIELDS: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_millis(1);
/// How long a call waits for an abort. Aborted operations are stopped at once; the rest of the abort ends after every
/// graph that contains one of them has been dropped.
const ABORTING: Duration = Duration::from_millis(200);
/// How long aborted operations may take to leave their stream.
const LEAVING: Duration = Duration::from_secs(2);

/// A rank's number in a communicator, and the world size.
#[derive(Clone, Copy)]
pub(super) struct RankOfWorld {
    pub(super) rank: usize,
    pub(super) world_size: usize,
}

impl RankOfWorld {
    /// The rank and the world size, as NCCL takes them.
    pub(super) fn numbers(self) -> Result<(i32, i32)> {
        let Self { rank, world_size } = self;
        if rank >= world_size {
            return Err(Error::invalid("rank", rank, format!("the world size is {world_size}")));
        }
        let number = |value: usize| {
            i32::try_from(value).map_err(|_| Error::invalid("the world size", world_size, "it must fit an i32"))
        };
        Ok((number(rank)?, number(world_size)?))
    }
}

/// One rank's NCCL communicator. The lock serialises calls, polls and aborts of several threads. It is released while a
/// thread waits. A thread holds it from the start of a group to its end, because the resources of the recorded calls
/// must live until then; calls inside the group lock it again.
pub(super) struct NcclSession {
    pub(super) library: Library,
    pub(super) device: Device,
    pub(super) place: RankOfWorld,
    /// The longest time that a call may continue in the background.
    limit: Duration,
    life: ReentrantMutex<RefCell<SessionLife>>,
}

struct SessionLife {
    state: SessionState,
    /// Number of nested open groups of the thread that holds the lock.
    groups: usize,
    /// The error that ends the communicator after the groups are closed.
    doom: Option<Error>,
}

enum SessionState {
    Live(NcclHandle),
    /// Aborted or closed, with the error for later calls.
    Ended(Error),
}

/// A communicator's address, which may be passed between threads.
#[derive(Clone, Copy)]
pub(super) struct NcclHandle(pub(super) ncclComm_t);
// SAFETY: NCCL lets any thread use a communicator, one at a time, which the lock around it ensures.
unsafe impl Send for NcclHandle {}

impl NcclSession {
    /// Joins the other ranks with equal `id`. This and every later call returns when it is done, or is aborted after
    /// `limit`. Collective; blocks.
    pub(super) fn open(
        library: &Library,
        device: &Device,
        place: RankOfWorld,
        id: UniqueId,
        limit: Duration,
    ) -> Result<Self> {
        const NAME: &str = "ncclCommInitRankConfig";
        let (rank, ranks) = place.numbers()?;
        let _current = device.enter()?;
        let mut comm = std::ptr::null_mut();
        let config = NcclConfig::NON_BLOCKING;
        let call = library.symbols().ncclCommInitRankConfig;
        // SAFETY: writes one handle and reads the config; the rank's device is current.
        let code = unsafe { call(&raw mut comm, ranks, id.0, rank, &raw const config) };
        if comm.is_null() {
            library.check(NAME, code, comm)?;
            return Err(Error::Nccl { code, message: format!("{NAME}: no communicator, in {}", library.name()) });
        }
        let session = Self::adopt(library, device, place, NcclHandle(comm), limit);
        session.settle(NAME, code)?;
        Ok(session)
    }

    /// Takes ownership of an open communicator of this rank.
    pub(super) fn adopt(
        library: &Library,
        device: &Device,
        place: RankOfWorld,
        comm: NcclHandle,
        limit: Duration,
    ) -> Self {
        let life = SessionLife { state: SessionState::Live(comm), groups: 0, doom: None };
        let life = ReentrantMutex::new(RefCell::new(life));
        Self { library: library.clone(), device: device.clone(), place, limit, life }
    }

    /// Makes an NCCL call on the rank's device, and waits until no part of it continues in the background.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::Timeout`] after the limit. Later calls return it too, unless the call was refused
    /// before it began.
    pub(super) fn call(&self, name: &str, call: impl FnOnce(ncclComm_t) -> i32) -> Result<()> {
        // The group of this thread has made the device current. Another thread has no group here, because a group holds the lock.
        let grouped = self.life.lock().borrow().groups > 0;
        let _current = (!grouped).then(|| self.device.enter()).transpose()?;
        let code = self.with(|comm| Ok(call(comm)))?;
        self.settle(name, code)
    }

    /// Joins the calls within `calls`, all of this communicator, into one. The group is closed even if they fail,
    /// because NCCL counts open groups by thread and only records calls while a group is open. An error that ends the
    /// communicator meanwhile, also from another thread, takes effect after that.
    pub(super) fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        let _current = self.device.enter()?;
        let symbols = self.library.symbols();
        let (called, code, doom) = {
            let life = self.life.lock();
            // SAFETY: opens a group of this thread, which is closed below.
            let code = self.with(|_| Ok(unsafe { (symbols.ncclGroupStart)() }))?;
            self.library.check("ncclGroupStart", code, std::ptr::null_mut())?;
            life.borrow_mut().groups += 1;
            let called = catch_unwind(AssertUnwindSafe(calls));
            // SAFETY: a group was opened.
            let code = unsafe { (symbols.ncclGroupEnd)() };
            let mut life = life.borrow_mut();
            life.groups -= 1;
            (called, code, if life.groups == 0 { life.doom.take() } else { None })
        };
        let ended = match doom {
            Some(error) => Err(self.abort(error)),
            None => self.settle("ncclGroupEnd", code),
        };
        called.unwrap_or_else(|panic| resume_unwind(panic)).and(ended)
    }

    /// Returns the first error so far. Does not block.
    pub(super) fn check(&self) -> Result<()> {
        match self.background()? {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.fail("an operation", code)),
        }
    }

    /// Aborts the communicator at once, also while operations are running, but not within a group. Later calls get
    /// `error`, or the error that ended it before.
    pub(super) fn abort(&self, error: Error) -> Error {
        if let Err(elsewhere) = self.check_process() {
            return elsewhere;
        }
        let comm = {
            let life = self.life.lock();
            let mut life = life.borrow_mut();
            let comm = match &life.state {
                SessionState::Live(comm) => *comm,
                SessionState::Ended(first) => return first.clone(),
            };
            if life.groups > 0 {
                return life.doom.get_or_insert(error).clone();
            }
            life.state = SessionState::Ended(error.clone());
            comm
        };
        let (library, device, rank) = (self.library.clone(), self.device.clone(), self.place.rank);
        let work = move || {
            if let Err(error) = last_use(&library, &device, comm) {
                crate::log!(WARN, "the communicator of rank {rank} does not end: {error}");
            }
        };
        match ending::begin(work, ABORTING) {
            Ok(true) => {}
            Ok(false) => crate::log!(DEBUG, "the abort of rank {rank} waits for graphs"),
            Err(error) => crate::log!(WARN, "no thread aborts the communicator of rank {rank}: {error}"),
        }
        error
    }

    /// Waits for the enqueued operations and closes the communicator. Collective.
    pub(super) fn finish(&self) -> Result<()> {
        let _current = self.device.enter()?;
        let symbols = self.library.symbols();
        // SAFETY: the communicator is live.
        self.call("ncclCommFinalize", |comm| unsafe { (symbols.ncclCommFinalize)(comm) })?;
        let life = self.life.lock();
        let mut life = life.borrow_mut();
        let comm = match &life.state {
            SessionState::Live(comm) => comm.0,
            SessionState::Ended(error) => return Err(error.clone()),
        };
        life.state = SessionState::Ended(Error::Closed);
        // SAFETY: the last use.
        let code = unsafe { (symbols.ncclCommDestroy)(comm) };
        self.library.check("ncclCommDestroy", if code == IN_PROGRESS { SUCCESS } else { code }, std::ptr::null_mut())
    }

    /// Refuses a forked child, which has none of NCCL's threads.
    fn check_process(&self) -> Result<()> {
        self.device.check_process("an NCCL communicator")
    }

    fn with<T>(&self, use_it: impl FnOnce(ncclComm_t) -> Result<T>) -> Result<T> {
        self.check_process()?;
        let life = self.life.lock();
        let life = life.borrow();
        match (&life.state, &life.doom) {
            (SessionState::Live(comm), None) => use_it(comm.0),
            (SessionState::Live(_), Some(error)) | (SessionState::Ended(error), _) => Err(error.clone()),
        }
    }

    fn in_group(&self) -> bool {
        self.life.lock().borrow().groups > 0
    }

    /// The state of calls in the background: a result code.
    fn background(&self) -> Result<i32> {
        let mut state = SUCCESS;
        let call = self.library.symbols().ncclCommGetAsyncError;
        // SAFETY: the communicator is live; writes one number.
        let code = self.with(|comm| Ok(unsafe { call(comm, &raw mut state) }))?;
        match code {
            SUCCESS => Ok(state),
            code => Err(self.fail("ncclCommGetAsyncError", code)),
        }
    }

    fn settle(&self, name: &str, code: i32) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            // Inside a group no call completes.
            IN_PROGRESS if self.in_group() => Ok(()),
            IN_PROGRESS => self.wait(name),
            refused if REFUSED.contains(&refused) => self.with(|comm| self.library.check(name, refused, comm)),
            code => Err(self.fail(name, code)),
        }
    }

    fn wait(&self, name: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.background()? {
                SUCCESS => return Ok(()),
                IN_PROGRESS => {}
                code => return Err(self.fail(name, code)),
            }
            let waited = start.elapsed();
            if waited >= self.limit {
                let RankOfWorld { rank, world_size } = self.place;
                let doing = format!("{name} of rank {rank} of {world_size}, in {}", self.library.name());
                return Err(self.abort(Error::exchange_timeout(None, waited, doing)));
            }
            pause(waited, self.limit);
        }
    }

    /// Waits until the enqueued work is `done`, as long as this rank's operations are healthy and, according to `well`,
    /// the group is. After `limit` the error is the result of `late` for the time waited. Any error aborts the
    /// communicator and is returned after the operations have left their stream.
    pub(super) fn watch(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> Result<bool>,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Duration) -> Error,
    ) -> Result<()> {
        let start = Instant::now();
        let error = loop {
            match done() {
                // The communicator may have been aborted, which also ends the work.
                Ok(true) => return self.check(),
                Ok(false) => {}
                Err(error) => return Err(self.abort(error)),
            }
            let waited = start.elapsed();
            // The group has better information than NCCL on the culprit.
            match well().and_then(|()| self.check()) {
                Err(error) => break self.abort(error),
                Ok(()) if waited >= limit => break self.abort(late(waited)),
                Ok(()) => pause(waited, limit),
            }
        };
        let start = Instant::now();
        while matches!(done(), Ok(false)) {
            if start.elapsed() >= LEAVING {
                crate::log!(WARN, "the operations of rank {} go on after the abort", self.place.rank);
                break;
            }
            pause(start.elapsed(), LEAVING);
        }
        Err(error)
    }

    fn fail(&self, name: &str, code: i32) -> Error {
        match self.with(|comm| self.library.check(name, code, comm)) {
            Ok(()) => Error::Nccl { code, message: format!("{name}: no reason, in {}", self.library.name()) },
            Err(error) => self.abort(error),
        }
    }
}

/// Aborts a communicator that is no longer in use. Blocks while graphs contain its operations.
fn last_use(library: &Library, device: &Device, comm: NcclHandle) -> Result<()> {
    device.make_current()?;
    // SAFETY: the last use.
    let code = unsafe { (library.symbols().ncclCommAbort)(comm.0) };
    library.check("ncclCommAbort", if code == IN_PROGRESS { SUCCESS } else { code }, std::ptr::null_mut())
}

/// Sleeps between two polls: briefly at first, later a sixteenth of the time waited so far.
fn pause(waited: Duration, limit: Duration) {
    match waited < YIELDS {
        true => std::thread::yield_now(),
        false => std::thread::sleep(SLEEP.min(waited / 16).min(limit.saturating_sub(waited))),
    }
}

impl Drop for NcclSession {
    fn drop(&mut self) {
        self.abort(Error::Closed);
    }
}
