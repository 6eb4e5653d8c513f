//! From the laps of one kind of call to the inputs of [`choose`].

use symmetra::{Algorithm, Device, explain};

use super::crossovers::{Choice, Size, choose, ranges};
use super::measure::Lap;
use crate::failure::Failure;

/// The algorithm for each range of sizes. `laps` are of one type and kind of memory and have rising sizes. `exact` leaves
/// out algorithms that round at every rank.
pub(super) fn table(device: &Device, ranks: usize, laps: &[Lap], exact: bool) -> Result<Vec<Choice>, Failure> {
    let Some(Lap { dtype, direct, .. }) = laps.first() else { return Err(Failure::failed("nothing was measured")) };
    let able = |algorithm: Algorithm| !exact || algorithm.is_exact(*dtype, ranks);
    let size = |lap: &Lap| {
        let times = lap.times_ns.iter().filter(|(name, _)| name.parse().is_ok_and(able));
        Size { bytes: lap.bytes, times_ns: times.map(|(name, time)| (name.clone(), *time)).collect() }
    };
    let sizes: Vec<Size> = laps.iter().map(size).collect();
    let mut built_in = explain(device.kind(), Some(device), ranks, None)?(*dtype, *direct);
    built_in.retain(|range| able(range.algorithm));
    let built_in: Vec<Choice> = built_in
        .iter()
        .map(|range| Choice { up_to_bytes: range.up_to_bytes, algorithm: range.algorithm.to_string() })
        .collect();
    Ok(ranges(&sizes, &choose(&sizes, &built_in), &built_in))
}
