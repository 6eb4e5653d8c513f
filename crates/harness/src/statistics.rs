//! Medians over launches, ratios and bandwidths.

/// The time of the slowest rank, for every launch.
pub fn slowest<'a>(ranks: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
    let ranks: Vec<_> = ranks.collect();
    let launches = ranks.iter().map(|times| times.len()).min().unwrap_or(0);
    (0..launches).map(|launch| ranks.iter().map(|times| times[launch]).fold(0.0, f64::max)).collect()
}

/// The middle value, or the mean of the two middle values; 0 for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The time of the fastest competitor divided by ours.
pub fn ratio(ours_us: f64, peers_us: &[f64]) -> Option<f64> {
    let best_us = peers_us.iter().copied().min_by(f64::total_cmp)?;
    (ours_us > 0.0).then(|| best_us / ours_us)
}

/// Bus bandwidth in NCCL's convention: bytes over a link divided by time. `bytes` is the size of the larger operand, of
/// which the collective moves the share `factor`.
pub fn busbw_gbps(bytes: u64, factor: f64, time_us: f64) -> f64 {
    if time_us > 0.0 { bytes as f64 / time_us / 1e3 * factor } else { 0.0 }
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/statistics.rs"]
mod tests;
