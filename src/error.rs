//! The one error type.

use std::fmt;
use std::time::Duration;

/// A `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a group was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a group, or exchanging something while one is open.
    Exchange,
    /// An all-reduce.
    AllReduce,
    /// Waiting for a signal.
    SignalWait,
    /// A barrier on a stream.
    SignalBarrier,
    /// Comparing calls before running them.
    Agree,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Exchange => "exchange",
            Self::AllReduce => "all-reduce",
            Self::SignalWait => "signal wait",
            Self::SignalBarrier => "signal barrier",
            Self::Agree => "agreement",
        })
    }
}

/// Everything that can go wrong. A failed group keeps returning the error that poisoned it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value outside its limit. Nothing was done.
    #[error("{what} is {value}, but {limit}")]
    InvalidArgument {
        /// What the value is.
        what: &'static str,
        /// The value.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// A valid request that this build, device or algorithm cannot serve. Nothing was done.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// The request.
        what: String,
        /// Why not.
        reason: String,
    },
    /// Too little memory in the arena or on the device. Nothing was allocated.
    #[error("{what} needs {needed_bytes} bytes, {available_bytes} are free")]
    OutOfMemory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes asked for.
        needed_bytes: u64,
        /// Bytes there are.
        available_bytes: u64,
    },
    /// A call of the device runtime failed.
    #[error("device error {code}: {message}")]
    Device {
        /// The runtime's code (`cudaError_t`, `CUresult`).
        code: i64,
        /// The call and the runtime's words.
        message: String,
    },
    /// A system call failed.
    #[error("system error {errno}: {message}")]
    System {
        /// `errno`.
        errno: i32,
        /// What was tried, and the system's words.
        message: String,
    },
    /// The ranks could not meet: a wrong size, rank or secret.
    #[error("bootstrap: {message}")]
    Bootstrap {
        /// What was wrong, with the values.
        message: String,
    },
    /// A deadline passed.
    #[error("{operation} {sequence}: timed out after {waited:?} waiting for {}{detail}", Rank(*.rank))]
    Timeout {
        /// What waited.
        operation: Operation,
        /// Which operation of the group, counted from 0 on the device; 0 for an exchange.
        sequence: u64,
        /// The rank that was waited for, where it is known.
        rank: Option<usize>,
        /// How long.
        waited: Duration,
        /// What is known of that rank; empty or starting with a colon.
        detail: String,
    },
    /// A rank died or left without closing the group.
    #[error("rank {rank} is gone{detail}")]
    PeerLost {
        /// The rank.
        rank: usize,
        /// What is known of its end; empty or starting with a colon.
        detail: String,
    },
    /// The group was aborted, here or by a peer.
    #[error("the group was aborted{detail}")]
    Aborted {
        /// By whom or where; empty or starting with a colon.
        detail: String,
    },
    /// The ranks disagree. The same error on every rank where it is found while opening.
    #[error("rank {rank} disagrees on {what}: {theirs} there, {ours} here")]
    Mismatch {
        /// The rank that differs.
        rank: usize,
        /// On what.
        what: String,
        /// Our value.
        ours: String,
        /// Its value.
        theirs: String,
    },
    /// Another rank failed while all ranks did something together; so this one stopped too.
    #[error("rank {rank} failed: {message}")]
    Peer {
        /// The rank that failed.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// The group was closed.
    #[error("the group is closed")]
    Closed,
    /// A graph holds pointers that the ranks have not exchanged yet.
    #[error("the graph holds {pointers} unregistered pointers: call register() on every rank first")]
    NotRegistered {
        /// How many.
        pointers: usize,
    },
    /// A defect in symmetra.
    #[error("internal error: {message}")]
    Internal {
        /// What happened.
        message: String,
    },
}

/// A rank in an error message, or nobody in particular.
struct Rank(Option<usize>);

impl fmt::Display for Rank {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(out, "rank {rank}"),
            None => out.write_str("a peer"),
        }
    }
}

impl Error {
    pub(crate) fn invalid(what: &'static str, value: impl fmt::Display, limit: impl Into<String>) -> Self {
        Self::InvalidArgument { what, value: value.to_string(), limit: limit.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn bootstrap(message: impl Into<String>) -> Self {
        Self::Bootstrap { message: message.into() }
    }

    pub(crate) fn system(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::System { errno: error.raw_os_error().unwrap_or(0), message: format!("{doing}: {error}") }
    }

    /// A wait of the host for other ranks that passed its deadline.
    pub(crate) fn exchange_timeout(rank: Option<usize>, waited: Duration, doing: impl fmt::Display) -> Self {
        let detail = format!(": {doing}");
        Self::Timeout { operation: Operation::Exchange, sequence: 0, rank, waited, detail }
    }
}
