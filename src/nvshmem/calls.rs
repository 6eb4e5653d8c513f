//! Calls of NVSHMEM, which have no deadline: a thread makes them, and the caller waits while the group is healthy.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::library::{Library, Symbols};
use super::process;
use crate::bootstrap::{Bootstrap, until};
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::group::Group;

type Job = Box<dyn FnOnce() + Send>;

/// How often a wait checks the group.
const LOOK: Duration = Duration::from_millis(10);
/// How long a rank that gave up a call waits for the reports of the others on their calls.
const REPORT: Duration = Duration::from_secs(4);

/// NVSHMEM takes one call of a process at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The thread of a session, and whether it may be used.
pub(super) struct CallThread {
    pub(super) library: Library,
    pub(super) communicator: Communicator,
    jobs: Mutex<Sender<Job>>,
    /// The reason why the session makes no more calls.
    ended: OnceCell<Error>,
}

impl CallThread {
    pub(super) fn new(library: &Library, communicator: &Communicator) -> Result<Self> {
        let (jobs, asked) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("symmetra-nvshmem".to_owned());
        // Ends with the session, unless a call does not return.
        let started = thread.spawn(move || asked.into_iter().for_each(|job| job()));
        started.map_err(|error| Error::system("start a thread", &error))?;
        let (library, communicator) = (library.clone(), communicator.clone());
        Ok(Self { library, communicator, jobs: Mutex::new(jobs), ended: OnceCell::new() })
    }

    pub(super) fn group(&self) -> &Group {
        self.communicator.group()
    }

    /// Whether a call may be made.
    pub(super) fn check(&self) -> Result<()> {
        self.group().device().check_process("a session of NVSHMEM")?;
        if let Some(error) = self.ended.get() {
            return Err(error.clone());
        }
        process::check()?;
        self.group().check()
    }

    /// Ends the session regularly.
    pub(super) fn close(&self) {
        self.ended.get_or_init(|| Error::Closed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Gives NVSHMEM up, permanently for this process, because its ranks are no longer in step. Returns the reason.
    pub(super) fn give_up(&self, error: Error) -> Error {
        if self.ended.get().is_none() {
            crate::log!(WARN, "{} is given up, and its memory is leaked: {error}", self.library.name());
        }
        process::end(&error);
        self.ended.get_or_init(|| error).clone()
    }

    /// Makes a call on this rank only.
    ///
    /// # Errors
    /// The error of `job`. Past `deadlines.open`, [`Error::Timeout`]; after a failure of the group, the failure.
    /// NVSHMEM is given up in both cases.
    pub(super) fn run<R: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&Symbols) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.check()?;
        self.wait(name, job).map_err(|error| self.give_up(error))?
    }

    /// Makes a call that every rank makes, and compares the outcomes. Collective. If the call failed on a rank, NVSHMEM
    /// is given up on every rank.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), with the missing rank if it is known; [`Error::Peer`] if another rank's call
    /// failed.
    pub(super) fn together<R: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&Symbols) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.check()?;
        let agreed = match self.wait(name, job) {
            Err(Error::Timeout { operation, sequence, waited, detail, .. }) => {
                let late = |rank| Error::Timeout { operation, sequence, rank, waited, detail: detail.clone() };
                Err(late(self.missing(name, &late(None))))
            }
            Ok(made) => self.group().exchange(|mesh, deadline| mesh.agree(name, made, deadline)),
            Err(error) => Err(error),
        };
        agreed.map_err(|error| self.give_up(error))
    }

    /// The rank that does not report that it gave up too.
    fn missing(&self, name: &str, late: &Error) -> Option<usize> {
        let told = self.group().exchange(|mesh, _| {
            mesh.announce(name);
            mesh.all_gather(format!("{name}: {late}").as_bytes(), until(REPORT))
        });
        match told {
            Err(Error::Timeout { rank, .. }) => rank,
            _ => None,
        }
    }

    /// Passes a call to the thread and waits for the result. Fails if waiting has become useless.
    fn wait<R: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&Symbols) -> Result<R> + Send + 'static,
    ) -> Result<Result<R>> {
        let (library, device) = (self.library.clone(), self.communicator.device().clone());
        let (done, made) = mpsc::channel();
        let job = move || {
            let _one = ONE.lock();
            let result = device.make_current().and_then(|()| job(library.symbols()));
            // The receiver may have stopped waiting.
            let _ = done.send(result);
        };
        let gone = || Error::internal(format!("{name}: the session's thread has ended"));
        self.jobs.lock().send(Box::new(job)).map_err(|_| gone())?;
        let (start, deadline) = (Instant::now(), until(self.group().config().deadlines.open));
        loop {
            match made.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.group().check()?;
            if Instant::now() >= deadline {
                let doing = format!("{name} of rank {}, in {}", self.group().rank(), self.library.name());
                return Err(Error::exchange_timeout(None, start.elapsed(), doing));
            }
        }
    }
}

impl fmt::Debug for CallThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} over {:?}", self.library, self.group())
    }
}
