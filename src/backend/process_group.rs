//! A process group as its callers see it: a communicator, whose kernels run every call, or a coordinator, which sends
//! each call to a backend.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::settings::{NamedSettings, difference, texts};
use crate::bootstrap::hello::{self, at_odds};
use crate::collective::{BoundAllReduce, Communicator, Pending};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::{Call, RankMessage};
use crate::settings::written;
use crate::stream::{Kept, Stream, Target};

/// The ranks that make calls together, and the operations that they call.
///
/// [`Communicator`] and [`Coordinator`](crate::environment::Coordinator) dereference to it, as `String` does to `str`.
/// So both have every operation as a method, and a function that serves both takes `&ProcessGroup`. A method that
/// enqueues and returns blocks instead until its result is complete, where
/// [`Backend::Host`](crate::environment::Backend::Host) serves the call.
///
/// ```
/// # use symmetra::environment::Coordinator;
/// # use symmetra::*;
/// fn average(group: &ProcessGroup, gradients: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     group.all_reduce_with(Reduction::Average, gradients, gradients, stream)
/// }
///
/// fn step(tp: &Communicator, dp: &Coordinator, gradients: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     average(tp, gradients, stream)?;
///     average(dp, gradients, stream)
/// }
/// ```
#[repr(transparent)]
pub struct ProcessGroup {
    pub(crate) calls: dyn GroupCalls,
}

impl ProcessGroup {
    /// The process group of a communicator or a coordinator.
    pub(crate) fn of<'a>(calls: &'a (dyn GroupCalls + 'static)) -> &'a Self {
        let group = std::ptr::from_ref(calls) as *const Self;
        // SAFETY: the struct is transparent, so it has the layout and the metadata of its field; the lifetime is that of
        // the reference.
        unsafe { &*group }
    }

    /// The number of this rank in the group.
    pub fn rank(&self) -> usize {
        self.calls.rank()
    }

    /// The number of ranks in the group.
    pub fn world_size(&self) -> usize {
        self.calls.world_size()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        self.calls.device()
    }

    /// Whether the group is open and every rank is healthy, as far as this rank knows. Does not block, except once in a
    /// failed group that spans hosts, where the rank exchanges the cause with the others.
    ///
    /// A program that waits for its own stream, instead of [`synchronize`](Self::synchronize), calls this afterwards and
    /// before it uses results: after a collective that gave up, the output has old values, and the wait reports no error.
    ///
    /// # Errors
    /// [`Error::Closed`], or the first failure.
    pub fn check(&self) -> Result<()> {
        self.calls.check()
    }

    /// Blocks until all work of `stream` is done, and returns its error if it failed.
    ///
    /// # Errors
    /// The errors of [`Communicator::synchronize`], or of
    /// [`Coordinator::synchronize`](crate::environment::Coordinator::synchronize).
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.calls.synchronize(stream)
    }
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ProcessGroup(rank {} of {})", self.rank(), self.world_size())
    }
}

/// The calls of a process group. A communicator and a coordinator each have one way to make them, so one virtual call
/// replaces a branch on the kind of group.
pub(crate) trait GroupCalls: Send + Sync {
    /// A handle that shares ownership of the group.
    fn share(&self) -> Arc<dyn GroupCalls>;

    fn rank(&self) -> usize;

    fn world_size(&self) -> usize;

    /// The communicator of the ranks of this host.
    fn local(&self) -> &Communicator;

    /// The communicator, if symmetra kernels run every collective of the group. Equal on every rank.
    fn own(&self) -> Option<&Communicator>;

    /// Enqueues a call.
    fn run(&self, call: &Call<'_>, queue: Target<'_>) -> Result<()>;

    /// Enqueues messages in which only the ranks of a pair take part.
    fn run_pairs(&self, messages: &[RankMessage], queue: Target<'_>) -> Result<()>;

    /// Enqueues a call by copy engines.
    fn run_low_contention<'op>(&self, call: &Call<'_>, queue: Target<'_>) -> Result<Pending<'op>>;

    /// Makes the workspace of calls by copy engines.
    fn reserve_workspace(&self, bytes: usize) -> Result<()>;

    /// Checks and plans an all-reduce once. `kept`: owners of its operands.
    fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>>;

    /// Refuses a call that no backend serves, or that cannot be captured. Enqueues nothing. `recorded`: whether a
    /// capture of this crate records the call; `captured`: whether any API captures it.
    fn check_served(&self, call: &Call<'_>, recorded: bool, captured: bool) -> Result<()>;

    fn check(&self) -> Result<()>;

    /// Aborts the group on every rank.
    fn abort(&self, reason: &str);

    fn synchronize(&self, stream: &Stream) -> Result<()>;

    /// Gathers bytes from every rank for the collective call named `call`.
    fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;
}

impl dyn GroupCalls + '_ {
    pub(crate) fn device(&self) -> &Device {
        self.local().device()
    }

    /// Fails if called from a user callback that runs inside a call on the communicator of this host.
    pub(crate) fn refuse_within(&self, what: impl fmt::Display) -> Result<()> {
        self.local().refuse_within(what)
    }

    /// Fails on all ranks if settings differ, with the first field that differs between rank 0 and another rank.
    /// Collective; blocks.
    pub(crate) fn agree(&self, what: &str, settings: &NamedSettings<'_>) -> Result<()> {
        let own = written(serde_json::to_vec(&(what, texts(settings))))?;
        let all = self.all_gather_for(what, &own)?;
        let came = format!("to compare {what}");
        let read = |(rank, bytes): (usize, &Vec<u8>)| -> Result<Vec<(String, String)>> {
            let (theirs, settings): (String, _) =
                serde_json::from_slice(bytes).map_err(|_| at_odds(&came, self.rank(), rank, None))?;
            let same = theirs == what;
            if same {
                Ok(settings)
            } else {
                Err(at_odds(&came, self.rank(), rank, Some(&format!("to compare {theirs}"))))
            }
        };
        let all = all.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
        let differs = |theirs: &Vec<(String, String)>| difference(&all[0], theirs);
        match all.iter().enumerate().find_map(|(rank, theirs)| Some((rank, differs(theirs)?))) {
            None => Ok(()),
            Some((rank, (field, [ours, theirs]))) => {
                let what = if field.is_empty() { what.to_owned() } else { format!("{field} of {what}") };
                Err(Error::Mismatch { what, against: 0, ours, rank, theirs })
            }
        }
    }

    /// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed. Collective; blocks.
    pub(crate) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        hello::together(what, local, |words| self.all_gather_for(what, words))
    }
}

impl Deref for Communicator {
    type Target = ProcessGroup;

    fn deref(&self) -> &ProcessGroup {
        ProcessGroup::of(self)
    }
}

/// Symmetra kernels run every call.
impl GroupCalls for Communicator {
    fn share(&self) -> Arc<dyn GroupCalls> {
        Arc::new(self.clone())
    }

    fn rank(&self) -> usize {
        self.group().rank()
    }

    fn world_size(&self) -> usize {
        self.group().world_size()
    }

    fn local(&self) -> &Communicator {
        self
    }

    fn own(&self) -> Option<&Communicator> {
        Some(self)
    }

    fn run(&self, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        Self::run(self, call, queue)
    }

    fn run_pairs(&self, messages: &[RankMessage], queue: Target<'_>) -> Result<()> {
        Self::run_pairs(self, messages, queue)
    }

    fn run_low_contention<'op>(&self, call: &Call<'_>, queue: Target<'_>) -> Result<Pending<'op>> {
        Self::run_low_contention(self, call, queue)
    }

    fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        Self::make_workspace(self, bytes)
    }

    fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>> {
        Self::bind(self, call, kept)
    }

    fn check_served(&self, call: &Call<'_>, recorded: bool, _captured: bool) -> Result<()> {
        self.check_operands(call, recorded)
    }

    fn check(&self) -> Result<()> {
        self.group().check()
    }

    fn abort(&self, _reason: &str) {
        self.group().abort();
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        Self::synchronize(self, stream)
    }

    fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.group().all_gather_for(call, bytes)
    }
}
