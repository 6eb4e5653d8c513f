//! Collectives over grids: every operation in every mode against sums that are exact, on one host and on several, as calls and
//! as graphs, and what is refused.

use half::bf16;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{
    Coordinator, Grid, GroupConfig, Mixed, MixedConfig, MixedMode, MixedOperation, MixedOptions,
};
use symmetra::{Determinism, DeviceBuffer, Element, Error, Reduction, Stream};

use crate::support::data::{Random, mix};
use crate::support::device::device;
#[cfg(feature = "gloo")]
use crate::support::device::is_host;
use crate::support::extent::full;
use crate::support::world::meet;

/// Ranks on named hosts: rank `r` is on host `hosts[r]`.
fn open(bootstrap: Threads, hosts: &[usize], change: impl FnOnce(&mut GroupConfig)) -> Coordinator {
    let rank = bootstrap.rank();
    let mut config = GroupConfig::default();
    config.communicator = crate::support::config();
    config.communicator.heap_bytes = 4 << 20;
    config.interface = Some("127.0.0.1".to_owned());
    config.host = Some(format!("host-{}", hosts[rank]));
    change(&mut config);
    Coordinator::open(bootstrap, &device(rank), config).unwrap()
}

fn grid([local_tensor, local_data, across_tensor, across_data]: [usize; 4]) -> MixedConfig {
    let mut grid = Grid::default();
    (grid.local_tensor, grid.local_data) = (Some(local_tensor), Some(local_data));
    (grid.across_tensor, grid.across_data) = (Some(across_tensor), Some(across_data));
    let mut config = MixedConfig::default();
    (config.grid, config.most_bytes) = (grid, 16 << 10);
    config
}

/// Where rank `rank` stands, from the formulas of the documentation: tensor and data rank.
fn place(sizes: [usize; 4], hosts: &[usize], rank: usize) -> (usize, usize) {
    let [local_tensor, local_data, across_tensor, _] = sizes;
    let mut names: Vec<usize> = Vec::new();
    hosts.iter().for_each(|host| {
        if !names.contains(host) {
            names.push(*host)
        }
    });
    let host = names.iter().position(|name| *name == hosts[rank]).unwrap();
    let local = (0..rank).filter(|other| hosts[*other] == hosts[rank]).count();
    let (j, i) = (host % across_tensor, host / across_tensor);
    (local % local_tensor + j * local_tensor, local / local_tensor + i * local_data)
}

/// Small whole numbers, whose sums are exact in every type.
fn values(seed: u64, rank: usize, elems: usize) -> Vec<i64> {
    let mut random = Random(mix(seed) ^ rank as u64);
    (0..elems).map(|_| random.below(7) as i64 - 3).collect()
}

trait Number: Element + PartialEq + std::fmt::Debug {
    fn of(value: i64) -> Self;
}
impl Number for f32 {
    fn of(value: i64) -> Self {
        value as f32
    }
}
impl Number for bf16 {
    fn of(value: i64) -> Self {
        bf16::from_f64(value as f64)
    }
}
impl Number for i32 {
    fn of(value: i64) -> Self {
        value as i32
    }
}
impl Number for u8 {
    fn of(value: i64) -> Self {
        value as u8
    }
}

/// What a rank's output must be, stated from the table of operations.
fn expected(
    operation: MixedOperation,
    sizes: [usize; 4],
    hosts: &[usize],
    seed: u64,
    count: usize,
    rank: usize,
) -> Vec<i64> {
    let world = hosts.len();
    let data = sizes[1] * sizes[3];
    let own = place(sizes, hosts, rank).1;
    let input = match operation {
        MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce => data * count,
        _ => count,
    };
    let inputs: Vec<Vec<i64>> = (0..world).map(|rank| values(seed, rank, input)).collect();
    let sum = |elem: usize, of: &dyn Fn(usize) -> bool| -> i64 {
        (0..world).filter(|rank| of(*rank)).map(|rank| inputs[rank][elem]).sum()
    };
    match operation {
        MixedOperation::AllReduce => (0..count).map(|elem| sum(elem, &|_| true)).collect(),
        MixedOperation::AllGather | MixedOperation::AllReduceAllGather => {
            (0..data * count).map(|at| sum(at % count, &|rank| place(sizes, hosts, rank).1 == at / count)).collect()
        }
        _ => (0..count).map(|elem| sum(own * count + elem, &|_| true)).collect(),
    }
}

/// Every operation and mode of a grid, for one type.
fn check<T: Number>(
    mixed: &Mixed,
    group: &Coordinator,
    sizes: [usize; 4],
    hosts: &[usize],
    seed: u64,
    counts: &[usize],
) {
    let stream = Stream::new(group.device()).unwrap();
    let rank = group.rank();
    for operation in mixed.operations() {
        for mode in mixed.modes(operation).into_iter().chain([MixedMode::Auto]) {
            for count in counts {
                let seed = mix(seed ^ *count as u64);
                let expected = expected(operation, sizes, hosts, seed, *count, rank);
                let own = match operation {
                    MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce => mixed.data_size() * count,
                    _ => *count,
                };
                let input: Vec<T> = values(seed, rank, own).into_iter().map(T::of).collect();
                let input = DeviceBuffer::from_slice(&input, &stream).unwrap();
                let output = DeviceBuffer::<T>::new(group.device(), expected.len()).unwrap();
                mixed.perform(operation, &input, &output, mode, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                let expected: Vec<T> = expected.into_iter().map(T::of).collect();
                assert_eq!(output.read(&stream).unwrap(), expected, "{operation} by {mode} of {count} {}", T::DTYPE);
                if mixed_is_captured(hosts) && *count > 0 {
                    output.write(&vec![T::of(1); expected.len()], &stream).unwrap();
                    let graph = group
                        .capture(&stream, |capture| mixed.perform(operation, &input, &output, mode, capture))
                        .unwrap();
                    graph.launch(&stream).unwrap();
                    graph.launch(&stream).unwrap();
                    mixed.synchronize(&stream).unwrap();
                    assert_eq!(output.read(&stream).unwrap(), expected, "{operation} by {mode} of {count} in a graph");
                }
            }
        }
    }
}

/// Between hosts the CPU moves bytes, which no graph does.
fn mixed_is_captured(hosts: &[usize]) -> bool {
    hosts.iter().all(|host| *host == hosts[0])
}

fn run(sizes: [usize; 4], hosts: &[usize]) {
    let seed = fastrand::u64(..);
    meet(hosts.len(), |bootstrap| {
        let group = open(bootstrap, hosts, |_| {});
        let mixed = Mixed::open(&group, &grid(sizes)).unwrap();
        let at = place(sizes, hosts, group.rank());
        assert_eq!((mixed.tensor_rank(), mixed.data_rank()), at);
        match full() {
            true => check::<f32>(&mixed, &group, sizes, hosts, seed, &[0, 1, 7, 8, 1023]),
            false => check::<f32>(&mixed, &group, sizes, hosts, seed, &[0, 1023]),
        }
        check::<bf16>(&mixed, &group, sizes, hosts, seed, &[129]);
        if full() {
            check::<i32>(&mixed, &group, sizes, hosts, seed, &[31]);
            check::<u8>(&mixed, &group, sizes, hosts, seed, &[1000]);
        }
        mixed.close().unwrap();
        group.close().unwrap();
    });
}

#[test]
fn grids_of_one_host() {
    let few = [[1, 1], [2, 1], [1, 2], [2, 2], [3, 2]];
    let more = [[3, 1], [1, 4], [4, 2], [2, 4]];
    for [tensor, data] in few.into_iter().chain(more.into_iter().filter(|_| full())) {
        run([tensor, data, 1, 1], &vec![0; tensor * data]);
    }
}

#[cfg(feature = "gloo")]
#[test]
fn grids_of_two_hosts() {
    if is_host() {
        run([1, 1, 2, 1], &[0, 1]);
        run([1, 1, 1, 2], &[0, 1]);
        run([2, 1, 2, 1], &[0, 0, 1, 1]);
        // Ranks in no order.
        run([2, 1, 1, 2], &[1, 0, 0, 1]);
        run([1, 2, 2, 1], &[0, 1, 0, 1]);
        run([1, 2, 1, 2], &[0, 0, 1, 1]);
    }
}

#[cfg(feature = "gloo")]
#[test]
fn grids_of_more_hosts() {
    if is_host() {
        run([2, 1, 1, 3], &[0, 1, 2, 0, 1, 2]);
        run([1, 1, 2, 2], &[0, 1, 2, 3]);
        run([2, 1, 2, 2], &[0, 0, 1, 1, 2, 2, 3, 3]);
    }
}

/// The ranks of a tensor group end with equal bits, also where sums round.
#[test]
fn a_tensor_group_has_equal_bits() {
    let seed = fastrand::u64(..);
    let outputs = meet(4, |bootstrap| {
        let group = open(bootstrap, &[0; 4], |_| {});
        let mixed = Mixed::open(&group, &grid([2, 2, 1, 1])).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let mut random = Random(mix(seed) ^ group.rank() as u64);
        let input: Vec<f32> = (0..600).map(|_| random.below(1 << 24) as f32 * 1.7e-5 - 99.0).collect();
        let input = DeviceBuffer::from_slice(&input, &stream).unwrap();
        let mut bits = Vec::new();
        for mode in mixed.modes(MixedOperation::ReduceScatterAllReduce) {
            let output = DeviceBuffer::<f32>::new(group.device(), 300).unwrap();
            mixed.reduce_scatter_all_reduce(&input, &output, mode, &stream).unwrap();
            mixed.synchronize(&stream).unwrap();
            bits.push(output.read(&stream).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>());
        }
        let data = mixed.data_rank();
        mixed.close().unwrap();
        group.close().unwrap();
        (data, bits)
    });
    for (data, bits) in &outputs {
        for (other, theirs) in &outputs {
            assert!(data != other || bits == theirs, "data rank {data}");
        }
    }
}

#[test]
fn what_a_grid_does_not_have_is_refused_with_what_it_has() {
    meet(4, |bootstrap| {
        let group = open(bootstrap, &[0; 4], |config| config.communicator.determinism = Determinism::Exact);
        let said = |error: Error, kind: fn(&Error) -> bool, words: &[&str]| {
            let message = error.to_string();
            assert!(kind(&error), "{message}");
            words.iter().for_each(|word| assert!(message.contains(word), "{message} says nothing of {word}"));
        };
        let invalid = |error: &Error| matches!(error, Error::InvalidArgument { .. });
        let unsupported = |error: &Error| matches!(error, Error::Unsupported { .. });
        let error = Mixed::open(&group, &grid([3, 1, 1, 1])).map(drop).unwrap_err();
        said(error, invalid, &["3 x 1", "there are 4 ranks of a host"]);
        let mut large = grid([2, 2, 1, 1]);
        large.most_bytes = 64 << 20;
        assert!(matches!(Mixed::open(&group, &large), Err(Error::OutOfMemory { .. })));
        large.most_bytes = usize::MAX;
        said(Mixed::open(&group, &large).map(drop).unwrap_err(), invalid, &["most_bytes", "1099511627776"]);
        let mine = grid([[4, 1, 1, 1], [2, 2, 1, 1]][usize::from(group.rank() == 2)]);
        let error = Mixed::open(&group, &mine).map(drop).unwrap_err();
        said(error, |error| matches!(error, Error::Mismatch { rank: 2, .. }), &["the settings of a grid"]);

        let mixed = Mixed::open(&group, &grid([2, 2, 1, 1])).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let [small, large] = [100, 200].map(|len| DeviceBuffer::<f32>::new(group.device(), len).unwrap());
        let one_shot = MixedMode::OneShot;
        let error = mixed.all_reduce(&small, &small, one_shot, &stream).unwrap_err();
        said(error, unsupported, &["2 tensor x 2 data", "all-reduce-all-gather, reduce-scatter-all-reduce"]);
        let error = mixed.all_reduce_all_gather(&small, &large, MixedMode::TwoShotAcross, &stream).unwrap_err();
        said(error, unsupported, &["two-shot-across", "one-shot, two-shot, one-collective, two-collectives"]);
        let error = mixed.all_reduce_all_gather(&small, &small, one_shot, &stream).unwrap_err();
        said(error, invalid, &["the output's length", "100", "takes 200"]);
        let error = mixed.reduce_scatter_all_reduce(&large, &small, MixedMode::TwoCollectives, &stream).unwrap_err();
        said(error, unsupported, &["exact determinism", "2 times"]);
        let mut average = MixedOptions::from(MixedMode::TwoCollectives);
        average.reduction = Reduction::Average;
        let error = mixed.reduce_scatter_all_reduce(&large, &small, average, &stream).unwrap_err();
        said(error, unsupported, &["average", "2 steps"]);
        let many = DeviceBuffer::<f32>::new(group.device(), 5000).unwrap();
        let twice = DeviceBuffer::<f32>::new(group.device(), 10_000).unwrap();
        let error = mixed.all_reduce_all_gather(&many, &twice, one_shot, &stream).unwrap_err();
        said(error, invalid, &["20000", "16384"]);
        let part = large.borrow().slice(50..150).unwrap();
        let error = mixed.all_reduce_all_gather(part, &large, one_shot, &stream).unwrap_err();
        said(error, invalid, &["the input", "the output", "may not overlap"]);
        // Nothing was enqueued, so the ranks still agree.
        mixed.all_reduce_all_gather(&small, &large, MixedMode::Auto, &stream).unwrap();
        mixed.synchronize(&stream).unwrap();
        assert_eq!(mixed.explain(MixedOperation::AllReduceAllGather, one_shot).unwrap().len(), 2);
        mixed.close().unwrap();
        group.close().unwrap();
    });
}

#[cfg(feature = "gloo")]
#[test]
fn hosts_of_unequal_size_and_graphs_between_hosts_are_refused() {
    if !is_host() {
        return;
    }
    meet(3, |bootstrap| {
        let group = open(bootstrap, &[0, 0, 1], |_| {});
        let error = Mixed::open(&group, &MixedConfig::default()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("2, 1"), "{error}");
        group.close().unwrap();
    });
    meet(2, |bootstrap| {
        let group = open(bootstrap, &[0, 1], |_| {});
        let mixed = Mixed::open(&group, &grid([1, 1, 2, 1])).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 10], &stream).unwrap();
        let error = stream
            .capture(|capture| mixed.all_reduce(&buffer, &buffer, MixedMode::OneShot, capture))
            .map(drop)
            .unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        mixed.all_reduce(&buffer, &buffer, MixedMode::OneShot, &stream).unwrap();
        mixed.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [2.0; 10]);
        mixed.close().unwrap();
        group.close().unwrap();
    });
}
