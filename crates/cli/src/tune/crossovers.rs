//! From times to choices: which algorithm serves which sizes. A pure function of the times and the built-in table.

use std::collections::BTreeMap;

use symmetra::Algorithm;

use super::lap::sends_all;

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
    /// Its largest message; of the last range `u64::MAX`.
    pub(super) up_to_bytes: u64,
    pub(super) algorithm: String,
}

/// A way through the sizes so far.
struct Way<'s> {
    cost: f64,
    algorithms: Vec<&'s str>,
    /// Whether the last is the built-in choice.
    usual: bool,
}

/// The algorithm for every size, where `sizes` rise and `noise` is the share of a time below which a difference says
/// nothing.
///
/// Of every size the loss of an algorithm is how many times as long as the fastest it takes, as a logarithm. The
/// choices are those that cost least in all: their losses, `noise` for each that is not the built-in one, and half of
/// it where the algorithm changes, unless the built-in one does. Since changing the choice for one size adds two such
/// halves at most, at every size:
/// - what is chosen is never slower than the built-in choice, where that was timed,
/// - it loses no more than twice `noise` to the fastest,
/// - and a range of one size alone must save twice `noise`.
pub(super) fn choose<'s>(sizes: &'s [Size], built_in: &[Choice], noise: f64) -> Vec<&'s str> {
    let mut ways: Vec<Way<'s>> = Vec::new();
    for size in sizes {
        let usual = serves(built_in, size.bytes).map(|range| range.algorithm.as_str());
        let fastest = size.times_ns.values().min().copied().unwrap_or(0).max(1);
        let to = |(name, time): (&'s String, &u64)| {
            let is_usual = usual == Some(name.as_str());
            let cost_from = |way: &Way<'_>| {
                let stays = way.algorithms.last() == Some(&name.as_str()) || (way.usual && is_usual);
                way.cost + if stays { 0.0 } else { noise / 2.0 }
            };
            let from = ways.iter().min_by(|one, other| cost_from(one).total_cmp(&cost_from(other)));
            let before = from.map_or(0.0, cost_from);
            let mut algorithms = from.map_or_else(Vec::new, |way| way.algorithms.clone());
            algorithms.push(name.as_str());
            let loss = ((*time).max(1) as f64 / fastest as f64).ln();
            Way { cost: before + loss + if is_usual { 0.0 } else { noise }, algorithms, usual: is_usual }
        };
        ways = size.times_ns.iter().map(to).collect();
    }
    ways.into_iter().min_by(|one, other| one.cost.total_cmp(&other.cost)).map_or_else(Vec::new, |way| way.algorithms)
}

/// The ranges for what was chosen for every size.
///
/// Between two sizes the built-in ranges hold where both have the built-in choice; else an algorithm ends at the
/// geometric middle. Messages smaller or larger than all that was measured go as the nearest size in the rest of its
/// built-in range, then as the built-in ranges have it.
pub(super) fn ranges(sizes: &[Size], chosen: &[&str], built_in: &[Choice]) -> Vec<Choice> {
    let mut ranges = Ranges(Vec::new());
    let (Some(smallest), Some(largest), Some(of_largest)) = (sizes.first(), sizes.last(), chosen.last()) else {
        return ranges.0;
    };
    for range in built_in.iter().filter(|range| range.up_to_bytes < smallest.bytes) {
        // All but the rest of the range of the smallest.
        ranges.push(range.up_to_bytes, &range.algorithm);
    }
    let usual =
        |number: usize| serves(built_in, sizes[number].bytes).is_some_and(|range| range.algorithm == chosen[number]);
    for (number, pair) in sizes.windows(2).enumerate() {
        let [from, to] = [pair[0].bytes, pair[1].bytes];
        if usual(number) && usual(number + 1) {
            for range in built_in.iter().filter(|range| (from..to).contains(&range.up_to_bytes)) {
                ranges.push(range.up_to_bytes, &range.algorithm);
            }
        } else if chosen[number] != chosen[number + 1] {
            ranges.push(((from as f64 * to as f64).sqrt() as u64).clamp(from, to - 1), chosen[number]);
        }
    }
    let mut rest = built_in.iter().filter(|range| range.up_to_bytes >= largest.bytes);
    // The larger the message, the worse such an algorithm is.
    if of_largest.parse::<Algorithm>().is_ok_and(sends_all) {
        ranges.push(largest.bytes, of_largest);
    } else {
        ranges.push(rest.next().map_or(u64::MAX, |range| range.up_to_bytes), of_largest);
    }
    for range in rest {
        ranges.push(range.up_to_bytes, &range.algorithm);
    }
    if let Some(last) = ranges.0.last_mut() {
        last.up_to_bytes = u64::MAX;
    }
    ranges.0
}

/// The range that a message lies in: the last, where the table ends before it.
pub(super) fn serves(ranges: &[Choice], bytes: u64) -> Option<&Choice> {
    ranges.iter().find(|range| bytes <= range.up_to_bytes).or(ranges.last())
}

/// Ranges that rise, neighbours of which differ.
struct Ranges(Vec<Choice>);

impl Ranges {
    fn push(&mut self, up_to_bytes: u64, algorithm: &str) {
        match self.0.last_mut() {
            Some(last) if up_to_bytes <= last.up_to_bytes => {}
            Some(last) if last.algorithm == algorithm => last.up_to_bytes = up_to_bytes,
            _ => self.0.push(Choice { up_to_bytes, algorithm: algorithm.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOISE: f64 = 0.02;

    /// Latency and time per KiB of three algorithms, which are fastest up to 7 KiB, 114 KiB and from there; and
    /// of one that never is.
    const ALGORITHMS: [(&str, f64, f64); 4] =
        [("one", 2e3, 400.0), ("two", 4e3, 120.0), ("large", 12e3, 50.0), ("never", 13e3, 500.0)];

    fn size(bytes: u64) -> Size {
        let kib = bytes as f64 / 1024.0;
        let times = ALGORITHMS.map(|(name, latency, slope)| (name.to_owned(), (latency + slope * kib) as u64));
        Size { bytes, times_ns: times.into() }
    }

    fn sizes() -> Vec<Size> {
        (0..12).map(|step| size(1024 << step)).collect()
    }

    /// By limits in KiB; the last has none.
    fn table(rows: &[(u64, &str)]) -> Vec<Choice> {
        let limit = |kib: u64| if kib == 0 { u64::MAX } else { kib << 10 };
        rows.iter().map(|(kib, name)| Choice { up_to_bytes: limit(*kib), algorithm: (*name).to_owned() }).collect()
    }

    fn tuned(sizes: &[Size], built_in: &[Choice]) -> Vec<Choice> {
        ranges(sizes, &choose(sizes, built_in, NOISE), built_in)
    }

    #[test]
    fn every_winner_serves_the_sizes_it_wins() {
        let middle = |kib: f64| (kib * 1024.0 * 2f64.sqrt()) as u64;
        let mut expected = table(&[(0, "one"), (0, "two"), (0, "large")]);
        // 2 + 0.4 x = 4 + 0.12 x at 7.1 KiB, 4 + 0.12 x = 12 + 0.05 x at 114 KiB.
        expected[0].up_to_bytes = middle(4.0);
        expected[1].up_to_bytes = middle(64.0);
        assert_eq!(tuned(&sizes(), &table(&[(0, "never")])), expected);
        // Sizes between, around the changes.
        let mut finer = sizes();
        for (at, kib) in [(3, 5), (4, 6), (5, 7), (10, 80), (11, 96), (12, 112)] {
            finer.insert(at, size(kib << 10));
        }
        let found = tuned(&finer, &table(&[(0, "never")]));
        let limits: Vec<u64> = found.iter().map(|choice| choice.up_to_bytes >> 10).collect();
        // Between 7 and 8, and between 112 and 128.
        assert_eq!(limits, [7, 119, u64::MAX >> 10], "{found:?}");
    }

    #[test]
    fn what_is_no_better_keeps_the_built_in_table_and_its_limits() {
        let built_in = table(&[(7, "one"), (100, "two"), (0, "large")]);
        assert_eq!(tuned(&sizes(), &built_in), built_in);
        assert_eq!(tuned(&sizes()[3..5], &built_in), built_in);
        // Built-in ranges that no size was measured in.
        let finer = table(&[(5, "one"), (6, "large"), (7, "one"), (100, "two"), (3000, "large"), (0, "never")]);
        assert_eq!(tuned(&sizes(), &finer), finer);
    }

    #[test]
    fn an_algorithm_may_serve_several_ranges() {
        let mut sizes = sizes();
        // At 16 and 32 KiB another is a tenth faster than what is fastest on both sides.
        for size in &mut sizes[4..6] {
            let fastest = size.times_ns["two"];
            size.times_ns.insert("never".to_owned(), fastest * 9 / 10);
        }
        let built_in = table(&[(7, "one"), (100, "two"), (0, "large")]);
        let names: Vec<_> = tuned(&sizes, &built_in).into_iter().map(|choice| choice.algorithm).collect();
        assert_eq!(names, ["one", "two", "never", "two", "large"]);
    }

    #[test]
    fn messages_that_were_not_measured_go_as_is_likely() {
        let (ll, two, ring) = (Algorithm::OneShotLL.name(), Algorithm::TwoShotZeroCopy.name(), Algorithm::Ring.name());
        let built_in = table(&[(10, ll), (30, two), (0, ring)]);
        let at = |kib: u64| Size { bytes: kib << 10, times_ns: BTreeMap::new() };
        let of = |sizes: &[u64], chosen: &[&str]| {
            ranges(&sizes.iter().map(|kib| at(*kib)).collect::<Vec<_>>(), chosen, &built_in)
        };
        assert_eq!(of(&[16], &[ll]), table(&[(16, ll), (30, two), (0, ring)]));
        assert_eq!(of(&[8], &[two]), table(&[(30, two), (0, ring)]));
        assert_eq!(of(&[16], &[ring]), table(&[(10, ll), (0, ring)]));
        assert_eq!(of(&[64], &[two]), table(&[(10, ll), (0, two)]));
        assert_eq!(of(&[64], &[ll]), table(&[(10, ll), (30, two), (64, ll), (0, ring)]));
        assert_eq!(of(&[9, 16], &[two, two]), table(&[(30, two), (0, ring)]));
        assert_eq!(of(&[], &[]), []);
    }

    /// Times of four algorithms at rising sizes, and a built-in table of them.
    fn measured() -> impl Strategy<Value = (Vec<Size>, Vec<Choice>)> {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let time = || prop::option::weighted(0.9, 800u64..1000);
        let times = (time(), time(), time(), Just(Some(2000u64)));
        let times = prop::collection::vec((1u64..4000, times), 1..20);
        let limits = prop::collection::vec((1u64..30_000, 0usize..4), 0..6);
        (times, limits, 0usize..4).prop_map(|(times, mut limits, last)| {
            let mut bytes = 0;
            let sizes = times.into_iter().map(|(more, (a, b, c, d))| {
                bytes += more;
                let times =
                    NAMES.into_iter().zip([a, b, c, d]).filter_map(|(name, time)| Some((name.to_owned(), time?)));
                Size { bytes, times_ns: times.collect() }
            });
            limits.sort_unstable();
            limits.push((u64::MAX, last));
            let mut table = Ranges(Vec::new());
            limits.into_iter().for_each(|(limit, name)| table.push(limit, NAMES[name]));
            (sizes.collect(), table.0)
        })
    }

    proptest! {
        #[test]
        fn no_choice_is_slower_than_the_built_in_one_or_far_from_the_fastest(
            (sizes, built_in) in measured(), noise in 0.01f64..0.2,
        ) {
            let chosen = choose(&sizes, &built_in, noise);
            prop_assert_eq!(chosen.len(), sizes.len());
            for (size, chosen) in sizes.iter().zip(&chosen) {
                let time = size.times_ns[*chosen] as f64;
                let fastest = *size.times_ns.values().min().unwrap() as f64;
                prop_assert!(time <= fastest * (2.0 * noise + 1e-9).exp(), "{chosen} at {size:?}");
                if let Some(usual) = size.times_ns.get(&serves(&built_in, size.bytes).unwrap().algorithm) {
                    prop_assert!(time <= *usual as f64, "{chosen} at {size:?}");
                }
            }
        }

        #[test]
        fn a_built_in_table_within_the_noise_is_kept((mut sizes, built_in) in measured()) {
            for size in &mut sizes {
                let fastest = *size.times_ns.values().min().unwrap();
                size.times_ns.insert(serves(&built_in, size.bytes).unwrap().algorithm.clone(), fastest + fastest / 60);
            }
            prop_assert_eq!(tuned(&sizes, &built_in), built_in);
        }

        #[test]
        fn every_size_is_served_by_its_choice((sizes, built_in) in measured(), noise in 0.01f64..0.2) {
            let chosen = choose(&sizes, &built_in, noise);
            let found = ranges(&sizes, &chosen, &built_in);
            prop_assert!(found.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
            prop_assert!(found.windows(2).all(|pair| pair[0].algorithm != pair[1].algorithm));
            prop_assert_eq!(found.last().unwrap().up_to_bytes, u64::MAX);
            for (size, chosen) in sizes.iter().zip(&chosen) {
                prop_assert_eq!(&serves(&found, size.bytes).unwrap().algorithm, chosen);
            }
        }
    }
}
