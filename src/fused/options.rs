//! Settings of a plan, and what became of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::settings::{named, setters};
use crate::types::Reduction;

/// How a plan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// By a model of the times: part by part where that is at least 1 % faster. On the CPU one after the other.
    #[default]
    Auto,
    /// The collective and the product one after the other.
    Sequence,
    /// Part by part: a part is multiplied while copy engines move others. Needs the own backend, more than one rank,
    /// as many rows for each rank, and parts that are contiguous: the cut dimension is the first that is not 1, and not
    /// the last.
    Pipeline,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Sequence, Self::Pipeline];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sequence => "sequence",
            Self::Pipeline => "pipeline",
        }
    }
}

named!(Way, "the way", Self::ALL);

/// The settings of a plan, equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FusedOptions {
    /// How the plan runs.
    pub way: Way,
    /// How the partial products of the ranks are combined: [`Reduction::Sum`] or [`Reduction::Average`].
    pub reduction: Reduction,
    /// The length of each rank's part along the cut dimension. `None`: equal parts. Unequal parts are for a cut dimension
    /// before which there is no dimension other than 1.
    pub rows: Option<Vec<usize>>,
}

setters! { FusedOptions { way: Way, reduction: Reduction, rows: Option<Vec<usize>> } }

/// How a plan runs, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// [`Way::Sequence`] or [`Way::Pipeline`].
    pub way: Way,
    /// How many parts are multiplied one by one.
    pub parts: usize,
    /// What multiplies.
    pub library: String,
    /// What the model says of one call of this way, in microseconds; `None` on the CPU.
    pub predicted_us: Option<f64>,
    /// The longer of the product alone and of the copies alone, by the model, in microseconds; `None` on the CPU.
    pub bound_us: Option<f64>,
    /// Why this way.
    pub reason: String,
}

impl fmt::Display for Planned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} in {} parts by {}: {}", self.way, self.parts, self.library, self.reason)
    }
}
