//! From times to choices: which algorithm serves which sizes. A pure function of the times.

use std::collections::{BTreeMap, BTreeSet};

/// What one size took by every algorithm that was timed.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) bytes: u64,
    /// By the algorithm's name.
    pub(super) times_ns: BTreeMap<String, u64>,
}

/// One range of sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The largest size measured that it serves.
    pub(super) up_to_bytes: u64,
    pub(super) algorithm: String,
}

/// What a further range must save: a twentieth of the time of one size, all its sizes together.
const RANGE_COST: f64 = 0.05;

/// The ranges, smallest sizes first, that lose least against the fastest algorithm of every size. `sizes` rise.
///
/// An algorithm serves one range or none: what is fastest grows with the message from low latency to little
/// traffic, and does not come back. Of every size the loss of an algorithm is how many times as long as the fastest
/// it takes, as a logarithm; it is smoothed by the two sizes beside it, so that a single disturbed time makes no
/// range, nor does a single size. The ranges found are the best there are, by exhaustion.
pub(super) fn crossovers(sizes: &[Size]) -> Vec<Choice> {
    let algorithms: BTreeSet<&str> = sizes.iter().flat_map(|size| size.times_ns.keys().map(String::as_str)).collect();
    let algorithms: Vec<&str> = algorithms.into_iter().collect();
    let losses: Vec<Vec<f64>> = algorithms.iter().map(|algorithm| smoothed(&losses(sizes, algorithm))).collect();
    let path = cheapest(&losses, sizes.len());
    let mut choices: Vec<Choice> = Vec::new();
    for (size, chosen) in sizes.iter().zip(path) {
        let algorithm = algorithms[chosen];
        match choices.last_mut() {
            Some(last) if last.algorithm == algorithm => last.up_to_bytes = size.bytes,
            _ => choices.push(Choice { up_to_bytes: size.bytes, algorithm: algorithm.to_owned() }),
        }
    }
    choices
}

/// Of every size how much longer than the fastest; without end where it was not timed.
fn losses(sizes: &[Size], algorithm: &str) -> Vec<f64> {
    let loss = |size: &Size| {
        let fastest = size.times_ns.values().min().copied().unwrap_or(0).max(1);
        size.times_ns.get(algorithm).map_or(f64::INFINITY, |time| ((*time).max(1) as f64 / fastest as f64).ln())
    };
    sizes.iter().map(loss).collect()
}

/// The median of every loss and its neighbours; at either end, of the three there. What was not timed stays out.
fn smoothed(losses: &[f64]) -> Vec<f64> {
    let Some(last_start) = losses.len().checked_sub(3) else { return losses.to_vec() };
    let at = |number: usize| {
        let start = number.saturating_sub(1).min(last_start);
        let mut three = [losses[start], losses[start + 1], losses[start + 2]];
        three.sort_by(f64::total_cmp);
        if losses[number].is_finite() { three[1] } else { losses[number] }
    };
    (0..losses.len()).map(at).collect()
}

/// A way through the sizes so far.
struct Path {
    cost: f64,
    algorithms: Vec<usize>,
}

/// The cheapest algorithm for every size, each in one piece: by what was used so far and what is in use, the best
/// way there.
fn cheapest(losses: &[Vec<f64>], sizes: usize) -> Vec<usize> {
    let mut ways: BTreeMap<(u64, usize), Path> = BTreeMap::new();
    for size in 0..sizes {
        let mut next: BTreeMap<(u64, usize), Path> = BTreeMap::new();
        for (algorithm, losses) in losses.iter().enumerate() {
            let loss = losses[size];
            if !loss.is_finite() {
                continue;
            }
            if size == 0 {
                next.insert((1 << algorithm, algorithm), Path { cost: loss, algorithms: vec![algorithm] });
            }
            for ((used, last), way) in &ways {
                let stays = *last == algorithm;
                if !stays && used & 1 << algorithm != 0 {
                    continue;
                }
                let cost = way.cost + loss + if stays { 0.0 } else { RANGE_COST };
                let key = (used | 1 << algorithm, algorithm);
                if next.get(&key).is_none_or(|known| cost < known.cost) {
                    let algorithms = way.algorithms.iter().copied().chain([algorithm]).collect();
                    next.insert(key, Path { cost, algorithms });
                }
            }
        }
        ways = next;
    }
    ways.into_values().min_by(|one, other| one.cost.total_cmp(&other.cost)).map_or_else(Vec::new, |way| way.algorithms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Latency and time per KiB of three algorithms, which are fastest up to 8 KiB, 128 KiB and from there; and
    /// of one that never is.
    const ALGORITHMS: [(&str, f64, f64); 4] =
        [("one", 2e3, 400.0), ("two", 4e3, 120.0), ("large", 12e3, 50.0), ("never", 13e3, 500.0)];

    fn sizes() -> Vec<Size> {
        let size = |step: u32| {
            let kib = f64::from(1 << step);
            let times = ALGORITHMS.map(|(name, latency, slope)| (name.to_owned(), (latency + slope * kib) as u64));
            Size { bytes: 1024 << step, times_ns: times.into() }
        };
        (0..12).map(size).collect()
    }

    fn choices(rows: &[(u64, &str)]) -> Vec<Choice> {
        rows.iter().map(|(kib, name)| Choice { up_to_bytes: kib << 10, algorithm: (*name).to_owned() }).collect()
    }

    #[test]
    fn every_winner_serves_the_sizes_it_wins() {
        let found = crossovers(&sizes());
        // 2 + 0.4 x = 4 + 0.12 x at 7.1 KiB, 4 + 0.12 x = 12 + 0.05 x at 114 KiB.
        assert_eq!(found, choices(&[(4, "one"), (64, "two"), (2048, "large")]));
        assert_eq!(crossovers(&sizes()[..3]), choices(&[(4, "one")]));
        assert_eq!(crossovers(&sizes()[..1]), choices(&[(1, "one")]));
        assert_eq!(crossovers(&[]), []);
    }

    #[test]
    fn one_disturbed_time_moves_a_limit_by_one_size_at_most() {
        let clean = crossovers(&sizes());
        for size in 0..sizes().len() {
            for (name, ..) in ALGORITHMS {
                for factor in [0.3, 0.8, 1.3, 10.0] {
                    let mut noisy = sizes();
                    let time = noisy[size].times_ns.get_mut(name).unwrap();
                    *time = (*time as f64 * factor) as u64;
                    let found = crossovers(&noisy);
                    assert_eq!(found.len(), clean.len(), "{name} at {size} by {factor}: {found:?}");
                    for (found, clean) in found.iter().zip(&clean) {
                        assert_eq!(found.algorithm, clean.algorithm);
                        let apart = found.up_to_bytes.ilog2().abs_diff(clean.up_to_bytes.ilog2());
                        assert!(apart <= 1, "{name} at {size} by {factor}: {found:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_saves_next_to_nothing_gets_no_range() {
        let mut sizes = sizes();
        for (number, size) in sizes.iter_mut().enumerate() {
            let fastest = *size.times_ns.values().min().unwrap() as f64;
            size.times_ns.clear();
            // Turn by turn half a percent faster.
            let times = [fastest, fastest * 1.005];
            let names = if number % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
            size.times_ns.extend(names.map(str::to_owned).into_iter().zip(times.map(|time| time as u64)));
        }
        assert_eq!(crossovers(&sizes).len(), 1);
    }

    #[test]
    fn an_algorithm_serves_only_where_it_was_timed() {
        let mut sizes = sizes();
        sizes.iter_mut().skip(2).for_each(|size| size.times_ns.retain(|name, _| name != "one"));
        assert_eq!(crossovers(&sizes), choices(&[(2, "one"), (64, "two"), (2048, "large")]));
    }

    proptest! {
        #[test]
        fn any_times_make_a_table(times in prop::collection::vec([1u64..1000, 1u64..1000, 1u64..1000, 1u64..1000], 1..20)) {
            let sizes: Vec<Size> = times.iter().enumerate().map(|(step, times)| Size {
                bytes: 16 << step,
                times_ns: ["a", "b", "c", "d"].map(str::to_owned).into_iter().zip(*times).collect(),
            }).collect();
            let found = crossovers(&sizes);
            let names: BTreeSet<_> = found.iter().map(|choice| &choice.algorithm).collect();
            prop_assert_eq!(names.len(), found.len());
            prop_assert!(found.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
            prop_assert_eq!(found.last().unwrap().up_to_bytes, sizes.last().unwrap().bytes);
        }
    }
}
