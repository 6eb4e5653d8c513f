//! Every operation other than all-reduce, and among all-reduces, bit for bit against a model: types of every size,
//! worlds, transports and memories, counts around every boundary, any alignment, in place or not, eager and captured;
//! and the errors.

mod along;
#[macro_use]
pub(crate) mod calls;
mod empty;
mod mixed;
mod refused;

use half::{bf16, f16};
use proptest::prelude::*;
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::op::{OPERATIONS, Op};
use symmetra::{Config, Device, DeviceBuffer, HostShape, Reduction, Transport};

use crate::support::data::shuffle;
use crate::support::extent::cases_of;
use crate::support::specials::{extreme_data, special_data};
use crate::support::world::{meet, open_on};
use crate::support::{Data, Rank, Sample, config, fits, is_host, threads};
use calls::{Batch, Bench, ROOM, batches};

const TRANSPORTS: [Transport; 3] = [Transport::Auto, Transport::Packets, Transport::Direct];

/// Slots of 129 packets, or of two groups of escaped packets: most calls take several rounds or launches, the last of them
/// short.
fn small(world: usize, transport: Transport) -> Config {
    let mut config = config();
    (config.one_shot_ll_bytes, config.one_shot_sentinel_bytes) = (1027, Some(2056));
    config.transport = transport;
    config.check_calls = world.is_multiple_of(2);
    config
}

/// Counts at and next to packets, slots and multiples of slots.
const COUNTS: [usize; 26] =
    [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 128, 129, 255, 256, 257, 516, 1032, 1033, 2064, 3001];

/// The calls of one element type, with their data: made once and used by every rank.
struct Plan<T> {
    data: Data<T>,
    batches: Vec<Batch>,
}

impl<T: Sample> Plan<T> {
    /// `number` counts the types of a world: see [`cases_of`].
    fn new(world: usize, transport: Transport, number: usize) -> Self {
        let seed = world as u64 * 1000 + T::DTYPE as u64 * 10 + transport as u64;
        let ops: Vec<(&'static Op, usize)> =
            OPERATIONS.iter().flat_map(|op| COUNTS.map(|count| (*op, count))).collect();
        let mut ops = cases_of(world, number + transport as usize, ops);
        shuffle(seed, &mut ops);
        Self { data: Data::new(seed, world, ROOM), batches: batches(seed, world, transport, true, &ops) }
    }

    fn run(&self, rank: &Rank) {
        let bench = Bench::new(rank, &self.data);
        self.batches.iter().for_each(|batch| bench.check(batch));
    }
}

fn every_operation(world: usize) {
    if !fits(world) {
        return;
    }
    for transport in TRANSPORTS {
        let (bytes, words) = (Plan::<u8>::new(world, transport, 0), Plan::<f32>::new(world, transport, 1));
        let (halves, longs) = (Plan::<bf16>::new(world, transport, 2), Plan::<i64>::new(world, transport, 3));
        threads(world, &small(world, transport), |rank| {
            bytes.run(rank);
            words.run(rank);
            halves.run(rank);
            longs.run(rank);
        });
    }
}

macro_rules! worlds {
    ($($name:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            every_operation($world);
        }
    )*};
}

worlds! {
    every_operation_world_1: 1;
    every_operation_world_2: 2;
    every_operation_world_3: 3;
    every_operation_world_4: 4;
    every_operation_world_5: 5;
    every_operation_world_6: 6;
    every_operation_world_7: 7;
    every_operation_world_8: 8;
    every_operation_world_16: 16;
}

/// Counts around packets and slots, for cases that do not depend on all counts.
const FEW: [usize; 8] = [0, 1, 3, 16, 65, 257, 1032, 2064];

/// Every operation at a few counts on given data.
fn few<T: Sample>(rank: &Rank, transport: Transport, data: &Data<T>) {
    let seed = rank.world() as u64 * 2000 + T::DTYPE as u64 * 10 + transport as u64;
    let ops: Vec<(&'static Op, usize)> = OPERATIONS.iter().flat_map(|op| FEW.map(|count| (*op, count))).collect();
    let mut ops = cases_of(rank.world(), T::DTYPE as usize + transport as usize, ops);
    shuffle(seed, &mut ops);
    let bench = Bench::new(rank, data);
    batches(seed, rank.world(), transport, true, &ops).iter().for_each(|batch| bench.check(batch));
}

#[test]
fn every_operation_on_the_other_types() {
    for world in [2, 3, 8] {
        if !fits(world) {
            continue;
        }
        let seed = fastrand::u64(..);
        let (halves, doubles) = (Data::<f16>::new(seed, world, ROOM), Data::<f64>::new(seed, world, ROOM));
        let (bytes, words) = (Data::<i8>::new(seed, world, ROOM), Data::<i32>::new(seed, world, ROOM));
        let (naturals, longs) = (Data::<u32>::new(seed, world, ROOM), Data::<u64>::new(seed, world, ROOM));
        let quarters = (Data::<F8E4M3>::new(seed, world, ROOM), Data::<F8E5M2>::new(seed, world, ROOM));
        for transport in TRANSPORTS {
            threads(world, &small(world, transport), |rank| {
                few(rank, transport, &halves);
                few(rank, transport, &doubles);
                few(rank, transport, &bytes);
                few(rank, transport, &words);
                few(rank, transport, &naturals);
                few(rank, transport, &longs);
                few(rank, transport, &quarters.0);
                few(rank, transport, &quarters.1);
            });
        }
    }
}

/// Infinities, NaNs, zeros of both signs, denormals and the ends of every type, through every reduction.
#[test]
fn pitfall_23_27_special_values_through_every_operation() {
    for world in [2, 5] {
        if !fits(world) {
            continue;
        }
        let (floats, doubles) = (special_data::<f32>(world, ROOM), special_data::<f64>(world, ROOM));
        let (halves, brains) = (special_data::<f16>(world, ROOM), special_data::<bf16>(world, ROOM));
        let quarters = (special_data::<F8E4M3>(world, ROOM), special_data::<F8E5M2>(world, ROOM));
        let (bytes, words) = (extreme_data::<i8>(world, ROOM), extreme_data::<i32>(world, ROOM));
        let (small_naturals, longs) = (extreme_data::<u8>(world, ROOM), extreme_data::<i64>(world, ROOM));
        let (naturals, long_naturals) = (extreme_data::<u32>(world, ROOM), extreme_data::<u64>(world, ROOM));
        for transport in TRANSPORTS {
            threads(world, &small(world, transport), |rank| {
                few(rank, transport, &floats);
                few(rank, transport, &doubles);
                few(rank, transport, &halves);
                few(rank, transport, &brains);
                few(rank, transport, &quarters.0);
                few(rank, transport, &quarters.1);
                few(rank, transport, &bytes);
                few(rank, transport, &words);
                few(rank, transport, &small_naturals);
                few(rank, transport, &longs);
                few(rank, transport, &naturals);
                few(rank, transport, &long_naturals);
            });
        }
    }
}

/// Runs operations of one type in the given order.
fn run<T: Sample>(world: usize, config: &Config, seed: u64, ops: &[(&'static Op, usize)]) {
    let data = Data::<T>::new(seed, world, ROOM);
    let batches = batches(seed, world, config.transport, true, ops);
    threads(world, config, |rank| {
        let bench = Bench::new(rank, &data);
        batches.iter().for_each(|batch| bench.check(batch));
    });
}

/// Strips so large that packets are sentinel or escaped packets on every device, in one launch and in several.
#[test]
fn large_strips_in_one_launch_and_in_several() {
    for (world, slot_bytes) in [(2, None), (2, Some(40_000)), (3, None), (3, Some(30_000))] {
        if !fits(world) {
            continue;
        }
        let seed = fastrand::u64(..);
        let mut ops: Vec<(&'static Op, usize)> =
            OPERATIONS.iter().flat_map(|op| [8_200, 16_384, 19_900].map(|count| (*op, count))).collect();
        shuffle(seed, &mut ops);
        for transport in [Transport::Auto, Transport::Packets] {
            let mut config = config();
            (config.one_shot_sentinel_bytes, config.transport) = (slot_bytes, transport);
            run::<i64>(world, &config, seed, &ops);
            run::<f64>(world, &config, seed, &ops);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of operations, all-reduce among them, with any size of slots.
    #[test]
    fn any_sequence_of_operations_is_right(
        world in 2usize..=4,
        slot_bytes in 1024u64..5000,
        transport in 0..TRANSPORTS.len(),
        check_calls: bool,
        seed: u64,
        order in prop::collection::vec((0..OPERATIONS.len(), prop_oneof![0usize..40, 0usize..2500]), 1..60),
    ) {
        if fits(world) {
            let mut config = config();
            (config.one_shot_ll_bytes, config.one_shot_sentinel_bytes) = (slot_bytes, Some(slot_bytes));
            config.transport = TRANSPORTS[transport];
            config.check_calls = check_calls;
            let order: Vec<_> = order.into_iter().map(|(op, count)| (OPERATIONS[op], count)).collect();
            run::<bf16>(world, &config, seed, &order);
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
    for (world, blocks, threads) in [(5, 1, 3), (2, 3, 2), (4, 2, 5)] {
        for transport in TRANSPORTS {
            let mut config = small(world, transport);
            // Slots for several blocks of 256 packets.
            config.one_shot_ll_bytes = 5000;
            let plan = Plan::<bf16>::new(world, transport, 0);
            meet(world, |bootstrap| {
                let device = Device::host_with(HostShape::default().blocks(blocks).threads(threads)).unwrap();
                let rank = open_on(&device, bootstrap, &config).unwrap();
                plan.run(&rank);
                rank.communicator.close().unwrap();
            });
        }
    }
}

/// Adopted memory is addressed by peers like symmetric memory, and a part of it may be the input in place.
#[test]
fn adopted_memory_is_exchanged_directly() {
    let world = 3;
    threads(world, &small(world, Transport::Direct), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let (own, count) = (rank.rank(), 1000);
        let value = |rank: usize, index: usize| (rank * 10_000 + index) as i64;
        let all: Vec<i64> = (0..world).flat_map(|rank| (0..count).map(move |index| value(rank, index))).collect();
        let buffer = DeviceBuffer::<i64>::new(&rank.device, world * count).unwrap();
        let mut filled = vec![-1; world * count];
        filled[own * count..(own + 1) * count].copy_from_slice(&all[own * count..(own + 1) * count]);
        buffer.write(&filled, stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let whole = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
        let part = buffer.borrow().slice(own * count..(own + 1) * count).unwrap();
        assert!(!is_host() || whole.is_shared());
        communicator.all_gather(part.clone(), &whole, stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), all);
        // Parts of one element less, of the counts, and of one element more.
        let counts: [usize; 3] = std::array::from_fn(|rank| count + rank - 1);
        let start: usize = counts[..own].iter().sum();
        let uneven = buffer.borrow().slice(start..start + counts[own]).unwrap();
        communicator.all_gather_v(uneven, &whole, &counts, stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), all);
        communicator.reduce_scatter(&whole, part, Reduction::Sum, stream).unwrap();
        communicator.reduce_in_place(&whole, Reduction::Max, 1, stream).unwrap();
        communicator.broadcast(&whole, 1, stream).unwrap();
        rank.finish();
        // Every rank's own part was tripled and is the greatest.
        let tripled: Vec<i64> = all.iter().map(|value| 3 * value).collect();
        assert_eq!(buffer.read(stream).unwrap(), tripled);
    });
}
