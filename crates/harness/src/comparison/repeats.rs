//! How often work is timed.

use serde::{Deserialize, Serialize};

/// The numbers of timed runs and of warm-up runs before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    pub timed: u32,
    pub warmup: u32,
}

/// Most batches: enough for a median.
const BATCHES: u32 = 10;

impl Repeats {
    /// Equal batches of `iterations` operations, and the operations of a batch, rounded up.
    pub fn batches(iterations: u32, warmup: u32) -> (Self, u32) {
        let timed = iterations.clamp(1, BATCHES);
        (Self { timed, warmup }, iterations.div_ceil(timed))
    }

    /// For each run, whether the run is timed.
    pub fn runs(self) -> impl Iterator<Item = bool> {
        (0..self.warmup).map(|_| false).chain((0..self.timed).map(|_| true))
    }

    /// All runs.
    pub fn total(self) -> u32 {
        self.timed + self.warmup
    }
}
