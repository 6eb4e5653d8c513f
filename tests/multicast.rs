//! Calls by multicast on the host device, whose multicast accesses go to the memory of every rank one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use symmetra::{Algorithm, Config, DeviceKind, Multicast, Reduction, SymmetricBuffer};

use support::data::mix;
use support::device::kind;
use support::extent::full;

use support::{Rank, Sample, config, threads};

/// Settings of a group with multicast.
fn asking(multicast: Multicast) -> Config {
    let mut config = config();
    (config.multicast, config.heap_bytes) = (multicast, 2 << 20);
    config
}

/// Runs ranks with multicast, as threads. Nowhere but on the host device.
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

/// Element `index` of a rank's input in call `number`: some are not numbers, or infinite.
fn value<T: Sample>(number: usize, rank: usize, index: usize) -> T {
    T::sample(mix((number * 1_000_003 + rank) as u64 ^ (index as u64) << 32))
}

/// The sum over ranks at `index`.
fn sum<T: Sample>(number: usize, world: usize, index: usize) -> u64 {
    T::reduce(Reduction::Sum, (0..world).map(|rank| value::<T>(number, rank, index))).bits()
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
        });
    }
}
