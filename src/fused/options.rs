//! Settings of a plan, and the resulting schedule.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::settings::{named, setters};
use crate::types::Reduction;

/// How a plan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// Chooses by a model of the times: the pipeline if it is at least 1 % faster. On the CPU always the sequence.
    #[default]
    Auto,
    /// The collective and the GEMM one after the other.
    Sequence,
    /// Part by part: a part is multiplied while copy engines move other parts. Needs symmetra kernels, more than one rank,
    /// equal parts, and contiguous parts: the cut dimension is the first that is not 1, and is not the last.
    Pipeline,
}

impl Way {
    /// Every schedule.
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
    /// with only dimensions of 1 before it.
    pub rows: Option<Vec<usize>>,
}

setters! { FusedOptions { way: Way, reduction: Reduction, rows: Option<Vec<usize>> } }

/// The schedule of a plan, and the reason for it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// [`Way::Sequence`] or [`Way::Pipeline`].
    pub way: Way,
    /// The number of parts that are multiplied separately.
    pub parts: usize,
    /// The library that multiplies.
    pub library: String,
    /// The predicted time of one call with this schedule, in microseconds; `None` on the CPU.
    pub predicted_us: Option<f64>,
    /// The longer of the predicted times of only the GEMMs and of only the copies, in microseconds; `None` on the CPU.
    pub bound_us: Option<f64>,
    /// The reason for this schedule.
    pub reason: String,
}

impl fmt::Display for Planned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} in {} parts by {}: {}", self.way, self.parts, self.library, self.reason)
    }
}
