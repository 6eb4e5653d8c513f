//! Calls by multicast on the host device, whose multicast accesses go to the memory of every rank one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use reference::element::Real;
use symmetra::environment::{EnvConfig, Environment, InitMethod};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{
    Algorithm, AllReduceOptions, Config, Determinism, Device, DeviceBuffer, DeviceKind, Dtype, Element, Error,
    HostShape, Multicast, Reduction, SymmetricBuffer, Transport,
};

use support::data::{Random, mix};
use support::device::{device, kind};
use support::extent::full;
use support::process::{Ranks, this};
use support::world::{alone, bounded, meet, open_on};

use support::{Rank, Sample, config, threads};

/// Settings of a group with multicast.
fn asking(multicast: Multicast) -> Config {
    let mut config = config();
    (config.multicast, config.heap_bytes) = (multicast, 2 << 20);
    config
}

/// Runs ranks with multicast, as threads. On the host device only.
fn with_multicast(world: usize, config: &Config, body: impl Fn(&Rank) + Sync) {
    if kind() == DeviceKind::Host {
        threads(world, config, |rank| {
            assert_eq!(rank.communicator.multicast(), Ok(()));
            body(rank);
        });
    }
}

/// The worlds of a test.
fn worlds() -> Vec<usize> {
    if full() { (2..=8).collect() } else { vec![2, 3, 4, 8] }
}

/// Element `index` of a rank's input in call `number`.
fn value<T: Sample>(number: usize, rank: usize, index: usize) -> T {
    T::sample(mix((number * 1_000_003 + rank) as u64 ^ (index as u64) << 32))
}

/// The sum over ranks at `index`.
fn sum<T: Sample>(number: usize, world: usize, index: usize) -> u64 {
    added((0..world).map(|rank| value::<T>(number, rank, index)))
}

/// The bits of a sum in this order. 8-bit floats are added in f16.
fn added<T: Sample>(values: impl ExactSizeIterator<Item = T>) -> u64 {
    let decode: fn(u8) -> f32 = match T::DTYPE {
        Dtype::F8E4M3 => |bits| F8E4M3::from_bits(bits).to_f32(),
        Dtype::F8E5M2 => |bits| F8E5M2::from_bits(bits).to_f32(),
        _ => return T::reduce(Reduction::Sum, values).bits(),
    };
    let halves = values.map(|value| f16::from_f32(decode(value.bits() as u8)));
    // f32 holds more than twice the digits of f16, so a sum that is rounded to both is rounded once.
    let total = halves.reduce(|a, b| f16::from_f32(a.to_f32() + b.to_f32())).unwrap();
    match T::DTYPE {
        Dtype::F8E4M3 => F8E4M3::of_single(total.to_f32()).to_bits().into(),
        _ => F8E5M2::of_single(total.to_f32()).to_bits().into(),
    }
}

/// Elements around a buffer's parts that no call may touch.
const GUARD: usize = 40;
/// Elements of a part of a buffer.
const PART: usize = 6000;

/// Where a call reads and writes: elements from the start of a part, and how many.
#[derive(Clone, Copy, Debug)]
struct Place {
    from: usize,
    into: usize,
    count: usize,
    in_place: bool,
}

impl Place {
    /// The range that the call writes.
    fn output(&self) -> std::ops::Range<usize> {
        let start = if self.in_place { GUARD + self.from } else { GUARD + PART + GUARD + self.into };
        start..start + self.count
    }

    fn input(&self) -> std::ops::Range<usize> {
        GUARD + self.from..GUARD + self.from + self.count
    }
}

/// Counts around a packet, a share and a tile, at every offset in a packet, in place or not.
fn places<T: Sample>(world: usize) -> Vec<Place> {
    let packet = 16 / size_of::<T>();
    let mut counts =
        vec![1, packet - 1, packet, packet + 1, world * packet, world * packet + 1, 3 * world * packet - 1];
    counts.extend([1024 * packet / 4, 1024 * packet / 4 + 3, PART - 2 * packet]);
    let mut places = Vec::new();
    for (number, count) in counts.into_iter().filter(|count| (1..=PART - 2 * packet).contains(count)).enumerate() {
        for from in 0..packet {
            let others = [from, (from + 1 + number) % packet];
            places.extend(others.map(|into| Place { from, into, count, in_place: false }));
            places.push(Place { from, into: from, count, in_place: true });
        }
    }
    places
}

/// Writes inputs, makes the call, and checks every element of the buffer.
fn check_place<T: Sample>(rank: &Rank, buffer: &SymmetricBuffer<T>, number: usize, place: Place, graph: bool) {
    let (own, world, communicator) = (rank.rank(), rank.world(), &rank.communicator);
    let untouched = T::sample(99);
    let mut values = vec![untouched; buffer.len()];
    for (index, at) in place.input().enumerate() {
        values[at] = value(number, own, index);
    }
    buffer.write(&values, &rank.stream).unwrap();
    let slices = || (buffer.slice(place.input()).unwrap(), buffer.slice(place.output()).unwrap());
    if graph {
        let capture = rank.stream.capture(|capture| {
            let (from, into) = slices();
            communicator.all_reduce_with(Algorithm::MulticastTwoShot, from, into, capture)
        });
        capture.unwrap().launch(&rank.stream).unwrap();
    } else {
        let (from, into) = slices();
        communicator.all_reduce_with(Algorithm::MulticastTwoShot, from, into, &rank.stream).unwrap();
    }
    rank.finish();
    let found = buffer.read(&rank.stream).unwrap();
    for (at, (found, expected)) in found.iter().zip(&values).enumerate() {
        let expected = match place.output().contains(&at) {
            true => sum::<T>(number, world, at - place.output().start),
            false => expected.bits(),
        };
        assert_eq!(found.bits(), expected, "{} at {at}, {place:?}, graph: {graph}", T::DTYPE);
    }
}

fn check_type<T: Sample>(rank: &Rank, number: usize) {
    let buffer = rank.communicator.symmetric::<T>(3 * GUARD + 2 * PART).unwrap();
    let step = if full() { 1 } else { 5 };
    for (call, place) in
        places::<T>(rank.world()).into_iter().enumerate().skip((number + rank.world()) % step).step_by(step)
    {
        check_place(rank, &buffer, call, place, call % 3 == 0);
    }
}

#[test]
fn a_two_shot_is_the_sum_in_rank_order_of_every_type_at_every_place() {
    for world in worlds() {
        with_multicast(world, &asking(Multicast::Require), |rank| {
            check_type::<f32>(rank, 0);
            check_type::<f16>(rank, 1);
            check_type::<bf16>(rank, 2);
            check_type::<i32>(rank, 3);
            check_type::<u32>(rank, 4);
            check_type::<i64>(rank, 5);
            check_type::<u64>(rank, 6);
            check_type::<F8E4M3>(rank, 7);
            check_type::<F8E5M2>(rank, 8);
        });
    }
}

/// Sums by a two-shot: in packets and at their ends, and, where input and output are not aligned alike, without
/// packets.
fn check_values<T: Sample>(rank: &Rank, values: &[T], expected: &[u64]) {
    let buffer = rank.communicator.symmetric::<T>(2 * values.len() + 64).unwrap();
    for (from, into) in [(0, 0), (3, 3), (13, 13), (0, 1), (5, 2)] {
        let into = values.len() + 32 + into;
        let mut whole = vec![T::sample(0); buffer.len()];
        whole[from..from + values.len()].copy_from_slice(values);
        buffer.write(&whole, &rank.stream).unwrap();
        let [input, output] = [from, into].map(|at| buffer.slice(at..at + values.len()).unwrap());
        rank.communicator.all_reduce_with(Algorithm::MulticastTwoShot, input, output, &rank.stream).unwrap();
        rank.finish();
        let found = buffer.read(&rank.stream).unwrap();
        assert_eq!(bits(&found[into..into + values.len()]), expected, "{} from {from}", T::DTYPE);
    }
}

/// Values of which many sums are near the middle of two codes, so that the order and the width of a sum are seen.
fn check_near_ties<T: Sample>(rank: &Rank, encode: fn(f32) -> T) {
    const NEAR: [f32; 7] = [256.0, -256.0, 32.0, 16.0, 0.125, -0.125, 1.0 / 512.0];
    let (world, count) = (rank.world(), 2000);
    let value =
        |rank: usize, index: usize| encode(NEAR[(mix((rank << 32 | index) as u64) % NEAR.len() as u64) as usize]);
    let of = |index: usize| (0..world).map(move |rank| value(rank, index));
    let expected: Vec<u64> = (0..count).map(|index| added(of(index))).collect();
    let unlike = |other: &dyn Fn(usize) -> u64| (0..count).filter(|index| other(*index) != expected[*index]).count();
    assert!(world == 2 || unlike(&|index| T::reduce(Reduction::Sum, of(index)).bits()) > 0);
    assert!(world == 2 || unlike(&|index| added(of(index).rev())) > 0);
    let values: Vec<T> = (0..count).map(|index| value(rank.rank(), index)).collect();
    check_values(rank, &values, &expected);
}

#[test]
fn sums_of_8_bit_floats_are_added_in_f16_in_rank_order() {
    for world in worlds() {
        with_multicast(world, &asking(Multicast::Require), |rank| {
            check_near_ties(rank, F8E4M3::of_single);
            check_near_ties(rank, F8E5M2::of_single);
        });
    }
}

/// Every pair of codes: NaNs, infinities and sums beyond the type too. f16 has more than twice the digits of either type, so
/// of two values the result is the sum that is rounded once.
fn check_pairs<T: Sample>(rank: &Rank, decode: fn(u8) -> T) {
    let pair = |index: usize| [decode((index >> 8) as u8), decode(index as u8)];
    let expected: Vec<u64> = (0..1 << 16).map(|index| added(pair(index).into_iter())).collect();
    let once = (0..1 << 16).map(|index| T::reduce(Reduction::Sum, pair(index).into_iter()).bits());
    assert!(once.eq(expected.iter().copied()));
    let values: Vec<T> = (0..1 << 16).map(|index| pair(index)[rank.rank()]).collect();
    check_values(rank, &values, &expected);
}

#[test]
fn sums_of_8_bit_floats_saturate_and_have_one_nan() {
    with_multicast(2, &asking(Multicast::Require), |rank| {
        check_pairs(rank, F8E4M3::from_bits);
        check_pairs(rank, F8E5M2::from_bits);
    });
    // A partial sum that overflows f16 stays infinite, and an infinity of the other sign makes it a NaN.
    with_multicast(3, &asking(Multicast::Require), |rank| {
        let inputs = [[0x7B, 0x7B, 0x7C, 0x3C], [0x7B, 0x7B, 0x3C, 0x7B], [0xFB, 0xFC, 0xFB, 0xFB]];
        let values: Vec<F8E5M2> = (0..50).map(|index| F8E5M2::from_bits(inputs[rank.rank()][index % 4])).collect();
        let expected: Vec<u64> = (0..50).map(|index| [0x7B, 0x7F, 0x7B, 0x00][index % 4]).collect();
        check_values(rank, &values, &expected);
    });
}

/// The bits of the sum on every rank, of `count` elements from the first.
fn sums<T: Sample>(number: usize, world: usize, count: usize) -> Vec<u64> {
    (0..count).map(|index| sum::<T>(number, world, index)).collect()
}

fn bits<T: Sample>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

#[test]
fn a_one_shot_sums_into_any_memory() {
    for world in worlds() {
        let mut config = asking(Multicast::Require);
        config.determinism = Determinism::Free;
        with_multicast(world, &config, |rank| {
            check_one_shot::<bf16>(rank);
            check_one_shot::<F8E4M3>(rank);
            check_one_shot::<F8E5M2>(rank);
        });
    }
}

fn check_one_shot<T: Sample>(rank: &Rank) {
    for (number, count) in [1, 7, 8, 9, 4097].into_iter().enumerate() {
        let input = rank.communicator.symmetric::<T>(count + 3).unwrap();
        let output = DeviceBuffer::<T>::new(&rank.device, count).unwrap();
        let values: Vec<T> = (0..count).map(|index| value(number, rank.rank(), index)).collect();
        let start = number % 4;
        let mut whole = vec![T::sample(0); count + 3];
        whole[start..start + count].copy_from_slice(&values);
        input.write(&whole, &rank.stream).unwrap();
        let slice = input.slice(start..start + count).unwrap();
        rank.communicator.all_reduce_with(Algorithm::MulticastOneShot, slice, &output, &rank.stream).unwrap();
        rank.finish();
        assert_eq!(bits(&output.read(&rank.stream).unwrap()), sums::<T>(number, rank.world(), count));
    }
}

#[test]
fn exchanges_by_multicast_give_every_rank_its_part() {
    for world in worlds() {
        let mut config = asking(Multicast::Require);
        config.transport = Transport::Multicast;
        with_multicast(world, &config, |rank| {
            let (own, communicator, stream) = (rank.rank(), &rank.communicator, &rank.stream);
            for (number, count) in [1, 4, 5, 63, 64, 1001].into_iter().enumerate() {
                let one = communicator.symmetric::<f32>(count).unwrap();
                let all = communicator.symmetric::<f32>(world * count + 1).unwrap();
                let start = number % 2;
                let parts = all.slice(start..start + world * count).unwrap();
                let values: Vec<f32> = (0..count).map(|index| value(number, own, index)).collect();
                one.write(&values, stream).unwrap();
                communicator.all_gather(&one, parts, stream).unwrap();
                rank.finish();
                let gathered = all.read(stream).unwrap();
                let expected: Vec<u64> =
                    (0..world * count).map(|index| value::<f32>(number, index / count, index % count).bits()).collect();
                assert_eq!(bits(&gathered[start..start + world * count]), expected);

                let mut wide = vec![0.0; world * count + 1];
                for index in 0..world * count {
                    wide[start + index] = value(number, own, index);
                }
                all.write(&wide, stream).unwrap();
                communicator.reduce_scatter(parts, &one, Reduction::Sum, stream).unwrap();
                rank.finish();
                let expected = &sums::<f32>(number, world, world * count)[own * count..(own + 1) * count];
                assert_eq!(bits(&one.read(stream).unwrap()), expected);

                let root = number % world;
                communicator.broadcast(parts, root, stream).unwrap();
                rank.finish();
                let expected: Vec<u64> =
                    (0..world * count).map(|index| value::<f32>(number, root, index).bits()).collect();
                assert_eq!(bits(&all.read(stream).unwrap()[start..start + world * count]), expected);
            }
            let one = communicator.symmetric::<f32>(world).unwrap();
            let error =
                communicator.all_to_all(&one, &communicator.symmetric::<f32>(world).unwrap(), stream).unwrap_err();
            assert!(matches!(&error, Error::Unsupported { what, .. } if what == "all-to-all by multicast"), "{error}");
        });
    }
}

fn check_reduce_scatter<T: Sample>(rank: &Rank) {
    let (own, world, communicator) = (rank.rank(), rank.world(), &rank.communicator);
    for (number, count) in [1, 15, 16, 1001].into_iter().enumerate() {
        let all = communicator.symmetric::<T>(world * count).unwrap();
        let one = DeviceBuffer::<T>::new(&rank.device, count).unwrap();
        let values: Vec<T> = (0..world * count).map(|index| value(number, own, index)).collect();
        all.write(&values, &rank.stream).unwrap();
        communicator.reduce_scatter(&all, &one, Reduction::Sum, &rank.stream).unwrap();
        rank.finish();
        let expected = &sums::<T>(number, world, world * count)[own * count..(own + 1) * count];
        assert_eq!(bits(&one.read(&rank.stream).unwrap()), expected);
    }
}

#[test]
fn a_reduce_scatter_adds_8_bit_floats_in_f16_too() {
    for world in worlds() {
        let mut config = asking(Multicast::Require);
        config.transport = Transport::Multicast;
        with_multicast(world, &config, |rank| {
            check_reduce_scatter::<F8E4M3>(rank);
            check_reduce_scatter::<F8E5M2>(rank);
            let bytes = rank.communicator.symmetric::<u8>(world).unwrap();
            let one = DeviceBuffer::<u8>::new(&rank.device, 1).unwrap();
            let error = rank.communicator.reduce_scatter(&bytes, &one, Reduction::Sum, &rank.stream).unwrap_err();
            assert!(error.to_string().contains("floats of at most 32 bits and integers of at least 32"), "{error}");
        });
    }
}

#[test]
fn multicast_and_other_calls_mix_on_one_communicator() {
    let calls = if full() { 400 } else { 60 };
    for world in worlds() {
        let mut config = asking(Multicast::Require);
        config.determinism = Determinism::Free;
        with_multicast(world, &config, |rank| {
            let mut random = Random(world as u64);
            let input = rank.communicator.symmetric::<f32>(PART).unwrap();
            let output = rank.communicator.symmetric::<f32>(PART).unwrap();
            let algorithms: Vec<Algorithm> = Algorithm::every().filter(|way| way.is_exact(f32::DTYPE, 1)).collect();
            let in_rank_order = |way: &Algorithm| Algorithm::MULTICAST.contains(way) || way.is_exact(f32::DTYPE, world);
            for number in 0..calls {
                let count = 1 + random.below(PART);
                let way = *random.pick(&algorithms);
                let values: Vec<f32> = (0..PART).map(|index| value(number, rank.rank(), index)).collect();
                input.write(&values, &rank.stream).unwrap();
                let (from, into) = (input.slice(..count).unwrap(), output.slice(..count).unwrap());
                rank.communicator.all_reduce_with(way, from, into, &rank.stream).unwrap();
                rank.finish();
                let found = bits(&output.read(&rank.stream).unwrap()[..count]);
                if in_rank_order(&way) {
                    assert_eq!(found, sums::<f32>(number, world, count), "{way} of {count}");
                }
            }
        });
    }
}

#[test]
fn what_multicast_cannot_do_is_refused() {
    with_multicast(3, &asking(Multicast::Require), |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        let [halves, others] = [(); 2].map(|()| communicator.symmetric::<bf16>(8).unwrap());
        let [numbers, more] = [(); 2].map(|()| communicator.symmetric::<f64>(8).unwrap());
        let refused = |error: Error, what: &str, why: &str| {
            let right =
                matches!(&error, Error::Unsupported { what: found, reason } if found == what && reason.contains(why));
            assert!(right, "{error}");
        };
        let (one, two) = (Algorithm::MulticastOneShot, Algorithm::MulticastTwoShot);
        let by = |reduction| AllReduceOptions::default().reduction(reduction).algorithm(two);
        let error = communicator.all_reduce_with(one, &halves, &others, stream).unwrap_err();
        refused(error, "multicast-one-shot of bf16 over 3 ranks", "`free` allows it");
        let error = communicator.all_reduce_with(by(Reduction::Min), &halves, &others, stream).unwrap_err();
        refused(error, "multicast-two-shot of the min of bf16 over 3 ranks", "only adds");
        let error = communicator.all_reduce_with(by(Reduction::Product), &halves, &others, stream).unwrap_err();
        refused(error, "multicast-two-shot of the prod of bf16 over 3 ranks", "only adds");
        let error = communicator.all_reduce_with(two, &numbers, &more, stream).unwrap_err();
        refused(error, "multicast-two-shot of the sum of f64 over 3 ranks", "only adds");
        let plain = DeviceBuffer::<bf16>::new(&rank.device, 8).unwrap();
        let error = communicator.all_reduce_with(two, &plain, &others, stream).unwrap_err();
        refused(error, "multicast-two-shot on other than symmetric memory", "symmetric buffers");
        let integers = communicator.symmetric::<u32>(8).unwrap();
        let error = communicator.all_reduce_with(one, &integers, &integers, stream).unwrap_err();
        refused(error, "multicast-one-shot in place", "another output");
        // Nothing was enqueued, and no rank is left waiting.
        communicator.all_reduce_with(two, &halves, &others, stream).unwrap();
        rank.finish();
    });
    threads(2, &config(), |rank| {
        let why = "the configuration does not ask for it";
        assert_eq!(rank.communicator.multicast(), Err(why));
        let buffer = rank.communicator.symmetric::<f32>(8).unwrap();
        let error = rank.communicator.all_reduce_with(Algorithm::MulticastTwoShot, &buffer, &buffer, &rank.stream);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("multicast is not open: {why}")), "{error}");
    });
    let mut exact = asking(Multicast::Require);
    exact.determinism = Determinism::Exact;
    with_multicast(3, &exact, |rank| {
        let buffer = rank.communicator.symmetric::<f32>(8).unwrap();
        let two = Algorithm::MulticastTwoShot;
        let error = rank.communicator.all_reduce_with(two, &buffer, &buffer, &rank.stream).unwrap_err();
        assert!(error.to_string().contains("`per-algorithm` allows it"), "{error}");
    });
    with_multicast(2, &exact, |rank| {
        let buffer = rank.communicator.symmetric::<F8E4M3>(8).unwrap();
        let two = Algorithm::MulticastTwoShot;
        let error = rank.communicator.all_reduce_with(two, &buffer, &buffer, &rank.stream).unwrap_err();
        assert!(error.to_string().contains("`per-algorithm` allows it"), "{error}");
    });
}

#[test]
fn a_large_sum_goes_by_multicast_where_that_is_open() {
    let count = (1 << 20) / size_of::<f32>();
    for (world, asked, chosen) in [(4, Multicast::Try, true), (3, Multicast::Try, false), (4, Multicast::Off, false)] {
        let mut config = asking(asked);
        config.heap_bytes = 4 << 20;
        if kind() != DeviceKind::Host {
            return;
        }
        threads(world, &config, |rank| {
            let communicator = &rank.communicator;
            let rows = communicator.explain(f32::DTYPE, true);
            let last = rows.last().unwrap();
            assert_eq!(last.choice == Algorithm::MulticastTwoShot, chosen, "{rows:?}");
            assert_eq!(last.up_to_bytes, u64::MAX);
            let by = |bytes| communicator.chosen(f32::DTYPE, Reduction::Sum, true, bytes);
            assert_eq!(by(1 << 20) == Algorithm::MulticastTwoShot, chosen);
            assert_ne!(by((1 << 20) - 1), Algorithm::MulticastTwoShot);
            let narrow = communicator.chosen(F8E5M2::DTYPE, Reduction::Sum, true, 1 << 20);
            assert_ne!(narrow, Algorithm::MulticastTwoShot);
            let buffer = communicator.symmetric::<f32>(count).unwrap();
            let values: Vec<f32> = (0..count).map(|index| value(1, rank.rank(), index)).collect();
            buffer.write(&values, &rank.stream).unwrap();
            communicator.all_reduce(&buffer, &buffer, &rank.stream).unwrap();
            rank.finish();
            assert_eq!(bits(&buffer.read(&rank.stream).unwrap()), sums::<f32>(1, world, count));
        });
    }
}

#[test]
fn ranks_that_are_processes_sum_by_multicast() {
    const WORLD: usize = 3;
    if let Some(child) = this() {
        bounded(std::time::Duration::from_secs(100), || {
            let rank = child.open(&asking(Multicast::Require));
            check_type::<f16>(&rank, 0);
            rank.communicator.close().unwrap();
        });
        return child.say("done");
    }
    if kind() == DeviceKind::Host {
        let _alone = alone();
        let ranks = Ranks::start("ranks_that_are_processes_sum_by_multicast", WORLD, "");
        let everyone: Vec<usize> = (0..WORLD).collect();
        ranks.expect(&everyone, "done");
        ranks.finish(&everyone);
    }
}

#[test]
fn every_nan_has_one_bit_pattern() {
    with_multicast(3, &asking(Multicast::Require), |rank| {
        // A NaN with a payload on one rank, and infinities of both signs on two: in packets, and after the last packet.
        let buffer = rank.communicator.symmetric::<f32>(13).unwrap();
        let special = [[1.0, f32::INFINITY], [f32::from_bits(0x7F80_0001), f32::NEG_INFINITY], [2.0, 0.0]][rank.rank()];
        let values: Vec<f32> = (0..13).map(|index| special[index % 2]).collect();
        buffer.write(&values, &rank.stream).unwrap();
        rank.communicator.all_reduce_with(Algorithm::MulticastTwoShot, &buffer, &buffer, &rank.stream).unwrap();
        rank.finish();
        assert_eq!(bits(&buffer.read(&rank.stream).unwrap()), [0x7FFF_FFFF; 13]);
    });
}

#[test]
fn in_an_environment_the_tensor_parallel_group_alone_has_multicast() {
    if kind() != DeviceKind::Host {
        return;
    }
    for (world, tensor) in [(4, 2), (2, 2)] {
        meet(world, |bootstrap| {
            let mut config = EnvConfig::default();
            config.tensor_parallel_size = tensor;
            config.data_parallel_size = world / tensor;
            config.init_method = InitMethod::bootstrap(bootstrap);
            config.device = Some(device(0));
            config.communicator = asking(Multicast::Require);
            let environment = Environment::init(config).unwrap();
            assert_eq!(environment.tp().local().multicast(), Ok(()));
            let shared = tensor == world;
            assert_eq!(environment.world().local().multicast().is_ok(), shared);
            assert!(environment.dp().local().multicast().is_err());
            environment.close().unwrap();
        });
    }
}

#[test]
fn a_view_says_where_it_is_and_is_refused_where_there_is_none() {
    with_multicast(3, &asking(Multicast::Require), |rank| {
        let buffer = rank.communicator.symmetric::<f16>(24).unwrap();
        let (whole, part) = (buffer.multicast().unwrap(), buffer.slice(8..20).unwrap().multicast().unwrap());
        assert_eq!(part.address() - whole.address(), 16);
        assert_eq!(part.offset_bytes() - whole.offset_bytes(), 16);
        assert_eq!(whole.offset_bytes() % 16, 0);
        assert_eq!((size_of_val(&whole), size_of_val(&whole.data())), (32, 32));
        let words = [format!("{whole:?}"), format!("{:?}", whole.data())];
        assert!(words.iter().all(|word| word.contains("3 ranks")), "{words:?}");
        let error = buffer.slice(1..).unwrap().multicast().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("it must be a multiple of 16 bytes"), "{error}");
        rank.communicator.group().barrier().unwrap();
    });
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(8).unwrap();
        let error = buffer.multicast().unwrap_err();
        let why = "multicast is not open: the configuration does not ask for it";
        let right =
            matches!(&error, Error::Unsupported { what, reason } if what == "a multicast view" && reason == why);
        assert!(right, "{error}");
        let part = rank.communicator.split(Some(0), 0).unwrap().unwrap();
        let buffer = part.symmetric::<f32>(8).unwrap();
        part.close().unwrap();
        assert_eq!(buffer.multicast().unwrap_err(), Error::Closed);
    });
}

#[test]
fn launches_of_every_shape_give_the_same_sum() {
    if kind() != DeviceKind::Host {
        return;
    }
    for (blocks, threads) in [(1, 1), (2, 3)] {
        meet(3, |bootstrap| {
            let device = Device::host_with(HostShape::default().blocks(blocks).threads(threads)).unwrap();
            let rank = open_on(&device, bootstrap, &asking(Multicast::Require)).unwrap();
            check_type::<f32>(&rank, 0);
            check_type::<bf16>(&rank, 1);
            check_type::<u64>(&rank, 2);
            rank.communicator.close().unwrap();
        });
    }
}
