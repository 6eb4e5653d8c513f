//! One kind of call: what was measured of it, and what that makes of the built-in table.

use symmetra::{Algorithm, Device, Dtype, explain};

use super::crossovers::{Choice, Size, choose, ranges};
use super::lap::Lap;
use crate::bench::measured::median;
use crate::failure::Failure;

/// A number of ranks, a type, and memory that peers can address or not.
pub(super) struct Kind<'d> {
    pub(super) device: &'d Device,
    pub(super) ranks: usize,
    pub(super) dtype: Dtype,
    pub(super) direct: bool,
}

/// Differences below this share of a time say nothing, however steady the times of one run are: another differs.
const LEAST_NOISE: f64 = 0.01;

/// The noise of laps: that of the middle one.
pub(super) fn noise(laps: &[Lap]) -> f64 {
    median(laps.iter().map(|lap| lap.noise).collect()).max(LEAST_NOISE)
}

impl Kind<'_> {
    /// What serves which message; `laps` are of rising sizes.
    pub(super) fn table(&self, laps: &[Lap], exact: bool) -> Result<Vec<Choice>, Failure> {
        let (sizes, built_in) = (self.sizes(laps, exact), self.built_in(exact)?);
        let chosen = choose(&sizes, &built_in, noise(laps));
        Ok(ranges(&sizes, &chosen, &built_in))
    }

    /// Numbers of the laps after which the choice changes.
    pub(super) fn changes(&self, laps: &[Lap], exact: bool) -> Result<Vec<usize>, Failure> {
        let sizes = self.sizes(laps, exact);
        let chosen = choose(&sizes, &self.built_in(exact)?, noise(laps));
        let changes = chosen.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]);
        Ok(changes.map(|(number, _)| number).collect())
    }

    fn serves(&self, algorithm: Algorithm, exact: bool) -> bool {
        !exact || algorithm.is_exact(self.dtype, self.ranks)
    }

    fn sizes(&self, laps: &[Lap], exact: bool) -> Vec<Size> {
        let able = |name: &str| name.parse().is_ok_and(|algorithm| self.serves(algorithm, exact));
        let size = |lap: &Lap| {
            let times = lap.times_ns.iter().filter(|(name, _)| able(name));
            Size { bytes: lap.bytes, times_ns: times.map(|(name, time)| (name.clone(), *time)).collect() }
        };
        laps.iter().map(size).collect()
    }

    fn built_in(&self, exact: bool) -> Result<Vec<Choice>, Failure> {
        let mut built_in = explain(self.device.kind(), Some(self.device), self.ranks, None)?(self.dtype, self.direct);
        built_in.retain(|range| self.serves(range.algorithm, exact));
        let choice =
            |range: &symmetra::Range| Choice { up_to_bytes: range.up_to_bytes, algorithm: range.algorithm.to_string() };
        Ok(built_in.iter().map(choice).collect())
    }
}
