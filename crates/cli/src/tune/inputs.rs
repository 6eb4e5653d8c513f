//! From the laps of one kind of call to the inputs of [`choose`], and to its table.

use symmetra::{Algorithm, Device, Dtype, explain};

use super::crossovers::{Choice, Size, choose, ranges};
use super::measure::Lap;
use crate::failure::Failure;

/// A number of ranks, a type, and memory that peers can address or not.
pub(super) struct Kind<'d> {
    pub(super) device: &'d Device,
    pub(super) ranks: usize,
    pub(super) dtype: Dtype,
    pub(super) direct: bool,
}

impl Kind<'_> {
    /// What serves which message; `laps` are of rising sizes. `exact` leaves out algorithms that round at every rank.
    pub(super) fn table(&self, laps: &[Lap], exact: bool) -> Result<Vec<Choice>, Failure> {
        let able = |algorithm: Algorithm| !exact || algorithm.is_exact(self.dtype, self.ranks);
        let size = |lap: &Lap| {
            let times = lap.times_ns.iter().filter(|(name, _)| name.parse().is_ok_and(able));
            Size { bytes: lap.bytes, times_ns: times.map(|(name, time)| (name.clone(), *time)).collect() }
        };
        let sizes: Vec<Size> = laps.iter().map(size).collect();
        let built_in = explain(self.device.kind(), Some(self.device), self.ranks, None)?(self.dtype, self.direct);
        let built_in = built_in.into_iter().filter(|range| able(range.algorithm));
        let built_in: Vec<Choice> = built_in
            .map(|range| Choice { up_to_bytes: range.up_to_bytes, algorithm: range.algorithm.to_string() })
            .collect();
        Ok(ranges(&sizes, &choose(&sizes, &built_in), &built_in))
    }
}
