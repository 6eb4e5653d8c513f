//! The backends, and a description of the calls that each serves.

use std::fmt;

use crate::error::Operation;
use crate::op::Op;
use crate::settings::named;
use crate::types::{Dtype, Reduction};

/// A backend of a group's calls. A call goes to the first backend, in this order, that serves the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// symmetra kernels with a codec: all-reduces, sums and averages, of f16 and bf16 in groups on one host, if
    /// [`EnvConfig::quantised`](crate::environment::EnvConfig::quantised) enables them for their size, and determinism
    /// is not exact.
    Quantised,
    /// symmetra kernels: every call, in groups on one host.
    Own,
    /// NCCL, loaded at run time (feature `nccl`): groups of GPUs. Opened if a group needs NCCL or is configured to use
    /// it.
    ///
    /// Serves no averages of integers and no minima and maxima of floating types. Serves reductions of 8-bit floats from
    /// version 2.24 and, on NVIDIA GPUs, compute capability 9.0 on. Sums, products and averages of floating types have
    /// NCCL's order and roundings, and averages sum values that each rank has divided. Under
    /// [`Determinism::Exact`](crate::Determinism::Exact), of these reductions it serves only sums and products of 2 ranks.
    Nccl,
    /// Staging through the CPU and an engine between hosts (feature `gloo`). A call **blocks** until its result is
    /// complete, and cannot be captured.
    Host,
}

impl Backend {
    /// Every backend, in the order of choice.
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

named!(Backend, "the backend", Self::ALL);

/// The calls that a backend serves and refuses in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The backend.
    pub backend: Backend,
    /// The calls that it serves. No call is in two entries, also of different backends.
    pub serves: Vec<Served>,
    /// The reasons why it refuses calls that reached it, each reason once.
    pub refuses: Vec<String>,
}

/// Calls of one operation that one backend serves, at any element-aligned address. Only for all-reduces does the
/// backend depend on the size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// The operation.
    pub operation: Operation,
    /// The reductions; empty if the operation does not reduce.
    pub reductions: Vec<Reduction>,
    /// The element types.
    pub dtypes: Vec<Dtype>,
    /// Whether the calls are captured into a graph, or else enqueued.
    pub captured: bool,
    /// The smallest all-reduce of these, in bytes; 0 for other operations.
    pub from_bytes: u64,
    /// The largest all-reduce of these, in bytes; `u64::MAX`: no limit, as for other operations.
    pub up_to_bytes: u64,
}

impl Served {
    /// Whether a call is one of these. `bytes` is the size of an all-reduce; any number for other operations.
    pub fn holds(
        &self,
        operation: Operation,
        reduction: Option<Reduction>,
        dtype: Dtype,
        captured: bool,
        bytes: u64,
    ) -> bool {
        self.operation == operation
            && (self.from_bytes..=self.up_to_bytes).contains(&bytes)
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
                write!(out, "{words}{}", operations(&served))?;
            }
        }
        let between = if self.serves.is_empty() { "" } else { "; " };
        match self.refuses.is_empty() {
            true => Ok(()),
            false => write!(out, "{between}refuses: {}", self.refuses.join("; ")),
        }
    }
}

/// The served calls, in the shortest form: first those of any size, then those of a range of sizes.
fn operations(served: &[&Served]) -> String {
    let of_any_size = |entry: &Served| entry.from_bytes == 0 && entry.up_to_bytes == u64::MAX;
    let whole = |entry: &Served| {
        let full = |op: &Op| entry.reductions.len() == op.reductions().len() && entry.dtypes.len() == op.dtypes().len();
        Op::of(entry.operation).is_some_and(full) && of_any_size(entry)
    };
    if served.iter().all(|entry| whole(entry)) && served.len() == Op::all().count() {
        return "every operation and type, any size".to_owned();
    }
    let names = |dtypes: &[Dtype]| match dtypes.len() == Dtype::ALL.len() {
        true => "every type".to_owned(),
        false => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" "),
    };
    let calls = |entry: &Served| match entry.reductions.is_empty() {
        true => format!("{} of {}", entry.operation, names(&entry.dtypes)),
        false => {
            let reductions: Vec<_> = entry.reductions.iter().map(|reduction| reduction.name()).collect();
            format!("{} ({}) of {}", entry.operation, reductions.join(" "), names(&entry.dtypes))
        }
    };
    let sizes = |entry: &Served| match (entry.from_bytes, entry.up_to_bytes) {
        (from, u64::MAX) => format!("from {from} bytes"),
        (0, up_to) => format!("up to {up_to} bytes"),
        (from, up_to) => format!("from {from} to {up_to} bytes"),
    };
    let (any, some): (Vec<&Served>, Vec<&Served>) = served.iter().copied().partition(|entry| of_any_size(entry));
    let any: Vec<String> = any.into_iter().map(calls).collect();
    let mut parts: Vec<String> = Vec::new();
    if !any.is_empty() {
        parts.push(format!("{}, any size", any.join(", ")));
    }
    parts.extend(some.into_iter().map(|entry| format!("{} {}", calls(entry), sizes(entry))));
    parts.join(", ")
}
