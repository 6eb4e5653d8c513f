//! What results of floating types may depend on.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What the bits of a floating-point result may depend on, beside the inputs and the world size. Each promises what the one
/// before promises, and more. Integer results are exact in each.
///
/// Only [multicast](crate::Config::multicast) needs less than [`PerAlgorithm`](Self::PerAlgorithm). Without it the two below
/// choose and compute what that one does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Determinism {
    /// Anything: the bits may differ from rank to rank and from run to run.
    Free,
    /// The run. The bits are equal on all ranks.
    PerRun,
    /// The algorithm. The bits are equal on all ranks and in every run. When the library chooses the algorithm, the bits
    /// also depend on message size, kind of memory and device. With [`Algorithm::Ring`](crate::Algorithm::Ring) they
    /// depend on an element's position in the message.
    #[default]
    PerAlgorithm,
    /// Nothing else: every result is a sum in rank order, rounded once. Algorithms that cannot promise this are refused
    /// and never chosen.
    Exact,
}

impl Determinism {
    /// Every determinism, the least first.
    pub const ALL: [Self; 4] = [Self::Free, Self::PerRun, Self::PerAlgorithm, Self::Exact];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::PerRun => "per-run",
            Self::PerAlgorithm => "per-algorithm",
            Self::Exact => "exact",
        }
    }
}

impl FromStr for Determinism {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|determinism| determinism.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("the determinism", name, format!("it must be one of {names}"))
        })
    }
}

impl fmt::Display for Determinism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
