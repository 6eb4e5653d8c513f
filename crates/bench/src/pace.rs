//! How often operations run, on which data, against which libraries.

use serde::{Deserialize, Serialize};

use harness::comparison::competitor::Competitor;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;

/// How often operations run, on which data, against which libraries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pace {
    pub(super) ranks: usize,
    pub(super) competitors: Vec<Competitor>,
    pub(super) modes: Vec<Mode>,
    /// Operations of one launch; `None`: by size.
    pub(super) operations: Option<u32>,
    /// Timed launches.
    pub(super) launches: Repeats,
    pub(super) seed: u64,
}

impl Pace {
    /// The names of the peers, in the order of the columns.
    pub(super) fn peers(&self) -> Vec<&'static str> {
        self.competitors.iter().map(|other| other.name()).collect()
    }
}
