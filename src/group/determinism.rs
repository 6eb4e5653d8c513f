//! The factors on which results of floating types may depend.

use crate::settings::named;

/// The factors, other than the inputs and the world size, on which the bits of a floating-point result may depend. Each
/// level gives the guarantees of the previous level, and more. Integer results are exact at each level.
///
/// Only [multicast](crate::Config::multicast) needs a level below [`PerAlgorithm`](Self::PerAlgorithm). Without
/// multicast, the two levels below behave like `PerAlgorithm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Determinism {
    /// No guarantee: the bits may differ from rank to rank and from run to run.
    Free,
    /// The bits depend on the run. They are equal on all ranks.
    PerRun,
    /// The bits depend on the algorithm. They are equal on all ranks and in every run. When the library chooses the
    /// algorithm, they also depend on message size, kind of memory and device. With
    /// [`Algorithm::Ring`](crate::Algorithm::Ring) they depend on an element's position in the message.
    #[default]
    PerAlgorithm,
    /// The bits depend on nothing else: every result is a sum in rank order, rounded once. Algorithms that cannot
    /// guarantee this are refused and never chosen.
    Exact,
}

impl Determinism {
    /// Every level, the weakest first.
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
