//! How often work is timed.

use serde::{Deserialize, Serialize};

/// The numbers of timed runs and of warm-up runs before them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Repeats {
    pub timed: u32,
    pub warmup: u32,
}

impl Repeats {
    /// For each run, whether the run is timed.
    pub fn runs(self) -> impl Iterator<Item = bool> {
        (0..self.warmup).map(|_| false).chain((0..self.timed).map(|_| true))
    }

    /// All runs.
    pub fn total(self) -> u32 {
        self.timed + self.warmup
    }
}
