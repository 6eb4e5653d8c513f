//! All-reduce against an independent reference, bit for bit: every element type, reduction, algorithm and world
//! size, counts around every boundary, any alignment, every kind of operand, eager and captured.

use half::{bf16, f16};
use proptest::prelude::*;
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Algorithm, Config, Determinism, Device, DeviceBuffer, Dtype, Error, HostShape, explain};

use crate::support::batch::{Bench, MOST, ROOM, batches};
use crate::support::data::{Random, shuffle};
use crate::support::device::{is_host, kind};
use crate::support::extent::{cases_of, full};
use crate::support::refusal::invalid;
use crate::support::world::{meet, open_on};
use crate::support::{Data, Rank, Sample, config, fits, threads};

const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::Auto,
    Algorithm::OneShotLL,
    Algorithm::OneShotSentinel,
    Algorithm::TwoShotLL,
    Algorithm::TwoShotSentinel,
    Algorithm::TwoShotZeroCopy,
    Algorithm::Ring,
    Algorithm::RecursiveDoubling,
];

/// Limits that are not multiples of anything. Small limits cut calls into several parts; in worlds up to 8 the limits
/// are large enough for several tiles of 256 packets.
fn small(world: usize) -> Config {
    let factor = if world <= 8 { 4 } else { 1 };
    let mut config = config();
    config.one_shot_ll_bytes = 1027 * factor;
    config.one_shot_sentinel_bytes = Some(1530 * factor);
    config.two_shot_ll_bytes = 2202 * factor;
    config.two_shot_sentinel_bytes = 5006 * factor;
    config.ring_bytes = 9 * 4096 * factor + 17;
    config.recursive_doubling_bytes = 1029 * factor;
    config.check_calls = world.is_multiple_of(2);
    config
}

/// Counts of elements at and next to everything that could be a boundary of an algorithm.
fn counts(world: usize, algorithm: Algorithm, dtype: Dtype) -> Vec<usize> {
    let config = small(world);
    let limit = match algorithm {
        Algorithm::OneShotLL => config.one_shot_ll_bytes,
        Algorithm::OneShotSentinel => config.one_shot_sentinel_bytes_for(world),
        Algorithm::TwoShotLL => config.two_shot_ll_bytes,
        Algorithm::TwoShotSentinel => config.two_shot_sentinel_bytes,
        Algorithm::RecursiveDoubling => config.recursive_doubling_bytes,
        _ => MOST as u64,
    };
    // Packets and tiles of 256, of a message and of shares of it; one call and two.
    let world = world as u64;
    let mut edges = vec![8, 16, 8 * world, 16 * world, 2048, 4096, 2048 * world, 4096 * world, limit, 2 * limit];
    if algorithm == Algorithm::Auto {
        edges.retain(|edge| *edge <= 16 * world);
        for direct in [false, true] {
            edges.extend(
                explain(kind(), None, world as usize, None).unwrap()(dtype, direct)
                    .iter()
                    .map(|range| range.up_to_bytes),
            );
        }
    }
    let mut counts = vec![0, 1, 2, 3, 5, 7, 11, 13, 512 / 6, 257];
    for edge in edges.iter().map(|bytes| *bytes as usize / dtype.bytes()).filter(|edge| *edge > 0) {
        counts.extend([edge - 1, edge, edge.saturating_add(1)]);
    }
    let most = if algorithm.needs_reach() { MOST } else { MOST.min(2 * limit as usize / dtype.bytes() + 1) };
    counts.extend([most, most - 3, most / 2 + 1]);
    counts.retain(|count| *count <= most);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The calls of one element type, with their data: made once and used by every rank.
struct Plan<T> {
    data: Data<T>,
    batches: Vec<crate::support::batch::Batch>,
}

impl<T: Sample> Plan<T> {
    /// `number` counts the types of a world: see [`cases_of`].
    fn new(world: usize, variants: usize, number: usize) -> Self {
        let mut calls = Vec::new();
        for algorithm in ALGORITHMS.into_iter().filter(|algorithm| algorithm.carries(T::DTYPE)) {
            let counts = counts(world, algorithm, T::DTYPE);
            calls.extend(counts.into_iter().flat_map(|count| vec![(algorithm, count); variants]));
        }
        let mut calls = cases_of(world, number, calls);
        let seed = world as u64 * 100 + T::DTYPE as u64;
        shuffle(seed, &mut calls);
        Self { data: Data::new(seed, world, ROOM), batches: batches(seed, true, &calls) }
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
    let floats = (Plan::<f32>::new(world, variants, 0), Plan::<f64>::new(world, variants, 1));
    let halves = (Plan::<f16>::new(world, variants, 2), Plan::<bf16>::new(world, variants, 3));
    let integers = (Plan::<i32>::new(world, variants, 2), Plan::<i64>::new(world, variants, 3));
    let unsigned = (Plan::<u32>::new(world, 1, 1), Plan::<u64>::new(world, 1, 0));
    let bytes = (Plan::<i8>::new(world, variants, 0), Plan::<u8>::new(world, 1, 2));
    let quarters = (Plan::<F8E4M3>::new(world, 1, 1), Plan::<F8E5M2>::new(world, 1, 3));
    threads(world, &small(world), |rank| {
        floats.0.run(rank);
        floats.1.run(rank);
        halves.0.run(rank);
        halves.1.run(rank);
        integers.0.run(rank);
        integers.1.run(rank);
        unsigned.0.run(rank);
        unsigned.1.run(rank);
        bytes.0.run(rank);
        bytes.1.run(rank);
        quarters.0.run(rank);
        quarters.1.run(rank);
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

/// Runs calls of one type in a world, in the given order, without the calls that cannot carry the type.
fn calls<T: Sample>(world: usize, config: &Config, seed: u64, calls: &[(Algorithm, usize)]) {
    let data = Data::<T>::new(seed, world, ROOM);
    let carried: Vec<_> = calls.iter().copied().filter(|(algorithm, _)| algorithm.carries(T::DTYPE)).collect();
    let batches = batches(seed, true, &carried);
    threads(world, config, |rank| {
        let bench = Bench::new(rank, &data);
        batches.iter().for_each(|batch| bench.check(batch));
    });
}

/// All byte counts up to 4096 that are whole elements, by every algorithm.
fn every_byte_count<T: Sample>(world: usize) {
    if !fits(world) {
        return;
    }
    let carries = |algorithm: &Algorithm| algorithm.carries(T::DTYPE);
    let algorithms: Vec<Algorithm> = ALGORITHMS.into_iter().filter(carries).collect();
    let count = 0..=if full() { 4096 } else { 1024 } / size_of::<T>();
    let all: Vec<_> = count.flat_map(|count| algorithms.iter().map(move |algorithm| (*algorithm, count))).collect();
    calls::<T>(world, &config(), 20, &all);
}

#[test]
fn pitfall_20_every_byte_count_bf16() {
    every_byte_count::<bf16>(2);
}

#[test]
fn pitfall_20_every_byte_count_i64() {
    every_byte_count::<i64>(3);
}

#[test]
fn pitfall_20_every_byte_count_u8() {
    every_byte_count::<u8>(2);
}

/// Large, small and middle calls in random order and without a pause: a stale packet of an earlier call, or a packet
/// that was cleared too late or too little, would show.
#[test]
fn pitfall_24_25_sizes_change_from_call_to_call() {
    if !fits(3) {
        return;
    }
    let mut random = Random(24);
    let mut order = Vec::new();
    for _ in 0..400 {
        let algorithm = *random.pick(&ALGORITHMS);
        let count = match random.below(4) {
            0 => random.below(4),
            1 => random.below(64),
            2 => random.below(1000),
            _ => random.below(8000),
        };
        // One algorithm several times, so that its buffers rotate with small and large calls in them.
        order.extend([(algorithm, count), (algorithm, count / 7), (algorithm, count + 1)]);
    }
    // A large call after small ones meets the buffer of the last large one.
    for algorithm in ALGORITHMS {
        (0..40).for_each(|_| order.extend([(algorithm, 7000 + random.below(1000)), (algorithm, 3), (algorithm, 500)]));
    }
    let mut config = config();
    // Several tiles of 256 packets, of which a small call uses a part of one.
    config.one_shot_ll_bytes = 6000;
    config.one_shot_sentinel_bytes = Some(24_000);
    config.two_shot_ll_bytes = 16_000;
    config.two_shot_sentinel_bytes = 40_000;
    config.ring_bytes = 40 * 4096;
    config.recursive_doubling_bytes = 6000;
    config.check_calls = false;
    calls::<f32>(3, &config, 24, &order);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of calls, with any limits.
    #[test]
    fn any_sequence_of_calls_is_right(
        world in 2usize..=4,
        limits in (1024u64..5000, 1024u64..9000, 1024u64..5000, 1024u64..9000, 4096u64..90_000, 1024u64..5000),
        check_calls: bool,
        seed: u64,
        order in prop::collection::vec((0..ALGORITHMS.len(), prop_oneof![0usize..40, 0usize..1200]), 1..60),
    ) {
        if fits(world) {
            let mut config = config();
            config.one_shot_ll_bytes = limits.0;
            config.one_shot_sentinel_bytes = Some(limits.1);
            config.two_shot_ll_bytes = limits.2;
            config.two_shot_sentinel_bytes = limits.3;
            config.ring_bytes = limits.4;
            config.recursive_doubling_bytes = limits.5;
            config.check_calls = check_calls;
            let order: Vec<_> = order.into_iter().map(|(algorithm, count)| (ALGORITHMS[algorithm], count)).collect();
            calls::<bf16>(world, &config, seed, &order);
        }
    }
}

/// Blocks that are smaller than the world and do not divide a tile: every loop of a kernel has a rest,
/// and every sync is needed.
#[test]
fn pitfall_29_blocks_smaller_than_the_world() {
    if !is_host() {
        eprintln!("skipped: the shape of a launch is the library's choice on a GPU");
        return;
    }
    for (world, blocks, threads) in [(5, 1, 3), (2, 3, 2), (7, 2, 5), (4, 2, 7)] {
        let (floats, integers) = (Plan::<bf16>::new(world, 1, 0), Plan::<i8>::new(world, 1, 2));
        meet(world, |bootstrap| {
            let device = Device::host_with(HostShape::default().blocks(blocks).threads(threads)).unwrap();
            let rank = open_on(&device, bootstrap, &small(world)).unwrap();
            floats.run(&rank);
            integers.run(&rank);
            rank.communicator.close().unwrap();
        });
    }
}

/// A call that an algorithm does not serve is an error at the call, and the output is unchanged.
#[test]
fn pitfall_30_what_is_not_served_is_an_error() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let integers = communicator.symmetric::<i32>(64).unwrap();
        integers.write(&[7; 64], stream).unwrap();
        for algorithm in [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel] {
            let error = communicator.all_reduce_with(algorithm, &integers, &integers, stream).unwrap_err();
            assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("i32")), "{error}");
        }
        assert_eq!(integers.read(stream).unwrap(), vec![7; 64]);
        let plain = DeviceBuffer::from_slice(&[1.0f32; 64], stream).unwrap();
        let error = communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &plain, &plain, stream).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("plain memory")), "{error}");
        assert_eq!(plain.read(stream).unwrap(), vec![1.0; 64]);
        // Nothing was enqueued anywhere: the group works on.
        communicator.all_reduce_in_place(&plain, stream).unwrap();
        rank.finish();
        assert_eq!(plain.read(stream).unwrap(), vec![2.0; 64]);
        assert_eq!(device.kind(), kind());
    });
}

/// With `Determinism::Exact` every sum is in rank order: the table chooses no other algorithm, and naming one is an
/// error.
#[test]
fn pitfall_28_exact_determinism_refuses_other_orders() {
    let mut exact = config();
    exact.determinism = Determinism::Exact;
    for world in [2, 3] {
        threads(world, &exact, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let floats = communicator.symmetric::<bf16>(64).unwrap();
            let integers = communicator.symmetric::<i64>(64).unwrap();
            integers.write(&[7; 64], stream).unwrap();
            for algorithm in [Algorithm::Ring, Algorithm::RecursiveDoubling] {
                let called = communicator.all_reduce_with(algorithm, &floats, &floats, stream);
                if world == 2 {
                    called.unwrap();
                } else {
                    let message = called.unwrap_err().to_string();
                    assert!(
                        ["bf16", algorithm.name(), "determinism"].iter().all(|word| message.contains(word)),
                        "{message}"
                    );
                }
                communicator.all_reduce_with(algorithm, &integers, &integers, stream).unwrap();
            }
            rank.finish();
            assert_eq!(integers.read(stream).unwrap(), vec![7 * (world * world) as i64; 64]);
            for dtype in Dtype::ALL {
                for direct in [false, true] {
                    let rows = communicator.explain(dtype, direct);
                    assert!(rows.iter().all(|row| row.choice.is_exact(dtype, world)), "{rows:?}");
                }
            }
        });
    }
}

/// Bad operands are refused with the values, before anything is enqueued.
#[test]
fn bad_operands_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<f64>(64).unwrap();
        let part = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        invalid(communicator.all_reduce(part(0, 8), part(10, 10), stream), &["length is 10", "has 8"]);
        invalid(communicator.all_reduce(part(0, 8), part(7, 8), stream), &["56 bytes", "64 bytes"]);
        invalid(communicator.all_reduce(part(5, 8), part(0, 8), stream), &["40 bytes", "64 bytes"]);
        #[allow(clippy::reversed_empty_ranges)]
        for range in [0..65, 64..66, 8..7] {
            invalid(buffer.slice(range), &["64"]);
        }
        communicator.all_reduce(buffer.slice(0..8).unwrap(), buffer.slice(8..16).unwrap(), stream).unwrap();
        rank.finish();
    });
}

/// Memory of another group is memory like any other: it is pushed.
#[test]
fn a_buffer_of_another_group_is_pushed() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let twin = communicator.split(Some(0), -(rank.rank() as i32)).unwrap().unwrap();
        assert_eq!(twin.rank(), 2 - rank.rank());
        let buffer = twin.symmetric::<i64>(5000).unwrap();
        buffer.write(&vec![1 + rank.rank() as i64; 5000], stream).unwrap();
        let error = communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &buffer, &buffer, stream).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), vec![6; 5000]);
        drop(buffer);
        twin.close().unwrap();
    });
}

/// The table describes the algorithm that runs: every range's last size and the next size, in one group.
#[test]
fn explain_covers_every_size_without_a_gap() {
    for world in 2..=16 {
        let explained = explain(kind(), None, world, None).unwrap();
        for dtype in Dtype::ALL {
            for direct in [false, true] {
                let ranges = explained(dtype, direct);
                assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
                assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
                assert!(ranges.iter().all(|range| range.choice.carries(dtype) && !range.reason.is_empty()));
                assert!(direct || ranges.iter().all(|range| !range.choice.needs_reach()));
            }
        }
    }
}
