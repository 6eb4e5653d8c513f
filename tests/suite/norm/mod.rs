//! All-reduce and norm, bit for bit against the definition of a norm on the reference of an all-reduce.

mod backends;
mod edges;
mod formats;
mod refused;
mod refused_formats;
mod rows;
mod scattered;

use half::{bf16, f16};
use reference::element::Real;
use symmetra::{Algorithm, Determinism, DeviceBuffer, Dtype, RmsNorm, RowNorm};

use crate::allocations::allocations;
use crate::support::data::{Random, mix, shuffle};
use crate::support::extent::cases_of;
use crate::support::{Data, Rank, Sample, config, fits, threads};
use rows::{Bench, Case, Form, ROOM, Weight};

/// Elements of a row: around packets, columns and powers of two, and the lengths of language models.
const HIDDEN: [usize; 42] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 23, 24, 25, 31, 32, 33, 39, 40, 63, 64, 65, 127,
    128, 129, 511, 512, 513, 1000, 2048, 2880, 3584, 4096, 5120, 8192,
];

/// Numbers of rows: none, a few, and more rows than blocks.
fn counts(world: usize) -> [usize; 8] {
    [0, 1, 2, world - 1, world, world + 1, 17, 128]
}

/// Every length of a row with several counts, everything else by chance.
fn cases(world: usize, number: usize) -> Vec<Case> {
    let seed = mix((world * 10 + number) as u64);
    let mut random = Random(seed);
    let counts = counts(world);
    let mut cases: Vec<Case> = HIDDEN
        .into_iter()
        .flat_map(|hidden| [hidden; 2])
        .map(|hidden| {
            let count = *random.pick(&counts);
            Case::any(&mut random, Form::AllReduce, world, hidden, count)
        })
        .collect();
    shuffle(seed, &mut cases);
    cases_of(world, number, cases)
}

fn every_case<T: Real + Sample>(world: usize, number: usize) {
    let data = Data::<T>::new(world as u64 * 100 + number as u64, world, ROOM);
    let residual = Data::<T>::new(77 + number as u64, 1, ROOM);
    let cases = cases(world, number);
    // Regions that hold some of the messages, and not all.
    let mut config = config();
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(20_000), 40_000);
    config.check_calls = world.is_multiple_of(2);
    threads(world, &config, |rank| {
        let bench = Bench::new(rank, &data, &residual.inputs[0]);
        cases.iter().for_each(|case| bench.check(case));
    });
}

fn every_norm(world: usize) {
    if !fits(world) {
        return;
    }
    every_case::<bf16>(world, 0);
    every_case::<f16>(world, 1);
    every_case::<f32>(world, 2);
}

macro_rules! worlds {
    ($($name:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            every_norm($world);
        }
    )*};
}

worlds! {
    every_norm_world_1: 1;
    every_norm_world_2: 2;
    every_norm_world_3: 3;
    every_norm_world_4: 4;
    every_norm_world_5: 5;
    every_norm_world_6: 6;
    every_norm_world_7: 7;
    every_norm_world_8: 8;
    every_norm_world_16: 16;
}

/// Equal bits for a row among any number of others, at any place, by any algorithm that sums in rank order.
#[test]
fn the_bits_of_a_row_depend_on_the_row_alone() {
    let (world, hidden) = (3, 1000);
    if !fits(world) {
        return;
    }
    let mut exact = config();
    exact.determinism = Determinism::Exact;
    let row = Data::<bf16>::new(5, world, hidden);
    let found = threads(world, &exact, |rank| {
        let mut found = Vec::new();
        for (count, place) in [(1, 0), (2, 1), (5, 3), (64, 40), (300, 299)] {
            for algorithm in
                [Algorithm::Auto, Algorithm::OneShotSentinel, Algorithm::TwoShotLL, Algorithm::TwoShotZeroCopy]
            {
                found.push(rows::among_others(rank, &row.inputs[rank.rank()], count, place, algorithm));
            }
        }
        found
    });
    for bits in found.iter().flatten() {
        assert_eq!(bits, &found[0][0]);
    }
}

/// One call has the bits of an all-reduce by the same algorithm, and then a norm in a group of one rank.
#[test]
fn one_call_has_the_bits_of_two() {
    let world = 4;
    if !fits(world) {
        return;
    }
    let data = Data::<f16>::new(11, world, 40 * 1000);
    threads(world, &config(), |rank| {
        let alone = rank.communicator.split(Some(rank.rank() as u32), 0).unwrap().unwrap();
        for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Auto]).filter(|by| !by.needs_reach()) {
            rows::as_two_calls(rank, &alone, &data, algorithm);
        }
        alone.close().unwrap();
    });
}

/// Calls by one kernel and by two, in several launches and in one, allocate nothing.
#[test]
fn pitfall_19_norms_allocate_nothing() {
    let mut small = config();
    (small.one_shot_sentinel_bytes, small.two_shot_sentinel_bytes) = (Some(4096), 16 << 10);
    threads(2, &small, |rank| {
        let (buffer, stream) = (rank.communicator.symmetric::<f32>(100 * 300).unwrap(), &rank.stream);
        let weight = DeviceBuffer::<f32>::new(&rank.device, 100).unwrap();
        let codes = formats::operands(&rank.device, "group-16-int8", [300, 100], stream);
        let call = |algorithm: Algorithm, count: usize| {
            let rows = buffer.slice(..100 * count).unwrap();
            let rows = RowNorm::new(rows, &weight, RmsNorm::new(1e-6)).residual_out(rows).algorithm(algorithm);
            let rows = if count == 300 { codes.asked(rows).unwrap() } else { rows };
            rank.communicator.all_reduce_norm(rows, stream).unwrap();
        };
        let named = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, Algorithm::Ring, Algorithm::Auto];
        let all =
            || named.into_iter().for_each(|algorithm| [1, 7, 300].into_iter().for_each(|count| call(algorithm, count)));
        // The stream's thread and the first call of a region make room.
        (0..3).for_each(|_| all());
        rank.finish();
        let before = allocations();
        for _ in 0..20 {
            all();
            rank.finish();
        }
        assert_eq!(allocations() - before, 0);
    });
}

/// The table describes the algorithm that runs, and a row that fits no scratch is summed by an all-reduce.
#[test]
fn the_choice_is_explained() {
    let mut small = config();
    (small.one_shot_sentinel_bytes, small.two_shot_sentinel_bytes) = (Some(4096), 16 << 10);
    threads(2, &small, |rank| {
        let fused = |hidden: usize| {
            let ranges = rank.communicator.explain_norm(Dtype::F32, hidden, true);
            let one_kernel = ranges.iter().filter(|range| range.reason == "one kernel sums and norms");
            one_kernel.map(|range| range.choice).collect::<Vec<_>>()
        };
        assert_eq!(fused(100).first(), Some(&Algorithm::OneShotSentinel));
        assert_eq!(fused(1 << 20), []);
        // Rows of no elements are refused as calls, and have ranges all the same.
        assert!(!rank.communicator.explain_norm(Dtype::BF16, 0, true).is_empty());
        assert!(!rank.communicator.explain_norm(Dtype::F32, usize::MAX, false).is_empty());
    });
}

/// A row of the most elements, and rows of odd lengths beyond what a block's threads hold.
#[test]
fn long_rows() {
    for (world, hidden, count) in [(2, 1 << 20, 1), (2, 65_544, 2), (3, 16_384, 3), (1, 8193, 5)] {
        if !fits(world) {
            continue;
        }
        let data = Data::<bf16>::new(hidden as u64, world, hidden * count);
        let mut config = config();
        config.heap_bytes = 64 << 20;
        threads(world, &config, |rank: &Rank| rows::long(rank, &data, hidden, Weight::Wide));
    }
}
