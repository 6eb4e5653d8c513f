//! What results of floating types may depend on.

use crate::settings::named;

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

named!(Determinism, "the determinism", Self::ALL);
