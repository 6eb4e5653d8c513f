//! From what every rank timed to one number, and from numbers to ratios.

/// For every launch the time of the slowest rank.
pub(crate) fn slowest<'a>(ranks: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
    let ranks: Vec<_> = ranks.collect();
    let launches = ranks.iter().map(|times| times.len()).min().unwrap_or(0);
    (0..launches).map(|launch| ranks.iter().map(|times| times[launch]).fold(0.0, f64::max)).collect()
}

/// The middle one; between the two middle ones where their number is even; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// How many times as long as ours the fastest of the others takes.
pub(super) fn ratio(ours_us: f64, peers_us: &[f64]) -> Option<f64> {
    let best_us = peers_us.iter().copied().min_by(f64::total_cmp)?;
    (ours_us > 0.0).then(|| best_us / ours_us)
}

/// Bytes over a link in NCCL's convention by time. `bytes` of the larger operand, of which the collective
/// moves `factor`.
pub(super) fn busbw_gbps(bytes: u64, factor: f64, time_us: f64) -> f64 {
    if time_us > 0.0 { bytes as f64 / time_us / 1e3 * factor } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_median_of_the_slowest() {
        let ranks: [&[f64]; 2] = [&[1.0, 9.0, 2.0], &[3.0, 1.0, 4.0, 8.0]];
        assert_eq!(slowest(ranks.into_iter()), [3.0, 9.0, 4.0]);
        assert_eq!(median(slowest(ranks.into_iter())), 4.0);
        assert_eq!(median(vec![1.0, 2.0]), 1.5);
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(slowest(std::iter::empty()), [0.0; 0]);
    }

    #[test]
    fn a_ratio_is_to_the_best_peer() {
        assert_eq!(ratio(2.0, &[5.0, 3.0]), Some(1.5));
        assert_eq!(ratio(4.0, &[2.0]), Some(0.5));
        assert_eq!(ratio(4.0, &[]), None);
        assert_eq!(ratio(0.0, &[2.0]), None);
    }

    #[test]
    fn bus_bandwidth_follows_nccl() {
        assert_eq!(busbw_gbps(1_000_000, 1.5, 100.0), 15.0);
        assert_eq!(busbw_gbps(1_000_000, 1.0, 0.0), 0.0);
    }
}
