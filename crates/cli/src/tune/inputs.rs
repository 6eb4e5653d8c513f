//! Converts the trials of one kind of call to the inputs of [`choose`].

use symmetra::{Algorithm, Codec, Device, explain};

use super::crossovers::{Choice, Pair, Size, choose, faster_from, ranges, serves};
use super::experts::{self, ExpertLap};
use super::grids::{self, GridLap};
use super::measure::Lap;
use super::norms::{NormLap, built_in};
use harness::failure::Failure;

/// The algorithm for each range of sizes. `laps` are trials of one type and kind of memory and have rising sizes.
/// `exact` leaves out algorithms that round at every rank.
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

/// The size from which a codec is faster than the choices of a table. The outer `None`: the codec was not timed.
pub(super) fn codec(laps: &[Lap], table: &[Choice], codec: Codec) -> Option<Option<u64>> {
    let pair = |lap: &Lap| {
        let plain = lap.times_ns.get(&serves(table, lap.bytes)?.algorithm);
        let algorithms = lap.times_ns.iter().filter(|(name, _)| name.parse::<Algorithm>().is_ok());
        let plain_ns = *plain.or(algorithms.map(|(_, time)| time).min())?;
        Some(Pair { bytes: lap.bytes, plain_ns, coded_ns: *lap.times_ns.get(codec.name())? })
    };
    let pairs: Vec<Pair> = laps.iter().filter_map(pair).collect();
    (!pairs.is_empty()).then(|| faster_from(&pairs))
}

/// The kernel, or `apart` for unfused calls, for each range of the bytes of all rows. `laps` have rising sizes.
pub(super) fn norm_table(device: &Device, ranks: usize, laps: &[NormLap]) -> Result<Vec<Choice>, Failure> {
    let Some(first) = laps.first() else { return Err(Failure::failed("nothing was measured")) };
    let size = |lap: &NormLap| Size { bytes: lap.bytes, times_ns: lap.times_ns.clone() };
    let (sizes, built_in) = (laps.iter().map(size).collect::<Vec<_>>(), built_in(device, ranks, first)?);
    Ok(ranges(&sizes, &choose(&sizes, &built_in), &built_in))
}

/// The mode for each range of the bytes of `x` or of a slice. `laps` are trials of one operation and kind of memory and
/// have rising sizes.
pub(super) fn grid_table(device: &Device, laps: &[GridLap]) -> Result<Vec<Choice>, Failure> {
    let Some(first) = laps.first() else { return Err(Failure::failed("nothing was measured")) };
    let size = |lap: &GridLap| Size { bytes: lap.bytes, times_ns: lap.times_ns.clone() };
    let (sizes, built_in) = (laps.iter().map(size).collect::<Vec<_>>(), grids::built_in(device, first)?);
    Ok(ranges(&sizes, &choose(&sizes, &built_in), &built_in))
}

/// The method for each range of the bytes of a rank's rows. `laps` have rising sizes.
pub(super) fn expert_table(device: &Device, ranks: usize, laps: &[ExpertLap]) -> Result<Vec<Choice>, Failure> {
    let size = |lap: &ExpertLap| Size { bytes: lap.bytes, times_ns: lap.times_ns.clone() };
    let (sizes, built_in) = (laps.iter().map(size).collect::<Vec<_>>(), experts::built_in(device, ranks)?);
    Ok(ranges(&sizes, &choose(&sizes, &built_in), &built_in))
}
