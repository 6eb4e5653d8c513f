//! Collectives over grids: every operation in every mode against exact sums, on one host and on several, as calls and
//! as graphs, and errors.

mod pieces;

use half::bf16;
use reference::mesh::MeshCall;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::mixed::{Grid, Mixed, MixedConfig, MixedMode, MixedOperation, MixedOptions};
use symmetra::{Determinism, DeviceBuffer, Dtype, Error, Reduction, Stream, Transport, TunedGrid, TunedRow, Tuning};

use crate::support::data::{Random, Sample, mix};
#[cfg(feature = "gloo")]
use crate::support::device::is_host;
use crate::support::device::{device, kind};
use crate::support::extent::{cases_of, full};
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

/// The place of rank `rank`, from the formulas of the documentation: tensor and data rank.
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

/// One call: of every data rank the elements of `x`, or of its slice.
struct Case<'a> {
    operation: MixedOperation,
    mode: MixedMode,
    rows: &'a [usize],
    reduction: Reduction,
    memory: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Plain,
    Symmetric,
    /// Plain memory that is registered with the ranks of the host.
    Adopted,
}

impl Case<'_> {
    /// The input and the output of a rank, from the data ranks of all ranks.
    fn operands(&self, data_ranks: &[usize], seed: u64, rank: usize) -> [Vec<i64>; 2] {
        let Self { operation, reduction, rows, .. } = *self;
        let call = MeshCall { operation, reduction, rows, data_ranks };
        // Averages of multiples of the world size are exact.
        let times = if reduction == Reduction::Average { data_ranks.len() as i64 } else { 1 };
        let input = |rank: usize| -> Vec<i64> {
            values(seed, rank, call.elems(rank)[0]).into_iter().map(|value| value * times).collect()
        };
        let mut inputs: Vec<Vec<i64>> = (0..data_ranks.len()).map(input).collect();
        let output = call.output(&inputs, rank);
        [inputs.swap_remove(rank), output]
    }

    /// Runs the call, and again in a graph where it can be captured.
    fn check<T: Sample>(&self, mixed: &Mixed, group: &Coordinator, (sizes, hosts): (&[usize; 4], &[usize]), seed: u64) {
        let stream = Stream::new(group.device()).unwrap();
        let data_ranks: Vec<usize> = (0..hosts.len()).map(|rank| place(*sizes, hosts, rank).1).collect();
        let [input, expected] = self
            .operands(&data_ranks, seed, group.rank())
            .map(|values| values.into_iter().map(T::whole).collect::<Vec<T>>());
        let what = format!(
            "{} by {}, {:?} of {:?} {} in {:?} memory",
            self.operation,
            self.mode,
            self.reduction,
            self.rows,
            T::DTYPE,
            self.memory
        );
        let equal = self.rows.iter().all(|count| *count == self.rows[0]);
        let mut options = MixedOptions::from(self.mode);
        (options.reduction, options.rows) = (self.reduction, (!equal).then_some(self.rows));
        // Symmetric buffers are as long on every rank.
        let room: usize = self.rows.iter().sum();
        match self.memory {
            Memory::Plain => {
                let from = DeviceBuffer::from_slice(&input, &stream).unwrap();
                let into = DeviceBuffer::<T>::new(group.device(), expected.len()).unwrap();
                mixed.perform(self.operation, &from, &into, options, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                assert_eq!(into.read(&stream).unwrap(), expected, "{what}");
                if is_captured(hosts) && room > 0 {
                    into.write(&vec![T::whole(1); expected.len()], &stream).unwrap();
                    let graph = group
                        .capture(&stream, |capture| mixed.perform(self.operation, &from, &into, options, capture))
                        .unwrap();
                    graph.launch(&stream).unwrap();
                    graph.launch(&stream).unwrap();
                    mixed.synchronize(&stream).unwrap();
                    assert_eq!(into.read(&stream).unwrap(), expected, "{what} in a graph");
                }
            }
            Memory::Symmetric => {
                let [from, into] = [0; 2].map(|_| group.local().symmetric::<T>(room).unwrap());
                let padding = std::iter::repeat(T::whole(0));
                from.write(&input.iter().copied().chain(padding).take(room).collect::<Vec<_>>(), &stream).unwrap();
                let operands = (from.slice(0..input.len()).unwrap(), into.slice(0..expected.len()).unwrap());
                mixed.perform(self.operation, operands.0, operands.1, options, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                assert_eq!(into.read(&stream).unwrap()[..expected.len()], expected, "{what}");
            }
            Memory::Adopted => {
                let [from, into] = [0; 2].map(|_| DeviceBuffer::<T>::new(group.device(), room).unwrap());
                from.borrow().slice(0..input.len()).unwrap().write(&input, &stream).unwrap();
                // SAFETY: dropped after the barrier, when every rank has dropped its own.
                let adopt = |buffer| unsafe { group.local().adopt(buffer) }.unwrap();
                let (adopted_from, adopted_into) = (adopt(from.borrow()), adopt(into.borrow()));
                let operands =
                    (adopted_from.slice(0..input.len()).unwrap(), adopted_into.slice(0..expected.len()).unwrap());
                mixed.perform(self.operation, operands.0, operands.1, options, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                drop((adopted_from, adopted_into));
                group.barrier().unwrap();
                assert_eq!(into.read(&stream).unwrap()[..expected.len()], expected, "{what}");
            }
        }
    }
}

/// Every operation and mode of a grid, for one type.
fn check<T: Sample>(
    mixed: &Mixed,
    group: &Coordinator,
    sizes: [usize; 4],
    hosts: &[usize],
    seed: u64,
    counts: &[usize],
) {
    for operation in mixed.operations() {
        for mode in mixed.modes(operation).into_iter().chain([MixedMode::Auto]) {
            for count in counts {
                let rows = vec![*count; mixed.data_size()];
                let case = Case { operation, mode, rows: &rows, reduction: Reduction::Sum, memory: Memory::Plain };
                case.check::<T>(mixed, group, (&sizes, hosts), mix(seed ^ *count as u64));
            }
        }
    }
}

/// Unequal rows, pieces, other reductions and other memory, in every operation and mode of a grid.
fn check_more(mixed: &Mixed, group: &Coordinator, sizes: [usize; 4], hosts: &[usize], seed: u64) {
    let of_data =
        |counts: &[usize]| -> Vec<usize> { (0..mixed.data_size()).map(|at| counts[at % counts.len()]).collect() };
    let (pieces, unequal, equal) = (of_data(&[6001]), of_data(&[130, 0, 7, 2500]), of_data(&[130]));
    for operation in mixed.operations() {
        for mode in mixed.modes(operation) {
            let case = |rows, reduction, memory| Case { operation, mode, rows, reduction, memory };
            let at = (&sizes, hosts);
            case(&pieces, Reduction::Sum, Memory::Plain).check::<f32>(mixed, group, at, seed);
            case(&unequal, Reduction::Sum, Memory::Plain).check::<f32>(mixed, group, at, seed);
            for memory in [Memory::Symmetric, Memory::Adopted] {
                case(&equal, Reduction::Sum, memory).check::<i32>(mixed, group, at, seed);
                case(&unequal, Reduction::Sum, memory).check::<bf16>(mixed, group, at, seed);
            }
            if !operation.reduces() {
                continue;
            }
            for reduction in [Reduction::Product, Reduction::Min, Reduction::Max] {
                case(&equal, reduction, Memory::Plain).check::<i32>(mixed, group, at, seed);
            }
            if rounds_once(operation, mode, sizes) {
                case(&equal, Reduction::Average, Memory::Plain).check::<f32>(mixed, group, at, seed);
            }
        }
    }
}

/// Where docs/mixed.md allows an average: once a level, and by two collectives once each.
fn rounds_once(operation: MixedOperation, mode: MixedMode, [_, _, across_tensor, across_data]: [usize; 4]) -> bool {
    let hosts = across_tensor * across_data;
    match mode {
        MixedMode::OneCollective => true,
        MixedMode::TwoCollectives => operation == MixedOperation::AllReduceAllGather,
        _ => hosts == 1,
    }
}

/// Between hosts the CPU moves bytes, which no graph does.
fn is_captured(hosts: &[usize]) -> bool {
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
        if hosts.len() <= 4 || full() {
            check_more(&mixed, &group, sizes, hosts, seed);
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
        // Several rows of results of a few ranks each.
        run([2, 2, 1, 2], &[0, 0, 0, 0, 1, 1, 1, 1]);
        run([2, 2, 2, 1], &[0, 1, 0, 1, 0, 1, 0, 1]);
    }
}

/// Operations and modes follow each other in any order on one object.
#[test]
fn calls_of_a_grid_follow_each_other_in_any_order() {
    let (sizes, hosts, seed) = ([2, 2, 1, 1], [0; 4], fastrand::u64(..));
    meet(4, |bootstrap| {
        let group = open(bootstrap, &hosts, |_| {});
        let mixed = Mixed::open(&group, &grid(sizes)).unwrap();
        let mut random = Random(mix(seed));
        for number in 0..if full() { 200 } else { 40 } {
            let operations = mixed.operations();
            let operation = operations[random.below(operations.len())];
            let modes: Vec<MixedMode> = mixed.modes(operation).into_iter().chain([MixedMode::Auto]).collect();
            let mode = modes[random.below(modes.len())];
            let memory = [Memory::Plain, Memory::Symmetric, Memory::Adopted][random.below(3)];
            let rows: Vec<usize> = (0..2).map(|_| random.below(3000)).collect();
            let case = Case { operation, mode, rows: &rows, reduction: Reduction::Sum, memory };
            match random.below(2) {
                0 => case.check::<f32>(&mixed, &group, (&sizes, &hosts), mix(seed ^ number)),
                _ => case.check::<u8>(&mixed, &group, (&sizes, &hosts), mix(seed ^ number)),
            }
        }
        mixed.close().unwrap();
        group.close().unwrap();
    });
}

/// A call copies its input to the workspace first. If the call is on another stream than a graph that has not run yet,
/// or the graph follows the call on another stream, the second waits for the first.
#[test]
fn graphs_and_calls_on_other_streams_share_the_workspace_in_turn() {
    const ELEMS: usize = 7;
    for graph_first in [true, false] {
        meet(2, |bootstrap| {
            let group = open(bootstrap, &[0; 2], |_| {});
            let mixed = Mixed::open(&group, &grid([2, 1, 1, 1])).unwrap();
            let [busy, other, free] = [(); 3].map(|()| Stream::new(group.device()).unwrap());
            let gate = group.local().symmetric::<u8>(1).unwrap();
            let [first, second] = [1, 10].map(|value| DeviceBuffer::from_slice(&[value; ELEMS], &free).unwrap());
            let into = [(); 2].map(|()| DeviceBuffer::<i32>::new(group.device(), ELEMS).unwrap());
            let (operation, mode) = (MixedOperation::AllReduce, MixedMode::TwoShot);
            assert_eq!(mixed.explain(operation, mode).unwrap().len(), 2, "no copy where all shares are equal");
            let graphs = [(&first, &into[0]), (&second, &into[1])].map(|(from, into)| {
                group.capture(&free, |capture| mixed.perform(operation, from, into, mode, capture)).unwrap()
            });
            // The call before is on the stream of the second.
            mixed.perform(operation, &second, &into[1], mode, &other).unwrap();
            mixed.synchronize(&other).unwrap();
            into[1].write(&[0; ELEMS], &free).unwrap();
            gate.signals().wait(group.rank(), 0, &busy).unwrap();
            match graph_first {
                true => {
                    graphs[0].launch(&busy).unwrap();
                    mixed.perform(operation, &second, &into[1], mode, &other).unwrap();
                }
                false => {
                    mixed.perform(operation, &first, &into[0], mode, &busy).unwrap();
                    graphs[1].launch(&other).unwrap();
                }
            }
            gate.signals().put(group.rank(), 0, &free).unwrap();
            mixed.synchronize(&busy).unwrap();
            mixed.synchronize(&other).unwrap();
            for (into, value) in into.iter().zip([2, 20]) {
                assert_eq!(into.read(&free).unwrap(), [value; ELEMS], "graph first: {graph_first}");
            }
            drop((graphs, gate));
            mixed.close().unwrap();
            group.close().unwrap();
        });
    }
}

/// Groups that a grid splits off take any memory, also where the configuration names a transport.
#[test]
fn a_named_transport_serves_what_peers_can_address() {
    let (sizes, hosts, seed) = ([2, 2, 1, 1], [0; 4], fastrand::u64(..));
    // Adopted memory need not be addressable on the host device.
    for (transport, memories) in [
        (Transport::Packets, [Memory::Plain, Memory::Symmetric, Memory::Adopted].as_slice()),
        (Transport::Direct, &[Memory::Symmetric]),
    ] {
        meet(4, |bootstrap| {
            let group = open(bootstrap, &hosts, |config| config.communicator.transport = transport);
            let mixed = Mixed::open(&group, &grid(sizes)).unwrap();
            for operation in mixed.operations() {
                for mode in mixed.modes(operation).into_iter().chain([MixedMode::Auto]) {
                    for memory in memories.iter().copied() {
                        let case = Case { operation, mode, rows: &[130; 2], reduction: Reduction::Sum, memory };
                        case.check::<i32>(&mixed, &group, (&sizes, &hosts), seed);
                    }
                }
            }
            mixed.close().unwrap();
            group.close().unwrap();
        });
    }
}

/// A step that the named transport cannot make refuses the call before an earlier step is enqueued, and `auto` goes by the next
/// mode.
#[test]
fn what_a_named_transport_cannot_make_is_refused_before_anything_moves() {
    let (sizes, hosts, seed) = ([2, 2, 1, 1], [0; 4], fastrand::u64(..));
    let operation = MixedOperation::AllReduceAllGather;
    // `auto` begins with the mode that is refused.
    let two_shot = TunedGrid::default()
        .local_tensor(2)
        .local_data(2)
        .across_tensor(1)
        .across_data(1)
        .operation(operation.name().to_owned())
        .direct(false)
        .measured_bytes(None)
        .rows(vec![TunedRow::default().up_to_bytes(None).algorithm("two-shot".to_owned())]);
    let tuning = Tuning::default().kind(kind().name().to_owned()).grids(vec![two_shot]);
    meet(4, |bootstrap| {
        let group = open(bootstrap, &hosts, |config| {
            config.communicator.transport = Transport::Direct;
            config.communicator.tuning = Some(tuning.clone());
        });
        let mixed = Mixed::open(&group, &grid(sizes)).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let elems = 40 << 10;
        let [from, into] = [elems, 2 * elems].map(|len| DeviceBuffer::<f32>::new(group.device(), len).unwrap());
        // The all-gather over the host follows a reduce-scatter over a group that takes any memory.
        if group.rank() == 1 {
            let error = mixed.all_reduce_all_gather(&from, &into, MixedMode::TwoShot, &stream).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("a direct all-gather on plain memory"), "{error}");
        }
        // Nothing of it was enqueued: the rank makes its calls with the others.
        assert_eq!(mixed.select(operation, Dtype::F32, false, 4 * elems as u64).unwrap(), MixedMode::TwoShot);
        let rows = [elems; 2];
        for mode in [MixedMode::OneShot, MixedMode::Auto] {
            let case = Case { operation, mode, rows: &rows, reduction: Reduction::Sum, memory: Memory::Plain };
            case.check::<f32>(&mixed, &group, (&sizes, &hosts), seed);
        }
        mixed.close().unwrap();
        group.close().unwrap();
    });
}

/// Hosts that call different modes get an error that names both modes.
#[cfg(feature = "gloo")]
#[test]
fn hosts_that_call_different_modes_are_at_odds() {
    if !is_host() {
        return;
    }
    meet(2, |bootstrap| {
        let group = open(bootstrap, &[0, 1], |_| {});
        let mixed = Mixed::open(&group, &grid([1, 1, 2, 1])).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 10], &stream).unwrap();
        let mode = [MixedMode::OneShot, MixedMode::OneCollective][group.rank()];
        let error = mixed.all_reduce(&buffer, &buffer, mode, &stream).unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{words}");
        assert!(words.contains("all-gather") && words.contains("all-reduce"), "{words}");
        drop(mixed);
    });
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
fn equal_bits(sizes: [usize; 4], hosts: &[usize]) {
    let seed = fastrand::u64(..);
    let outputs = meet(hosts.len(), |bootstrap| {
        let group = open(bootstrap, hosts, |_| {});
        let mixed = Mixed::open(&group, &grid(sizes)).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let mut random = Random(mix(seed) ^ group.rank() as u64);
        let mut bits = Vec::new();
        for operation in mixed.operations() {
            let scattered = matches!(operation, MixedOperation::ReduceScatterAllReduce);
            let gathered = matches!(operation, MixedOperation::AllReduceAllGather);
            let lens = [scattered, gathered].map(|all| if all { 300 * mixed.data_size() } else { 300 });
            let input: Vec<f32> = (0..lens[0]).map(|_| random.below(1 << 24) as f32 * 1.7e-5 - 99.0).collect();
            let input = DeviceBuffer::from_slice(&input, &stream).unwrap();
            for mode in mixed.modes(operation) {
                let output = DeviceBuffer::<f32>::new(group.device(), lens[1]).unwrap();
                mixed.perform(operation, &input, &output, mode, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                bits.push(output.read(&stream).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>());
            }
        }
        let data = mixed.data_rank();
        mixed.close().unwrap();
        group.close().unwrap();
        (data, bits)
    });
    for (data, bits) in &outputs {
        for (other, theirs) in &outputs {
            assert!(data != other || bits == theirs, "data rank {data} of {sizes:?}");
        }
    }
}

#[test]
fn a_tensor_group_has_equal_bits() {
    equal_bits([4, 1, 1, 1], &[0; 4]);
    equal_bits([2, 2, 1, 1], &[0; 4]);
}

#[cfg(feature = "gloo")]
#[test]
fn a_tensor_group_across_hosts_has_equal_bits() {
    if is_host() {
        equal_bits([2, 1, 2, 1], &[0, 0, 1, 1]);
        equal_bits([2, 1, 1, 2], &[0, 1, 1, 0]);
        equal_bits([1, 2, 3, 1], &[0, 1, 2, 2, 1, 0]);
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
        said(
            error,
            |error| matches!(error, Error::Mismatch { rank: 2, .. }),
            &["grid.local_tensor of the settings of a grid: 4 and 2"],
        );

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
        for (rows, words) in [
            ([100, 100, 100].as_slice(), ["the length of rows", "3", "2 data ranks"]),
            (&[99, 101], ["100", "rows gives this data rank", if group.rank() < 2 { "99" } else { "101" }]),
            (&[usize::MAX, 100], ["18446744073709551615", "their sum", "rows"]),
        ] {
            let mut options = MixedOptions::from(one_shot);
            options.rows = Some(rows);
            let error = mixed.all_reduce_all_gather(&small, &large, options, &stream).unwrap_err();
            said(error, invalid, &words);
        }
        let mut options = MixedOptions::from(one_shot);
        options.rows = Some(&[100, 99]);
        let mine = if mixed.data_rank() == 0 { &small } else { &large };
        let error = mixed.all_reduce_all_gather(mine, &large, options, &stream).unwrap_err();
        said(error, invalid, &[if mixed.data_rank() == 0 { "takes 199" } else { "rows gives this data rank 99" }]);
        let mut none = grid([2, 2, 1, 1]);
        none.most_bytes = 0;
        let without = Mixed::open(&group, &none).unwrap();
        let error = without.all_reduce_all_gather(&small, &large, MixedMode::TwoShot, &stream).unwrap_err();
        said(error, invalid, &["400", "made for 0 (most_bytes) and has 0"]);
        without.close().unwrap();
        let part = large.borrow().slice(50..150).unwrap();
        let error = mixed.all_reduce_all_gather(part, &large, one_shot, &stream).unwrap_err();
        said(error, invalid, &["the input", "the output", "may not overlap"]);
        // Nothing was enqueued, so the ranks still agree.
        mixed.all_reduce_all_gather(&small, &large, MixedMode::Auto, &stream).unwrap();
        mixed.synchronize(&stream).unwrap();
        let steps = mixed.explain(MixedOperation::AllReduceAllGather, one_shot).unwrap();
        assert_eq!(steps, ["all-reduce of each of 2 tensor groups, over the host"]);
        let steps = mixed.explain(MixedOperation::ReduceScatterAllReduce, one_shot).unwrap();
        assert_eq!(steps, ["reduce-scatter to each of 2 tensor groups, over the host"]);
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
