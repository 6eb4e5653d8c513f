//! The state of a rank as its control page shows it to another process.
//!
//! A page is copied, never mapped: its owner may end, or cut the file, at any moment. A copy that is made while the owner
//! writes may mix two states, so a text or a call counts only if two copies have the same.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::pwrite;

use super::control_page::{Cause, Finding, PAGE_BYTES, Page, PageMapping, Stop, WayOut};
use super::identity::{KINDS, MAGIC};
use super::open::PROTOCOL;
use super::timeline::TimedCall;
use super::{EnqueuedCall, Group, MAX_WORLD_SIZE};
use crate::device::DeviceKind;
use crate::error::{Operation, Result};
use crate::kernel::args;

/// The name of the files of copies, which are no control pages.
const COPY_NAME: &str = "symmetra-copy";

/// Shorter waits of a device are part of every call.
const LONG_WAIT_NS: u64 = 1 << 20;

/// Bytes at the end of a file whose meaning is equal for all protocol numbers.
const END_BYTES: usize = 16;

/// The reason for which a file that is named like a control page is none that this build can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The page of a build with another protocol number.
    Protocol(u32),
    /// The page of a build that is too old to be observed, a page that no rank has begun to use, or another file.
    Foreign,
    /// The file could not be read, or was cut meanwhile.
    Unread(String),
}

/// A control page: a copy, or the page itself.
pub(crate) struct Seen(PageMapping);

/// An exchange of the host that is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostWait {
    pub(crate) name: String,
    pub(crate) since_ns: u64,
}

/// A wait of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelWait {
    pub(crate) operation: Option<Operation>,
    /// The rank for which the kernel waits.
    pub(crate) peer: usize,
    /// The number of calls that the device had counted: see [`Seen::call_after`].
    pub(crate) finished: u64,
    pub(crate) waited_ns: u64,
}

impl Seen {
    /// Copies a page.
    pub(crate) fn copy(file: &File) -> std::result::Result<Self, Unfit> {
        let unread = |error: &dyn std::fmt::Display| Unfit::Unread(error.to_string());
        let length = file.metadata().map_err(|error| unread(&error))?.len();
        let end = length.checked_sub(END_BYTES as u64).ok_or(Unfit::Foreign)?;
        let (mut protocol, mut magic) = ([0; 4], [0; 8]);
        file.read_exact_at(&mut protocol, end + 4).map_err(|error| unread(&error))?;
        file.read_exact_at(&mut magic, end + 8).map_err(|error| unread(&error))?;
        match (u64::from_le_bytes(magic), u32::from_le_bytes(protocol)) {
            (MAGIC, PROTOCOL) if length == PAGE_BYTES as u64 => {}
            (MAGIC, protocol) => return Err(Unfit::Protocol(protocol)),
            _ => return Err(Unfit::Foreign),
        }
        let mut bytes = vec![0; PAGE_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|error| unread(&error))?;
        let copy = PageMapping::create(COPY_NAME).map_err(|error| unread(&error))?;
        match pwrite(copy.fd(), &bytes, 0) {
            Ok(PAGE_BYTES) => Ok(Self(copy)),
            Ok(written) => Err(unread(&format!("{written} of {PAGE_BYTES} bytes copied"))),
            Err(error) => Err(unread(&error)),
        }
    }

    /// A page of a rank of this process's group, which may be written meanwhile.
    pub(super) fn live(page: &PageMapping) -> Result<Self> {
        page.again().map(Self)
    }

    /// The rank of the owner and the number of ranks; `None` for numbers that no group has.
    pub(crate) fn place(&self) -> Option<[usize; 2]> {
        let identity = self.0.identity();
        let [rank, world_size] = [&identity.rank, &identity.world_size].map(|word| load(word) as usize);
        (rank < world_size && world_size <= MAX_WORLD_SIZE).then_some([rank, world_size])
    }

    /// The number of the group, equal in the pages of all its ranks; `None` until the ranks have shared their pages.
    pub(crate) fn group(&self) -> Option<u64> {
        Some(self.0.identity().group.load(Ordering::Acquire)).filter(|group| *group > 0)
    }

    /// Whether the owner has opened the group.
    pub(crate) fn is_open(&self) -> bool {
        self.0.identity().opened_ns.load(Ordering::Acquire) > 0
    }

    /// When the owner began to open the group, in nanoseconds since 1970.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.0.identity().begun_ns.load(Ordering::Relaxed)
    }

    /// The inode number of the PID namespace of the owner, and the number of its process there.
    pub(crate) fn owner(&self) -> (u64, u32) {
        let identity = self.0.identity();
        (identity.namespace.load(Ordering::Relaxed), load(&identity.process))
    }

    /// The kind of the owner's device; `None` for a kind that this build does not know.
    pub(crate) fn kind(&self) -> Option<DeviceKind> {
        KINDS.get((load(&self.0.identity().kind) as usize).checked_sub(1)?).copied()
    }

    /// The name of the owner's host; empty: unknown.
    pub(crate) fn host(&self) -> String {
        self.0.identity().host.read()
    }

    /// The name of the parallel group; empty: none.
    pub(crate) fn name(&self) -> String {
        self.0.identity().name.read()
    }

    /// The world rank of the owner, if the group has a name.
    pub(crate) fn world_rank(&self) -> Option<usize> {
        let [rank, _] = self.place()?;
        (load(self.0.identity().world.get(rank)?) as usize).checked_sub(1)
    }

    /// The number of calls that the owner has enqueued, without messages between pairs.
    pub(crate) fn enqueued(&self) -> u64 {
        self.0.history.enqueued()
    }

    /// The number of calls of pairs that the owner has enqueued.
    pub(crate) fn pairs(&self) -> u64 {
        self.0.pairs.load(Ordering::Relaxed)
    }

    /// The number of first calls that are known to have ended. `None` if the owner's calls are not numbered.
    pub(crate) fn ended(&self) -> Option<u64> {
        let ended = match self.left() {
            Some(_) => self.0.finished.load(Ordering::Relaxed),
            None => self.0.ended.load(Ordering::Relaxed),
        };
        self.is_numbered().then_some(ended)
    }

    /// Whether the calls of the owner's device have the numbers of its history.
    pub(crate) fn is_numbered(&self) -> bool {
        load(&self.0.unnumbered) == 0
    }

    /// Call `number`, if both copies have the same.
    pub(crate) fn call(&self, later: &Self, number: u64) -> Option<EnqueuedCall> {
        let call = self.0.history.get(number)?;
        (later.0.history.get(number)? == call).then_some(call)
    }

    /// The last wait of milliseconds of the owner's device. The wait is in progress if a later copy has another time.
    pub(crate) fn kernel_wait(&self) -> Option<KernelWait> {
        let (word, waited_ns) = (self.0.waiting.load(Ordering::Relaxed), self.0.waited_ns.load(Ordering::Relaxed));
        let operation = Operation::from_number((word & 0xff) as u32);
        let finished = unfolded((word >> 32) as u32, self.enqueued());
        (waited_ns > LONG_WAIT_NS).then_some(KernelWait {
            operation,
            peer: (word >> 8 & 0xff) as usize,
            finished,
            waited_ns,
        })
    }

    /// The wait in which the owner's device gave up, by its deadline or because the group was stopped. `None` for shorter waits
    /// than those of [`kernel_wait`](Self::kernel_wait), and if calls differ: ranks then wait for each other in vain.
    pub(crate) fn last_wait(&self) -> Option<KernelWait> {
        let page = &*self.0;
        let (code, finished) = (load(&page.code), page.sequence.load(Ordering::Relaxed));
        let differed = page.stopped().is_some_and(|stop| stop.cause == Cause::Differed);
        let shown = self.kernel_wait().filter(|wait| wait.finished == finished).map(|wait| wait.waited_ns);
        let waited_ns = match code {
            _ if differed => None,
            args::kStatusTimeout => shown.or_else(|| Some(page.timeout_ns.load(Ordering::Relaxed))),
            args::kStatusAborted => shown,
            _ => None,
        };
        let (operation, peer) = (Operation::from_number(load(&page.op)), load(&page.peer) as usize);
        waited_ns.map(|waited_ns| KernelWait { operation, peer, finished, waited_ns })
    }

    /// Whether all calls of the owner's device have ended or given up, as far as the page shows.
    pub(crate) fn has_settled(&self) -> bool {
        load(&self.0.code) != 0 || self.ended() == Some(self.enqueued())
    }

    /// The rank because of whose loss the owner was stopped.
    pub(crate) fn lost(&self) -> Option<usize> {
        self.0.stopped().filter(|stop| stop.cause == Cause::Lost).map(|stop| stop.culprit)
    }

    /// The exchange of the host that is in progress in both copies.
    pub(crate) fn host_wait(&self, later: &Self) -> Option<HostWait> {
        let state =
            |page: &Page| [&page.host_call.since_ns, &page.host_call.begun].map(|word| word.load(Ordering::Acquire));
        let [since_ns, _] = state(&self.0);
        let settled = since_ns > 0 && state(&self.0) == state(&later.0);
        settled.then(|| HostWait { name: self.0.host_call.name.read(), since_ns })
    }

    /// The name of the last exchange of the host; empty: none has begun.
    pub(crate) fn last_exchange(&self) -> String {
        self.0.host_call.name.read()
    }

    /// When the exchange of the host that is in progress began, in nanoseconds since 1970; 0 without one.
    pub(crate) fn exchange_since_ns(&self) -> u64 {
        self.0.host_call.since_ns.load(Ordering::Acquire)
    }

    /// The number of exchanges of the host that the owner has begun.
    pub(crate) fn host_calls(&self) -> u64 {
        self.0.host_call.begun.load(Ordering::Acquire)
    }

    /// How the owner left the group without a failure, in words.
    pub(crate) fn left(&self) -> Option<&'static str> {
        Some(match self.0.way_out()? {
            WayOut::Departed => "left in good order",
            WayOut::Dropped => "dropped its communicator",
            WayOut::Abandoned => "abandoned its communicator",
        })
    }

    /// The number of the call in which the owner's device waits or gave up, after the device had counted `finished` calls. `None`
    /// for work without a number.
    pub(crate) fn call_after(&self, finished: u64, operation: Option<Operation>) -> Option<u64> {
        let operation = operation.filter(|operation| operation.is_in_history())?;
        let ended = self.ended()?;
        self.0.history.after(finished, operation.number(), ended)
    }

    /// The number of the call in which the owner's device gave up; `None` if it did not, or for work without a number.
    pub(crate) fn gave_up(&self) -> Option<u64> {
        self.call_after(self.0.sequence.load(Ordering::Relaxed), self.gave_up_in())
    }

    /// The operation in which the owner's device gave up; `None` if it did not, or for an operation that this build does not
    /// know.
    pub(crate) fn gave_up_in(&self) -> Option<Operation> {
        (load(&self.0.code) != 0).then(|| Operation::from_number(load(&self.0.op)))?
    }

    /// The times of the owner's calls from number `from` on that the page still has.
    pub(crate) fn times(&self, from: u64) -> Vec<TimedCall> {
        self.0.timeline.read(from)
    }

    /// The failure of the owner, in words.
    pub(crate) fn failure(&self) -> Option<String> {
        let page = &*self.0;
        let [rank, _] = self.place()?;
        let reported = page.report.read(rank).map(|error| error.to_string());
        let found = || {
            Some(match page.finding()? {
                Finding::Late(peer) => format!("the device gave up a wait for rank {peer}"),
                Finding::Different(peer) => format!("the device found another call of rank {peer}"),
            })
        };
        let stopped = || {
            let Stop { cause, by, culprit } = page.stopped()?;
            Some(match cause {
                Cause::Abort => format!("rank {by} stopped the group"),
                Cause::Lost => format!("rank {by} lost rank {culprit}"),
                Cause::Failed => format!("rank {by} gave up a wait for rank {culprit}"),
                Cause::Differed => format!("rank {by} found another call of rank {culprit}"),
            })
        };
        let other = || (load(&page.code) != 0).then(|| "the device gave up".to_owned());
        reported.or_else(found).or_else(stopped).or_else(other)
    }
}

impl Group {
    /// The pages of all ranks, in rank order.
    pub(crate) fn seen(&self) -> Result<Vec<Seen>> {
        self.0.health.pages.iter().map(Seen::live).collect()
    }
}

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// The number at most `limit` with these low bits: a device counts no more calls than the host has enqueued.
fn unfolded(low: u32, limit: u64) -> u64 {
    let number = limit & !u64::from(u32::MAX) | u64::from(low);
    if number > limit { number.saturating_sub(1 << 32) } else { number }
}

#[cfg(test)]
#[path = "../../tests/unit/group/seen.rs"]
mod tests;
