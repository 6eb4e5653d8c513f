//! The crate's error type.

mod operation;

use std::fmt;
use std::time::Duration;

use crate::log::Rounded;

pub use operation::{Operation, Parameter};

/// A `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of the library. A failed group keeps returning its first error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value outside its limit. The call had no effect. One case fails the group: a kernel of the program that was
    /// compiled with `SYMMETRA_CHECKED` accessed memory outside the heap.
    #[error("invalid argument: {message}")]
    InvalidArgument {
        /// The name of the value, the value, and its limit.
        message: String,
    },
    /// A valid request that this build, device or algorithm cannot serve. The call had no effect. One case fails the
    /// group: [`Transport::Direct`](crate::Transport::Direct) with received data outside symmetric memory, if ranks
    /// know only their own counts.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// The request.
        what: String,
        /// Why it is not supported.
        reason: String,
    },
    /// Too little memory in the arena or on the device. Nothing was allocated.
    #[error("out of memory: {message}")]
    OutOfMemory {
        /// The purpose of the memory, the required and the available bytes.
        message: String,
    },
    /// A call of the device runtime failed.
    #[error("device error {code}: {message}")]
    Device {
        /// The runtime's code (`cudaError_t`, `CUresult`).
        code: i64,
        /// The call and the runtime's description.
        message: String,
    },
    /// An NCCL call failed.
    #[error("NCCL error {code}: {message}")]
    Nccl {
        /// The `ncclResult_t`.
        code: i32,
        /// The call and NCCL's description.
        message: String,
    },
    /// A system call failed.
    #[error("system error {errno}: {message}")]
    System {
        /// `errno`.
        errno: i32,
        /// The attempted action and the system's description.
        message: String,
    },
    /// The ranks could not meet: a wrong size, rank or secret.
    #[error("bootstrap: {message}")]
    Bootstrap {
        /// The error, with the values.
        message: String,
    },
    /// A deadline passed.
    #[error("{operation} {sequence}: timed out after {} waiting for {}{detail}", Rounded(*.waited), RankText(*.rank))]
    Timeout {
        /// The operation that waited.
        operation: Operation,
        /// The number of collectives of the group that this rank's device had finished before. An all-reduce or
        /// broadcast of a large message in parts counts each part. Signals, messages between pairs, comparisons of
        /// calls and counts, and copy engine transfers do not count. 0 for a host-side exchange. For an NCCL operation,
        /// the number of operations that this rank had enqueued before.
        sequence: u64,
        /// The late rank, if known.
        rank: Option<usize>,
        /// The deadline of the wait.
        waited: Duration,
        /// Details about that rank; empty, or starts with a colon.
        detail: String,
    },
    /// A rank died or left without closing the group.
    #[error("rank {rank} is gone{detail}")]
    PeerLost {
        /// The lost rank.
        rank: usize,
        /// Details about its end; empty, or starts with a colon.
        detail: String,
    },
    /// The group was aborted, here or by a peer, or this rank kept a peer waiting too long.
    #[error("the group was aborted{detail}")]
    Aborted {
        /// The rank or place of the abort, and the reason; empty, or starts with a colon.
        detail: String,
    },
    /// The ranks disagree. If this is detected during opening, every rank gets an equal error.
    #[error("ranks {against} and {rank} disagree on {what}: {ours} and {theirs}")]
    Mismatch {
        /// The value on which they disagree.
        what: String,
        /// The reference rank; its value is `ours`.
        against: usize,
        /// The value of rank `against`.
        ours: String,
        /// The rank that differs.
        rank: usize,
        /// The value of rank `rank`.
        theirs: String,
    },
    /// Another rank failed in a collective step, so this rank stopped too.
    #[error("rank {rank} failed: {message}")]
    Peer {
        /// The rank that failed.
        rank: usize,
        /// The failed rank's error.
        message: String,
    },
    /// The expert id of a token is out of range. Detected on the device, by every rank.
    #[error("token {token} of rank {rank} goes to expert {expert}, but there are {experts}")]
    Routing {
        /// The rank of the token.
        rank: usize,
        /// The index of the token on its rank.
        token: usize,
        /// The expert.
        expert: i64,
        /// The number of experts.
        experts: usize,
    },
    /// A rank would receive more rows than it has capacity for. Detected on the device, by every rank.
    #[error("rank {rank} would receive {rows} rows, but has capacity for {capacity}")]
    Capacity {
        /// The rank.
        rank: usize,
        /// The rows that it would receive, or, in padded layouts, the rows that one of its experts would receive.
        rows: usize,
        /// The capacity in rows.
        capacity: usize,
    },
    /// The token count on the device exceeds the number of tokens with expert ids. Detected on the device, by every
    /// rank.
    #[error("rank {rank} counts {tokens} tokens on the device, but has expert ids of {ids}")]
    Tokens {
        /// The rank.
        rank: usize,
        /// The token count on the device.
        tokens: usize,
        /// The number of tokens with expert ids.
        ids: usize,
    },
    /// The group was closed.
    #[error("the group is closed")]
    Closed,
    /// A graph holds pointers that the ranks have not exchanged yet.
    #[error(
        "the graph holds {pointers} unregistered pointers: call Graph::register (in C++ register_pointers) on every rank first"
    )]
    NotRegistered {
        /// The number of unregistered pointers.
        pointers: usize,
    },
    /// A defect in symmetra.
    #[error("internal error: {message}")]
    Internal {
        /// A description of the defect.
        message: String,
    },
}

/// A rank in an error message; `None` prints as an unnamed peer.
struct RankText(Option<usize>);

impl fmt::Display for RankText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(out, "rank {rank}"),
            None => out.write_str("a peer"),
        }
    }
}

/// The name of the mismatch of ranks that make different host-side collective calls.
pub(crate) const HOST_CALL: &str = "the collective call of the host";

/// The start of an abort's detail on the rank that aborts.
pub(crate) const BY_THIS_RANK: &str = ": by this rank";

/// The name of a group, and the world ranks of `ranks` if they differ from the ranks in the group.
pub(crate) fn group_of_world(name: &str, world: &[usize], ranks: &[usize]) -> String {
    let of_world = ranks.iter().filter_map(|rank| Some((rank, world.get(*rank).filter(|number| *number != rank)?)));
    let of_world: Vec<_> =
        of_world.map(|(rank, number)| format!("whose rank {rank} is rank {number} of the world")).collect();
    let separator = if of_world.is_empty() { "" } else { ", " };
    format!("group {name}{separator}{}", of_world.join(" and "))
}

impl Error {
    /// The error on rank `own` of an error that rank `by` found. If rank `by` reports rank `own` itself as late or
    /// lost, the error becomes an abort: a rank must not evict itself.
    pub(crate) fn seen_by(self, own: usize, by: usize) -> Self {
        let detail = match &self {
            Self::Timeout { operation: Operation::Exchange, rank: Some(rank), detail, .. } if *rank == own => {
                format!(": rank {by} had waited too long for this one{detail}")
            }
            Self::Timeout { operation, sequence, rank: Some(rank), .. } if *rank == own => {
                format!(": rank {by} had waited too long for this one in {operation} {sequence}")
            }
            Self::PeerLost { rank, detail } if *rank == own => format!(": rank {by} took this one for lost{detail}"),
            _ => return self,
        };
        Self::Aborted { detail }
    }

    /// Adds the name of the group, and the world ranks of the ranks that the error names. `by`: the rank that ended the
    /// group, which the message of an abort names.
    pub(crate) fn in_group(mut self, name: &str, world: &[usize], by: Option<usize>) -> Self {
        let differs = matches!(self, Self::Mismatch { .. });
        let (words, ranks) = match &mut self {
            Self::Timeout { detail, rank, .. } => (detail, [*rank, None]),
            Self::PeerLost { detail, rank } => (detail, [Some(*rank), None]),
            Self::Peer { message, rank } => (message, [Some(*rank), None]),
            Self::Mismatch { what, against, rank, .. } => (what, [Some(*against), Some(*rank)]),
            Self::Aborted { detail } => (detail, [by, None]),
            Self::Bootstrap { message } => (message, [None, None]),
            _ => return self,
        };
        // An error that passed through the group before already contains them.
        if !words.contains(" in group ") {
            let ranks: Vec<usize> = ranks.into_iter().flatten().collect();
            *words += if differs { " in " } else { "; in " };
            *words += &group_of_world(name, world, &ranks);
        }
        self
    }

    /// The error of ranks that make different host-side collective calls.
    pub(crate) fn unlike_calls(against: usize, ours: &str, rank: usize, theirs: &str) -> Self {
        let (ours, theirs) = (ours.to_owned(), theirs.to_owned());
        Self::Mismatch { what: HOST_CALL.to_owned(), against, ours, rank, theirs }
    }

    /// The expert error with this text; `None` for other texts.
    fn of_experts(kind: i64, message: &str) -> Option<Self> {
        let words = message.split(|letter: char| letter != '-' && !letter.is_ascii_digit());
        let numbers: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
        let size = |number: i64| usize::try_from(number).ok();
        let error = match (kind, &numbers[..]) {
            (15, &[rank, tokens, ids]) if message.contains(" tokens ") => {
                Self::Tokens { rank: size(rank)?, tokens: size(tokens)?, ids: size(ids)? }
            }
            (14, &[token, rank, expert, experts]) => {
                Self::Routing { rank: size(rank)?, token: size(token)?, expert, experts: size(experts)? }
            }
            (15, &[rank, rows, capacity]) => {
                Self::Capacity { rank: size(rank)?, rows: size(rows)?, capacity: size(capacity)? }
            }
            _ => return None,
        };
        (error.to_string() == message).then_some(error)
    }

    /// The error with the kind, code and rank that crossed the language boundary; the numbers are those of
    /// `symmetra::ErrorKind`.
    pub(crate) fn from_parts(kind: i64, native_code: i64, rank: i64, message: &str) -> Self {
        // An error that this library raised already contains this text; it is not repeated.
        let detail = |said: String| match message.strip_prefix(&said) {
            Some(rest) => rest.to_owned(),
            None => format!(": {message}"),
        };
        let rank = usize::try_from(rank).ok();
        match (kind, rank) {
            (8, Some(rank)) => return Self::PeerLost { rank, detail: detail(format!("rank {rank} is gone")) },
            (9, _) => return Self::Aborted { detail: detail("the group was aborted".to_owned()) },
            // Of a mismatch, only message and rank crossed the boundary.
            (10, Some(rank)) => {
                let [ours, theirs] = ["one value", "another"].map(str::to_owned);
                return Self::Mismatch { what: message.to_owned(), against: 0, ours, rank, theirs };
            }
            (13, Some(rank)) => {
                let said = format!("rank {rank} failed: ");
                return Self::Peer { rank, message: message.strip_prefix(&said).unwrap_or(message).to_owned() };
            }
            (14 | 15, _) => {
                if let Some(error) = Self::of_experts(kind, message) {
                    return error;
                }
            }
            _ => {}
        }
        let message = message.to_owned();
        match kind {
            1 => Self::InvalidArgument { message },
            2 => Self::unsupported("this request", message),
            3 => Self::OutOfMemory { message },
            4 => Self::Device { code: native_code, message },
            5 => Self::System { errno: i32::try_from(native_code).unwrap_or(0), message },
            6 => Self::bootstrap(message),
            7 => Self::exchange_timeout(rank, Duration::ZERO, message),
            // The exception did not contain the rank, or the other fields of the error.
            8 | 10 | 13 | 14 | 15 => Self::bootstrap(message),
            11 => Self::Closed,
            12 => Self::NotRegistered { pointers: 1 },
            _ => Self::Internal { message },
        }
    }

    /// The reverse of [`of_members`](Self::of_members). Ranks outside `members` are numbered after the members.
    pub(crate) fn among(self, members: &[usize]) -> Self {
        let place = |rank: usize| members.iter().position(|member| *member == rank);
        self.renumbered(|rank| place(rank).unwrap_or(members.len() + rank))
    }

    fn renumbered(self, of: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::PeerLost { rank, detail } => Self::PeerLost { rank: of(rank), detail },
            Self::Peer { rank, message } => Self::Peer { rank: of(rank), message },
            Self::Timeout { operation, sequence, rank, waited, detail } => {
                Self::Timeout { operation, sequence, rank: rank.map(of), waited, detail }
            }
            Self::Mismatch { what, against, ours, rank, theirs } => {
                Self::Mismatch { what, against: of(against), ours, rank: of(rank), theirs }
            }
            // A routing error has the rank numbers of the experts' group.
            other => other,
        }
    }

    /// A host-side wait for other ranks that exceeded its deadline.
    pub(crate) fn exchange_timeout(rank: Option<usize>, waited: Duration, doing: impl fmt::Display) -> Self {
        let detail = format!(": {doing}");
        Self::Timeout { operation: Operation::Exchange, sequence: 0, rank, waited, detail }
    }
}

/// Constructors for this library and `symmetra-ring`.
#[doc(hidden)]
impl Error {
    /// `what` is `value`, but `limit`.
    pub fn invalid(what: &str, value: impl fmt::Display, limit: impl fmt::Display) -> Self {
        Self::InvalidArgument { message: format!("{what} is {value}, but {limit}") }
    }

    pub fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), reason: reason.into() }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal { message: message.into() }
    }

    pub fn bootstrap(message: impl Into<String>) -> Self {
        Self::Bootstrap { message: message.into() }
    }

    pub fn system(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::System { errno: error.raw_os_error().unwrap_or(0), message: format!("{doing}: {error}") }
    }

    /// Translates an error of the group of `members` to the rank numbers of the larger group. Rank numbers inside
    /// message texts are unchanged.
    pub fn of_members(self, members: &[usize]) -> Self {
        let of = |rank: usize| members.get(rank).copied().unwrap_or_else(|| rank.saturating_sub(members.len()));
        self.renumbered(of)
    }
}

#[cfg(test)]
#[path = "../tests/unit/error.rs"]
mod tests;
