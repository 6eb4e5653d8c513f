//! What can serve a group's calls, and how that is told.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Operation};
use crate::types::{Dtype, Reduction};

/// What can serve a group's calls, in the order they are asked: a call goes to the first that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// All-reduces of compressed elements. There are none yet, so it refuses every call.
    Quantised,
    /// symmetra's own kernels, which other libraries call custom ones: groups on one host, every call.
    Own,
    /// NCCL, found at run time (feature `nccl`): groups of GPUs. Opened where a group needs it or is told
    /// to use it.
    ///
    /// It serves no averages of integers and no minima and maxima of floating types. Sums, products and averages of
    /// floating types have its order and roundings, and averages are sums of what each rank has divided; under
    /// [`Determinism::Exact`](crate::Determinism::Exact) it serves of these the sums and products of 2 ranks.
    Nccl,
    /// Through the CPU and an engine between hosts (feature `gloo`). A call **blocks** until its result is
    /// there, and cannot be captured.
    Host,
}

impl Backend {
    /// Every backend, in order.
    pub const ALL: [Self; 4] = [Self::Quantised, Self::Own, Self::Nccl, Self::Host];

    /// The name used in settings and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quantised => "quantised",
            Self::Own => "own",
            Self::Nccl => "nccl",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
            Error::invalid("the backend", name, format!("it must be one of {}", Self::ALL.map(Self::name).join(", ")))
        })
    }
}

/// A backend's part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// Which.
    pub backend: Backend,
    /// The calls that go to it: no two entries, of whatever backend, hold the same call.
    pub serves: Vec<Served>,
    /// Why it does not serve calls that came to it, each reason once.
    pub refuses: Vec<String>,
}

/// Calls of one operation that go to one backend, of any size and at any element-aligned address: no backend
/// has a limit in either.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// The operation.
    pub operation: Operation,
    /// What it computes, where it computes anything; else it is empty.
    pub reductions: Vec<Reduction>,
    /// Of which types.
    pub dtypes: Vec<Dtype>,
    /// Whether it is enqueued, or recorded into a graph.
    pub captured: bool,
}

impl Served {
    /// Whether a call is among these.
    pub fn holds(&self, operation: Operation, reduction: Option<Reduction>, dtype: Dtype, captured: bool) -> bool {
        self.operation == operation
            && self.captured == captured
            && self.dtypes.contains(&dtype)
            && reduction.map_or(self.reductions.is_empty(), |reduction| self.reductions.contains(&reduction))
    }
}

impl fmt::Display for Explanation {
    /// `nccl: every all-gather, ...; refuses: ...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.backend)?;
        if self.serves.is_empty() && self.refuses.is_empty() {
            return out.write_str("nothing comes to it");
        }
        for captured in [false, true] {
            let served: Vec<&Served> = self.serves.iter().filter(|served| served.captured == captured).collect();
            if !served.is_empty() {
                let words = if captured { "; in graphs " } else { "" };
                write!(out, "{words}{}, any size", operations(&served))?;
            }
        }
        let between = if self.serves.is_empty() { "" } else { "; " };
        match self.refuses.is_empty() {
            true => Ok(()),
            false => write!(out, "{between}refuses: {}", self.refuses.join("; ")),
        }
    }
}

/// What is served, as short as it can be said.
fn operations(served: &[&Served]) -> String {
    let whole = |entry: &Served| {
        let reductions = entry.reductions.is_empty() || entry.reductions.len() == Reduction::ALL.len();
        reductions && entry.dtypes.len() == Dtype::ALL.len()
    };
    if served.iter().all(|entry| whole(entry)) && served.len() == crate::op::OPERATIONS.len() {
        return "every operation and type".to_owned();
    }
    let names = |dtypes: &[Dtype]| match dtypes.len() == Dtype::ALL.len() {
        true => "every type".to_owned(),
        false => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" "),
    };
    let entry = |entry: &&Served| match entry.reductions.is_empty() {
        true => format!("{} of {}", entry.operation, names(&entry.dtypes)),
        false => {
            let reductions: Vec<_> = entry.reductions.iter().map(|reduction| reduction.name()).collect();
            format!("{} ({}) of {}", entry.operation, reductions.join(" "), names(&entry.dtypes))
        }
    };
    served.iter().map(entry).collect::<Vec<_>>().join(", ")
}
