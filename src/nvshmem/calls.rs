//! Calls of NVSHMEM, which know no deadline: a thread makes them, and the caller waits while the group is well.

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

/// How often a wait looks at the group.
const LOOK: Duration = Duration::from_millis(10);
/// How long a rank whose call was given up waits for what the others say of theirs.
const REPORT: Duration = Duration::from_secs(4);

/// NVSHMEM takes one call of a process at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The thread of a session, and whether it may be asked.
pub(super) struct Calls {
    pub(super) library: Library,
    pub(super) communicator: Communicator,
    jobs: Mutex<Sender<Job>>,
    /// Why the session makes no more calls.
    ended: OnceCell<Error>,
}

impl Calls {
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

    /// Ends the session in good order.
    pub(super) fn close(&self) {
        self.ended.get_or_init(|| Error::Closed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Gives NVSHMEM up, in this process and for good, because its ranks are no longer in step. Returns the reason.
    pub(super) fn give_up(&self, error: Error) -> Error {
        if self.ended.get().is_none() {
            crate::log!(WARN, "{} is given up, and its memory is leaked: {error}", self.library.name());
        }
        process::end(&error);
        self.ended.get_or_init(|| error).clone()
    }

    /// Makes a call on this rank alone.
    ///
    /// # Errors
    /// The error of `job`. Past `deadlines.open`, [`Error::Timeout`]; after a failure of the group, the failure: NVSHMEM
    /// is then given up.
    pub(super) fn run<R: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&Symbols) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.check()?;
        self.wait(name, job).map_err(|error| self.give_up(error))?
    }

    /// Makes a call that every rank makes, and compares the outcomes. Collective. When the call failed on a rank, NVSHMEM
    /// is given up on every rank.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), with the rank that did not come if one is known; [`Error::Peer`] where another rank's
    /// call failed.
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

    /// The rank that does not say that it gave up too.
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

    /// Hands a call to the thread and waits for the result. Fails where nobody waits for the call any more.
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
            // Nobody may be waiting any more.
            let _ = done.send(result);
        };
        let gone = || Error::Internal { message: format!("{name}: the session's thread has ended") };
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

impl fmt::Debug for Calls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} over {:?}", self.library, self.group())
    }
}
