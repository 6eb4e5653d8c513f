//! Tests of `crates/cli/src/tune/crossovers.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

/// Latency and time per KiB of three algorithms, which are fastest up to 7 KiB, 114 KiB and from there; and
/// of one that never is.
const ALGORITHMS: [(&str, f64, f64); 4] =
    [("one", 2e3, 400.0), ("two", 4e3, 120.0), ("large", 12e3, 50.0), ("never", 13e3, 500.0)];

fn size(bytes: u64) -> CrossoverSize {
    let kib = bytes as f64 / 1024.0;
    let times = ALGORITHMS.map(|(name, latency, slope)| (name.to_owned(), (latency + slope * kib) as u64));
    CrossoverSize { bytes, times_ns: times.into() }
}

fn sizes() -> Vec<CrossoverSize> {
    (0..12).map(|step| size(1024 << step)).collect()
}

/// By limits in KiB; the last has none.
fn table(rows: &[(u64, &str)]) -> Ranges<String> {
    let limit = |kib: u64| if kib == 0 { u64::MAX } else { kib << 10 };
    limited(rows.iter().map(|(kib, name)| (limit(*kib), *name)))
}

fn limited<'n>(rows: impl IntoIterator<Item = (u64, &'n str)>) -> Ranges<String> {
    Ranges::new(rows.into_iter().map(|(limit, name)| Range::new(limit, name.to_owned(), "")))
}

fn tuned(sizes: &[CrossoverSize], built_in: &Ranges<String>) -> Ranges<String> {
    ranges(sizes, &choose(sizes, built_in), built_in)
}

#[test]
fn every_winner_serves_the_sizes_it_wins() {
    // 2 + 0.4 x = 4 + 0.12 x at 7.1 KiB, 4 + 0.12 x = 12 + 0.05 x at 114 KiB; the sizes are 1 KiB to 2 MiB.
    let limits = |found: &Ranges<String>| {
        let range = |range: &Range<String>| (range.up_to_bytes >> 10, range.choice.clone());
        found.iter().map(range).collect::<Vec<_>>()
    };
    let expected = |limits: [u64; 3]| {
        let ends = [0, limits[0], limits[1], limits[2], u64::MAX >> 10];
        ends.into_iter().zip(["never", "one", "two", "large", "never"].map(str::to_owned)).collect::<Vec<_>>()
    };
    // At the geometric middles of 4 and 8, and of 64 and 128.
    assert_eq!(limits(&tuned(&sizes(), &table(&[(0, "never")]))), expected([5, 90, 2048]));
    // Sizes between, around the changes.
    let mut finer = sizes();
    for (at, kib) in [(3, 5), (4, 6), (5, 7), (10, 80), (11, 96), (12, 112)] {
        finer.insert(at, size(kib << 10));
    }
    // Between 7 and 8, and between 112 and 128.
    assert_eq!(limits(&tuned(&finer, &table(&[(0, "never")]))), expected([7, 119, 2048]));
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
    let names: Vec<_> = tuned(&sizes, &built_in).into_iter().map(|range| range.choice).collect();
    assert_eq!(names, ["one", "two", "never", "two", "large"]);
}

#[test]
fn a_choice_changes_for_more_than_the_margin() {
    let size = |bytes: u64, times: [u64; 3]| CrossoverSize {
        bytes,
        times_ns: ["a", "b", "c"].map(str::to_owned).into_iter().zip(times).collect(),
    };
    let sizes = [size(1, [1020, 1000, 2000]), size(2, [1021, 1000, 2000]), size(3, [1021, 1020, 1000])];
    assert_eq!(choose(&sizes, &table(&[(0, "a")])), ["a", "b", "b"]);
    assert_eq!(choose(&sizes, &table(&[(0, "d")])), ["b", "b", "b"]);
    assert_eq!(choose(&[size(1, [9, 9, 8])], &table(&[])), ["c"]);
}

#[test]
fn a_codec_is_faster_from_where_every_larger_size_says_so() {
    let pair = |(bytes, (plain_ns, coded_ns)): (u64, (u64, u64))| Pair { bytes, plain_ns, coded_ns };
    let from = |times: &[(u64, u64)]| {
        faster_from(&(1..).map(|step| step * 10).zip(times.iter().copied()).map(pair).collect::<Vec<_>>())
    };
    assert_eq!(from(&[(100, 150), (200, 190), (400, 250), (800, 400)]), Some(20));
    // Slower again in between, within the margin, at the largest, and never measured.
    assert_eq!(from(&[(100, 50), (200, 190), (400, 450), (800, 400)]), Some(40));
    assert_eq!(from(&[(1000, 500), (1000, 981), (1000, 980)]), Some(30));
    assert_eq!(from(&[(100, 50), (200, 200)]), None);
    assert_eq!(from(&[]), None);
}

#[test]
fn messages_that_were_not_measured_go_as_built_in() {
    let built_in = table(&[(10, "one"), (30, "two"), (0, "large")]);
    let at = |kib: u64| CrossoverSize { bytes: kib << 10, times_ns: BTreeMap::new() };
    let of = |sizes: &[u64], chosen: &[&str]| {
        ranges(&sizes.iter().map(|kib| at(*kib)).collect::<Vec<_>>(), chosen, &built_in)
    };
    // The row `at` ends before `kib` KiB.
    let before = |kib: u64, rows: &[(u64, &str)], at: usize| {
        let limit = |number: usize, limit: u64| match limit {
            _ if number == at => (kib << 10) - 1,
            0 => u64::MAX,
            limit => limit << 10,
        };
        limited(rows.iter().enumerate().map(|(number, (kib, name))| (limit(number, *kib), *name)))
    };
    assert_eq!(of(&[16], &["two"]), built_in);
    assert_eq!(of(&[16], &["one"]), before(16, &[(10, "one"), (0, "two"), (16, "one"), (30, "two"), (0, "large")], 1));
    assert_eq!(
        of(&[64], &["two"]),
        before(64, &[(10, "one"), (30, "two"), (0, "large"), (64, "two"), (0, "large")], 2)
    );
    assert_eq!(of(&[8, 16], &["two", "two"]), before(8, &[(0, "one"), (30, "two"), (0, "large")], 0));
    assert!(of(&[], &[]).is_empty());
}

/// Times of four algorithms at rising sizes, and a built-in table of them.
fn measured() -> impl Strategy<Value = (Vec<CrossoverSize>, Ranges<String>)> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let time = || prop::option::weighted(0.9, 800u64..1000);
    let times = (time(), time(), time(), Just(Some(2000u64)));
    let times = prop::collection::vec((1u64..4000, times), 1..20);
    let limits = prop::collection::vec((1u64..30_000, 0usize..4), 0..6);
    (times, limits, 0usize..4).prop_map(|(times, mut limits, last)| {
        let mut bytes = 0;
        let sizes = times.into_iter().map(|(more, (a, b, c, d))| {
            bytes += more;
            let times = NAMES.into_iter().zip([a, b, c, d]).filter_map(|(name, time)| Some((name.to_owned(), time?)));
            CrossoverSize { bytes, times_ns: times.collect() }
        });
        limits.sort_unstable();
        limits.push((u64::MAX, last));
        (sizes.collect(), limited(limits.into_iter().map(|(limit, name)| (limit, NAMES[name]))))
    })
}

proptest! {
    #[test]
    fn no_choice_is_slower_than_the_built_in_one_or_far_from_the_fastest((sizes, built_in) in measured()) {
        let chosen = choose(&sizes, &built_in);
        prop_assert_eq!(chosen.len(), sizes.len());
        for (size, chosen) in sizes.iter().zip(&chosen) {
            let time = size.times_ns[*chosen] as f64;
            let fastest = *size.times_ns.values().min().unwrap() as f64;
            prop_assert!(time <= fastest * (1.0 + MARGIN), "{chosen} at {size:?}");
            if let Some(usual) = size.times_ns.get(&built_in.at(size.bytes).unwrap().choice) {
                prop_assert!(time <= *usual as f64, "{chosen} at {size:?}");
            }
        }
    }

    #[test]
    fn a_built_in_table_within_the_margin_is_kept((mut sizes, built_in) in measured()) {
        for size in &mut sizes {
            let fastest = *size.times_ns.values().min().unwrap();
            size.times_ns.insert(built_in.at(size.bytes).unwrap().choice.clone(), fastest + fastest / 60);
        }
        prop_assert_eq!(tuned(&sizes, &built_in), built_in);
    }

    #[test]
    fn every_size_is_served_by_its_choice((sizes, built_in) in measured()) {
        let chosen = choose(&sizes, &built_in);
        let found = ranges(&sizes, &chosen, &built_in);
        prop_assert!(found.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
        prop_assert!(found.windows(2).all(|pair| pair[0].choice != pair[1].choice));
        prop_assert_eq!(found.last().unwrap().up_to_bytes, u64::MAX);
        for (size, chosen) in sizes.iter().zip(&chosen) {
            prop_assert_eq!(&found.at(size.bytes).unwrap().choice, chosen);
        }
    }
}
