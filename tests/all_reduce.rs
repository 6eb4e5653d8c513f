//! All-reduce against an independent sum, bit for bit: every element type, algorithm and world
//! size, counts around every boundary, any alignment, every kind of operand, eager and captured.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use symmetra::{Algorithm, Config};

use support::batch::{Bench, MOST, ROOM, batches};
use support::{Data, Rank, Sample, config, fits, threads};

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Auto,
    Algorithm::OneShotLL,
    Algorithm::OneShotSentinel,
    Algorithm::TwoShotLL,
    Algorithm::TwoShotSentinel,
    Algorithm::TwoShotZeroCopy,
];

/// Limits that are small, odd, and not multiples of anything.
fn small(check_calls: bool) -> Config {
    let mut config = config();
    config.one_shot_ll_bytes = 2051;
    config.one_shot_sentinel_bytes = Some(5000);
    config.two_shot_ll_bytes = 9002;
    config.two_shot_sentinel_bytes = 40_000;
    config.check_calls = check_calls;
    config
}

/// Counts of elements at and beside everything that could be a boundary.
fn counts(world: usize, element_bytes: usize) -> Vec<usize> {
    let config = small(false);
    let chunks = [
        config.one_shot_ll_bytes,
        config.one_shot_sentinel_bytes_for(world),
        config.two_shot_ll_bytes,
        config.two_shot_sentinel_bytes,
    ];
    // Packets, a tile of 256 of them, and the same for every rank of a share.
    let (packets, tiles) = ([8, 16, 8 * world, 16 * world], [2048, 4096, 2048 * world, 4096 * world]);
    let edges = packets.into_iter().chain(tiles).chain(chunks.map(|bytes| bytes as usize));
    let mut counts = vec![0, 1, 2, 3, 5, 7, 11, 13, 512 / 6, 257, 509, 1021, 4099];
    for edge in edges.map(|bytes| bytes / element_bytes).filter(|edge| *edge > 0) {
        counts.extend([edge - 1, edge, edge + 1]);
    }
    let chunk = config.one_shot_ll_bytes as usize / element_bytes;
    counts.extend([2 * chunk - 1, 2 * chunk, 2 * chunk + 1, 5 * chunk + 3]);
    counts.retain(|count| *count <= MOST);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The calls of one element type, with their data: made once and used by every rank.
struct Plan<T> {
    data: Data<T>,
    batches: Vec<support::batch::Batch>,
}

impl<T: Sample> Plan<T> {
    fn new(world: usize, variants: usize) -> Self {
        let mut calls = Vec::new();
        for count in counts(world, size_of::<T>()) {
            let algorithms = ALGORITHMS.into_iter().filter(|algorithm| algorithm.carries(T::DTYPE));
            calls.extend(algorithms.flat_map(|algorithm| vec![(algorithm, count); variants]));
        }
        let seed = world as u64 * 100 + T::DTYPE as u64;
        Self { data: Data::new(seed, world, ROOM), batches: batches(seed, &calls) }
    }

    fn run(&self, rank: &Rank) {
        let bench = Bench::new(rank, &self.data);
        self.batches.iter().for_each(|batch| bench.check(batch));
    }
}

fn every_type(world: usize, variants: usize) {
    if !fits(world) {
        return;
    }
    let floats = (Plan::<f32>::new(world, variants), Plan::<f64>::new(world, variants));
    let halves = (Plan::<f16>::new(world, variants), Plan::<bf16>::new(world, variants));
    let integers = (Plan::<i32>::new(world, variants), Plan::<i64>::new(world, variants));
    threads(world, &small(world % 2 == 0), |rank| {
        floats.0.run(rank);
        floats.1.run(rank);
        halves.0.run(rank);
        halves.1.run(rank);
        integers.0.run(rank);
        integers.1.run(rank);
    });
}

macro_rules! worlds {
    ($($name:ident: $world:expr, $variants:expr;)*) => {$(
        #[test]
        fn $name() {
            every_type($world, $variants);
        }
    )*};
}

worlds! {
    pitfall_20_21_22_every_boundary_world_1: 1, 1;
    pitfall_20_21_22_every_boundary_world_2: 2, 3;
    pitfall_20_21_22_every_boundary_world_3: 3, 2;
    pitfall_20_21_22_every_boundary_world_4: 4, 2;
    pitfall_20_21_22_every_boundary_world_5: 5, 1;
    pitfall_20_21_22_every_boundary_world_6: 6, 1;
    pitfall_20_21_22_every_boundary_world_7: 7, 1;
    pitfall_20_21_22_every_boundary_world_8: 8, 1;
    pitfall_20_21_22_every_boundary_world_16: 16, 1;
}
