//! The state of a rank, as other processes know it.

use serde::Serialize;

use super::processes::ProcessState;
use crate::bootstrap::host::now_ns;
use crate::bootstrap::shown::MeetingRank;
use crate::error::Operation;
use crate::group::{EnqueuedCall, HostWait, KernelWait, Seen};

/// A rank at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ObservedRank {
    /// The number of the rank in its group.
    pub rank: usize,
    /// The number of the rank in the world, if the group has a name.
    pub world_rank: Option<usize>,
    /// The process of the rank. A process that this process does not see has its number in its own PID namespace.
    pub process: u32,
    /// Whether the process runs.
    pub process_state: ProcessState,
    /// The name of the host or container of the process.
    pub host: String,
    /// The kind of the device: `host`, `cuda` or `hip`; `None` for a kind that this build does not know, and before the
    /// rank has a group.
    pub device: Option<&'static str>,
    /// The state of the rank.
    pub state: RankState,
    /// The number of calls that the rank has enqueued, without messages between pairs.
    pub enqueued: u64,
    /// The number of calls of pairs that the rank has enqueued.
    pub pairs: u64,
    /// The number of first calls that are known to have ended; more may have. `None` if the rank's calls have no numbers,
    /// because the owner of a stream captures them.
    pub ended: Option<u64>,
    /// The number of exchanges of the host that the rank has begun: barriers, registrations, steps of opening and closing.
    pub host_calls: u64,
    /// The call that waits or gave up, else the last call. `None` if the rank has made no call, or the history no longer has the call.
    pub call: Option<ObservedCall>,
    /// The wait in progress.
    pub wait: Option<ObservedWait>,
    /// The wait in which the device of the rank gave up, of a group that has failed.
    pub gave_up: Option<ObservedWait>,
    /// The failure of the group as the rank reported it, or how the rank left, in words.
    pub detail: Option<String>,
}

/// The state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RankState {
    /// The rank opens its group.
    Opening,
    /// All calls of the rank have ended, as far as is known.
    Idle,
    /// The rank has enqueued calls that are not known to have ended.
    InCall,
    /// A kernel or the host of the rank waits for other ranks.
    Waiting,
    /// A signal or a debugger has stopped the process.
    Stopped,
    /// The process has ended, and had not left the group.
    Dead,
    /// The rank has found a failure, or another rank has stopped it.
    Failed,
    /// The rank left the group without a failure.
    Left,
}

impl RankState {
    /// The name in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Idle => "idle",
            Self::InCall => "in_call",
            Self::Waiting => "waiting",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Failed => "failed",
            Self::Left => "left",
        }
    }
}

/// A call of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObservedCall {
    /// The number of the call in the group, from 0.
    pub number: u64,
    /// The name of the operation.
    pub operation: &'static str,
    /// The size of the message in bytes.
    pub bytes: u64,
    /// The element type.
    pub dtype: &'static str,
    /// The algorithm or transport; `None` for a call without data.
    pub algorithm: Option<&'static str>,
}

/// A wait in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ObservedWait {
    /// The part of a rank that waits.
    pub place: WaitPlace,
    /// The name of the operation, or of the exchange of the host.
    pub operation: String,
    /// The number of the call; `None` for exchanges, for messages between pairs, and for kernels of the program.
    pub call: Option<u64>,
    /// The ranks for which the rank waits, if they are known.
    pub ranks: Vec<usize>,
    /// How long the wait has lasted, in seconds.
    pub seconds: f64,
}

/// The part of a rank that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitPlace {
    /// A kernel on the device.
    Kernel,
    /// An exchange of the host.
    Host,
    /// The opening of the group.
    Open,
}

/// Two copies of the page of a rank, and its process.
pub(super) struct PageCopies<'a> {
    pub(super) first: &'a Seen,
    pub(super) last: &'a Seen,
    pub(super) process: u32,
    pub(super) state: ProcessState,
}

impl ObservedRank {
    /// The rank of these copies; `None` if the numbers in the page are those of no group.
    pub(super) fn new(copies: &PageCopies<'_>) -> Option<Self> {
        let PageCopies { first, last, process, state } = *copies;
        let [rank, _] = last.place()?;
        let failure = last.failure();
        let wait = ObservedWait::of(first, last).filter(|_| failure.is_none() && last.left().is_none());
        let (enqueued, ended) = (last.enqueued(), last.ended());
        let gave_up = last.last_wait().map(|wait| ObservedWait::of_device(wait, last));
        let waiting = wait.as_ref().or(gave_up.as_ref()).and_then(|wait| wait.call);
        let number = waiting.or_else(|| enqueued.checked_sub(1));
        let call = number.and_then(|number| Some(ObservedCall::new(number, first.call(last, number)?)));
        let state_of_rank = match (state, &wait) {
            (ProcessState::Ended, _) if last.left().is_none() => RankState::Dead,
            (ProcessState::Stopped, _) => RankState::Stopped,
            _ if last.left().is_some() => RankState::Left,
            _ if failure.is_some() => RankState::Failed,
            _ if !last.is_open() => RankState::Opening,
            (_, Some(_)) => RankState::Waiting,
            _ if ended == Some(enqueued) => RankState::Idle,
            _ => RankState::InCall,
        };
        Some(Self {
            rank,
            world_rank: last.world_rank(),
            process,
            process_state: state,
            host: last.host(),
            device: last.kind().map(crate::device::DeviceKind::name),
            state: state_of_rank,
            enqueued,
            pairs: last.pairs(),
            ended,
            host_calls: last.host_calls(),
            call,
            wait,
            gave_up,
            detail: last.left().map(str::to_owned).or(failure),
        })
    }
}

impl ObservedRank {
    /// A rank that has no group yet, of this process as the reader sees the process.
    pub(super) fn meeting(meeting: &MeetingRank, process: u32, state: ProcessState) -> Self {
        Self {
            rank: meeting.rank,
            world_rank: None,
            process,
            process_state: state,
            host: meeting.host.clone(),
            device: None,
            state: if state == ProcessState::Stopped { RankState::Stopped } else { RankState::Opening },
            enqueued: 0,
            pairs: 0,
            ended: Some(0),
            host_calls: 0,
            call: None,
            wait: Some(ObservedWait::of_open(meeting.since_ns)),
            gave_up: None,
            detail: None,
        }
    }
}

impl ObservedWait {
    /// The wait that is in progress in both copies.
    fn of(first: &Seen, last: &Seen) -> Option<Self> {
        Self::of_kernel(first, last).or_else(|| match last.is_open() {
            true => first.host_wait(last).map(Self::of_host),
            false => Some(Self::of_open(last.begun_ns())),
        })
    }

    fn of_kernel(first: &Seen, last: &Seen) -> Option<Self> {
        let wait = last.kernel_wait().filter(|wait| first.kernel_wait() != Some(*wait))?;
        let wait = Self::of_device(wait, last);
        // A call that has ended does not wait any more.
        Some(wait).filter(|wait| wait.call.is_none_or(|call| last.ended() <= Some(call)))
    }

    /// A wait of the owner's device.
    fn of_device(wait: KernelWait, owner: &Seen) -> Self {
        let KernelWait { operation, peer, finished, waited_ns } = wait;
        Self {
            place: WaitPlace::Kernel,
            operation: operation.map_or("an unknown operation", Operation::name).to_owned(),
            call: owner.call_after(finished, operation),
            ranks: vec![peer],
            seconds: seconds(waited_ns),
        }
    }

    fn of_host(wait: HostWait) -> Self {
        let seconds = seconds(now_ns().saturating_sub(wait.since_ns));
        Self { place: WaitPlace::Host, operation: wait.name, call: None, ranks: Vec::new(), seconds }
    }

    fn of_open(begun_ns: u64) -> Self {
        let seconds = seconds(now_ns().saturating_sub(begun_ns));
        Self { place: WaitPlace::Open, operation: "open".to_owned(), call: None, ranks: Vec::new(), seconds }
    }
}

impl ObservedCall {
    fn new(number: u64, call: EnqueuedCall) -> Self {
        Self {
            number,
            operation: call.operation().map_or("?", Operation::name),
            bytes: call.bytes,
            dtype: call.dtype_name(),
            algorithm: call.way_name(),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
