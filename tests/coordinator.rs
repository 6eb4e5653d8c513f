//! Every operation of parallel groups against a model of its own, eager and from graphs, through every backend
//! there is; groups used in turn; maps of named tensors; calls that are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use half::{bf16, f16};
use support::Sample;
use support::data::{Random, assert_same, mix};
use support::device::{device, is_host};
use support::world::meet;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Backend, Coordinator, EnvConfig, Environment, InitMethod, Parallelism, Tensor, Value};
use symmetra::{
    Algorithm, AllReduceOptions, Config, Deadlines, DeviceBuffer, Dtype, Error, Queue, Reduction, Ref, Result, Stream,
};

/// How often graphs of all groups are replayed in turn.
const REPLAYS: &str = "SYMMETRA_TEST_REPLAYS";

fn small() -> Config {
    let minute = Duration::from_secs(60);
    let mut config = Config::default();
    config.deadlines = Deadlines { open: minute, first_use: minute, steady: minute };
    config.heap_bytes = 1 << 20;
    (config.one_shot_ll_bytes, config.two_shot_ll_bytes) = (4 << 10, 4 << 10);
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(4 << 10), 4 << 10);
    config
}

fn config(bootstrap: Threads, [tensor, pipeline, data]: [usize; 3]) -> EnvConfig {
    let mut config = EnvConfig::default();
    config.device = Some(device(bootstrap.rank()));
    config.interface = Some("127.0.0.1".to_owned());
    config.init_method = InitMethod::bootstrap(bootstrap);
    (config.tensor_parallel_size, config.pipeline_parallel_size, config.data_parallel_size) = (tensor, pipeline, data);
    config.communicator = small();
    config
}

fn groups(environment: &Environment) -> Vec<&Coordinator> {
    [environment.world()]
        .into_iter()
        .chain(Parallelism::ALL.map(|parallelism| environment.group(parallelism)))
        .collect()
}

/// What one round of operations is, the same on every rank of a group.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    /// Elements of a part.
    count: usize,
    /// Elements before an operand in its buffer.
    offset: usize,
    rows: usize,
    reduction: Reduction,
    root: usize,
}

impl Plan {
    fn new(seed: u64, reductions: &[Reduction], world: usize) -> Self {
        let mut random = Random(mix(seed));
        let rows = 1 + random.below(3);
        let count = [0, 1, 3, 17, 100, 700][random.below(6)] * rows;
        let reduction = *random.pick(reductions);
        Self { seed, count, offset: random.below(9), rows, reduction, root: random.below(world) }
    }

    /// How many elements rank `from` gives rank `to` where each pair has its own count.
    fn pair(&self, from: usize, to: usize) -> usize {
        (mix(self.seed ^ ((from * 16 + to) as u64) << 20) % (self.count as u64 + 1)) as usize
    }
}

/// Operands of every operation, and what becomes of them.
struct Round<'a, T: Sample> {
    group: &'a Coordinator,
    plan: Plan,
    /// Of the group: a rank there is numbered in the world.
    ranks: Vec<usize>,
    input: DeviceBuffer<T>,
    outputs: Vec<DeviceBuffer<T>>,
    sends: Vec<usize>,
    receives: Vec<usize>,
}

const OPERATIONS: usize = 13;

impl<'a, T: Sample> Round<'a, T> {
    fn new(group: &'a Coordinator, plan: Plan) -> Self {
        let (world, rank) = (group.world_size(), group.rank());
        let elems = plan.count * world + plan.offset;
        let buffer = |_| DeviceBuffer::<T>::new(group.device(), elems).unwrap();
        let sends = (0..world).map(|peer| plan.pair(rank, peer)).collect();
        let receives = (0..world).map(|peer| plan.pair(peer, rank)).collect();
        let (input, outputs) = (buffer(0), (0..OPERATIONS).map(buffer).collect());
        Self { group, plan, ranks: group.ranks().to_vec(), input, outputs, sends, receives }
    }

    fn value(&self, member: usize, index: usize, fresh: u64) -> T {
        T::sample(mix(self.plan.seed ^ fresh << 40 ^ (self.ranks[member] as u64) << 20 ^ index as u64))
    }

    /// Fills the inputs, and the outputs with what nobody sends.
    fn fill(&self, stream: &Stream, fresh: u64) {
        let elems = self.input.len() - self.plan.offset;
        let values: Vec<T> = (0..elems).map(|index| self.value(self.group.rank(), index, fresh)).collect();
        self.from(elems).write(&values, stream).unwrap();
        let nothing = vec![T::sample(mix(fresh)); self.input.len()];
        self.outputs.iter().for_each(|output| output.write(&nothing, stream).unwrap());
        let own = &values[..self.plan.count];
        [5, 12].into_iter().for_each(|number| self.to(number, own.len()).write(own, stream).unwrap());
    }

    fn from(&self, elems: usize) -> Ref<'_, T> {
        self.input.borrow().slice(self.plan.offset..self.plan.offset + elems).unwrap()
    }

    fn to(&self, number: usize, elems: usize) -> Ref<'_, T> {
        self.outputs[number].borrow().slice(self.plan.offset..self.plan.offset + elems).unwrap()
    }

    fn enqueue<'op>(&'op self, group: &Coordinator, queue: impl Queue<'op> + Copy) -> Result<()> {
        let Plan { count, rows, reduction, root, .. } = self.plan;
        let (world, all) = (group.world_size(), count * group.world_size());
        let mine = group.rank() == root;
        group.all_reduce_with(reduction, self.from(count), self.to(0, count), queue)?;
        group.reduce_scatter(self.from(all), self.to(1, count), reduction, queue)?;
        let (whole, part) = ([rows, count / rows * world], [rows, count / rows]);
        group.reduce_scatter_along(1, &whole, self.from(all), self.to(2, count), reduction, queue)?;
        group.all_gather(self.from(count), self.to(3, all), queue)?;
        group.all_gather_along(1, &part, self.from(count), self.to(4, all), queue)?;
        group.broadcast(self.to(5, count), root, queue)?;
        group.all_to_all(self.from(all), self.to(6, all), queue)?;
        let room = self.receives.iter().sum();
        group.all_to_all_v(self.from(self.sends.iter().sum()), &self.sends, self.to(7, room), &self.receives, queue)?;
        group.reduce(self.from(count), mine.then(|| self.to(8, count)), reduction, root, queue)?;
        group.gather(self.from(count), mine.then(|| self.to(9, all)), root, queue)?;
        group.scatter(mine.then(|| self.from(all)), self.to(10, count), root, queue)?;
        group.batch(queue, |messages| {
            messages.send_next(self.from(count));
            messages.receive_previous(self.to(11, count));
            Ok(())
        })?;
        group.all_reduce_in_place(self.to(12, count), queue)
    }

    /// What each output must hold, by the definition of the operation; `None` where it is nobody's.
    fn expected(&self, number: usize, fresh: u64) -> Option<Vec<T>> {
        let Plan { count, rows, reduction, root, .. } = self.plan;
        let (world, rank) = (self.ranks.len(), self.group.rank());
        let value = |member: usize, index: usize| self.value(member, index, fresh);
        let reduced = |reduction: Reduction, index: usize| {
            T::reduce(reduction, (0..world).map(|member| value(member, index)).collect::<Vec<_>>().into_iter())
        };
        let width = count / rows;
        let each = |of: &dyn Fn(usize) -> T| (0..count).map(of).collect::<Vec<_>>();
        Some(match number {
            0 => each(&|index| reduced(reduction, index)),
            1 => each(&|index| reduced(reduction, rank * count + index)),
            2 => each(&|index| reduced(reduction, (index / width * world + rank) * width + index % width)),
            3 => (0..world * count).map(|index| value(index / count, index % count)).collect(),
            4 => (0..world * count)
                .map(|index| {
                    let (row, column) = (index / (width * world), index % (width * world));
                    value(column / width, row * width + column % width)
                })
                .collect(),
            5 => each(&|index| value(root, index)),
            6 => (0..world * count).map(|index| value(index / count, rank * count + index % count)).collect(),
            7 => (0..world)
                .flat_map(|peer| {
                    let before: usize = (0..rank).map(|other| self.plan.pair(peer, other)).sum();
                    (before..before + self.plan.pair(peer, rank)).map(move |index| (peer, index))
                })
                .map(|(peer, index)| value(peer, index))
                .collect(),
            8 | 9 if rank != root => return None,
            8 => each(&|index| reduced(reduction, index)),
            9 => (0..world * count).map(|index| value(index / count, index % count)).collect(),
            10 => each(&|index| value(root, rank * count + index)),
            11 => each(&|index| value((rank + world - 1) % world, index)),
            _ => each(&|index| reduced(Reduction::Sum, index)),
        })
    }

    fn verify(&self, stream: &Stream, fresh: u64) {
        self.group.synchronize(stream).unwrap();
        for (number, output) in self.outputs.iter().enumerate() {
            let got = output.read(stream).unwrap();
            let nothing = T::sample(mix(fresh));
            let expected = self.expected(number, fresh).unwrap_or_default();
            let mut all = vec![nothing; got.len()];
            all[self.plan.offset..self.plan.offset + expected.len()].copy_from_slice(&expected);
            let context = (number, self.group.name(), self.group.rank(), &self.ranks, T::DTYPE, fresh, self.plan);
            assert_same(&got, &all, &context);
        }
    }
}

/// Every operation in a group, eager and, where its backend can be captured, from a graph.
fn check<T: Sample>(group: &Coordinator, through: &Coordinator, reductions: &[Reduction], seed: u64, captured: bool) {
    let stream = Stream::new(group.device()).unwrap();
    let round = Round::<T>::new(group, Plan::new(seed ^ T::DTYPE as u64, reductions, group.world_size()));
    round.fill(&stream, 1);
    round.enqueue(through, &stream).unwrap();
    round.verify(&stream, 1);
    if captured {
        let graph = group.capture(&stream, |capture| round.enqueue(through, capture)).unwrap();
        for fresh in 2..4 {
            round.fill(&stream, fresh);
            // Peers write into outputs as soon as they come to it: nobody fills behind them.
            group.barrier().unwrap();
            graph.launch(&stream).unwrap();
            round.verify(&stream, fresh);
        }
    }
}

#[test]
fn every_operation_on_groups_of_every_shape() {
    let seed = fastrand::u64(..);
    for (world, sizes) in [
        (8, [2, 2, 2]),
        (8, [4, 1, 2]),
        (6, [3, 2, 1]),
        (6, [1, 3, 2]),
        (5, [5, 1, 1]),
        (4, [1, 4, 1]),
        (4, [2, 1, 1]),
        (2, [1, 1, 2]),
        (1, [1, 1, 1]),
    ] {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            for (number, group) in groups(&environment).into_iter().enumerate() {
                let seed = mix(seed ^ (number * 100 + world) as u64);
                check::<f32>(group, group, &Reduction::ALL, seed, true);
                check::<bf16>(group, group, &Reduction::ALL, seed, true);
                check::<u8>(group, group, &Reduction::ALL, seed, false);
                check::<i64>(group, group, &Reduction::ALL, seed, false);
                let own = group.through(Backend::Own).unwrap();
                check::<f16>(group, &own, &Reduction::ALL, seed, false);
            }
            environment.close().unwrap();
        });
    }
}

#[test]
fn graphs_of_all_groups_in_turn_are_never_wrong() {
    let replays = std::env::var(REPLAYS).ok().map_or(150, |replays| replays.parse::<u64>().unwrap());
    let seed = fastrand::u64(..);
    meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let environment = Environment::init(config(bootstrap, [2, 1, 2])).unwrap();
        let stream = Stream::new(environment.world().device()).unwrap();
        let groups = groups(&environment);
        let plan = |number: usize, world: usize| {
            let plan = Plan::new(mix(seed ^ number as u64), &Reduction::ALL, world);
            Plan { count: plan.rows * (1 + plan.count % 40), ..plan }
        };
        let rounds: Vec<_> = groups
            .iter()
            .enumerate()
            .map(|(number, group)| Round::<f32>::new(group, plan(number, group.world_size())))
            .collect();
        let graph = |round: &'_ Round<'_, f32>| round.group.name();
        let names: Vec<_> = rounds.iter().map(graph).collect();
        assert_eq!(names, ["world", "tp", "pp", "dp", "ep"]);
        let world = environment.world();
        let graphs: Vec<_> = rounds
            .iter()
            .map(|round| world.capture(&stream, |capture| round.enqueue(round.group, capture)).unwrap())
            .collect();
        let (mut shared, mut own) = (Random(seed), Random(mix(seed ^ rank as u64)));
        for replay in 0..replays {
            let mut order: Vec<usize> = (0..graphs.len()).collect();
            support::data::shuffle(shared.next(), &mut order);
            rounds.iter().for_each(|round| round.fill(&stream, replay));
            world.barrier().unwrap();
            for number in order {
                if own.below(4) == 0 {
                    std::thread::sleep(Duration::from_micros(own.below(200) as u64));
                }
                graphs[number].launch(&stream).unwrap();
            }
            rounds.iter().for_each(|round| round.verify(&stream, replay));
        }
        drop(graphs);
        environment.close().unwrap();
    });
}

#[test]
fn what_no_backend_serves_names_the_group_the_call_and_every_reason() {
    meet(2, |bootstrap| {
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = Some(Backend::Quantised);
        let environment = Environment::init(config).unwrap();
        let stream = Stream::new(environment.world().device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.5; 8], &stream).unwrap();
        let error = environment.tp().all_reduce(&buffer, &buffer, &stream).unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{words}");
        for part in [
            "all-reduce (sum) of f32 by the group tp on 1 host, ",
            "(2 ranks)",
            "quantised: there is none yet; own: quantised is forced; nccl: quantised is forced; host: quantised is forced",
        ] {
            assert!(words.contains(part), "{words}");
        }
        let setting = environment.settings().iter().find(|setting| setting.name == "backend").unwrap();
        assert_eq!(setting.value, "quantised");
        // A group of one rank answers by itself; so does one through a backend that serves.
        environment.pp().all_reduce(&buffer, &buffer, &stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [1.5; 8]);
        environment.tp().through(Backend::Own).unwrap().all_reduce(&buffer, &buffer, &stream).unwrap();
        environment.tp().synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [3.0; 8]);
        environment.close().unwrap();
    });
}

#[test]
fn nccl_that_cannot_be_had_is_a_reason_and_the_program_runs() {
    if !is_host() {
        return;
    }
    meet(2, |bootstrap| {
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = Some(Backend::Nccl);
        let environment = Environment::init(config).unwrap();
        let stream = Stream::new(environment.world().device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[2.0; 3], &stream).unwrap();
        let words = environment.tp().broadcast(&buffer, 0, &stream).unwrap_err().to_string();
        let reason = match cfg!(feature = "nccl") {
            true => "nccl: rank 0: it works on NVIDIA GPUs, and this is host",
            false => "nccl: rank 0: it was not built: build with the feature `nccl`",
        };
        assert!(words.contains("broadcast of f32 by the group tp") && words.contains(reason), "{words}");
        let lines: Vec<_> = environment.tp().explain().iter().map(ToString::to_string).collect();
        assert!(
            lines[1] == "own: refuses: nccl is forced" && lines[2].starts_with("nccl: refuses: rank 0"),
            "{lines:?}"
        );
        environment.world().barrier().unwrap();
        environment.close().unwrap();
    });
}

#[test]
fn ranks_told_different_backends_do_not_open() {
    for error in meet(2, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = (rank == 1).then_some(Backend::Own);
        Environment::init(config).unwrap_err()
    }) {
        let words = error.to_string();
        assert!(words.contains("disagree on the backend: auto and own"), "{words}");
    }
}

#[test]
fn bad_calls_are_typed_errors_and_change_nothing() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let tp = environment.tp();
        for group in [tp.clone(), tp.through(Backend::Own).unwrap()] {
            refused(&group);
        }
        if cfg!(feature = "gloo") {
            let host = tp.through(Backend::Host).unwrap();
            refused(&host);
            let stream = Stream::new(tp.device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
            let words = |result: Result<()>| match result.unwrap_err() {
                error @ Error::Unsupported { .. } => error.to_string(),
                error => panic!("{error}"),
            };
            let captured = stream.capture(|capture| host.all_reduce(&buffer, &buffer, capture)).map(drop);
            assert!(words(captured).contains("in a graph by the group tp on 1 host"));
            let named = host.all_reduce_with(Algorithm::TwoShotLL, &buffer, &buffer, &stream);
            assert!(words(named).contains("host: the call names an algorithm of the own kernels"));
        }
        environment.close().unwrap();
    });
}

/// What every backend refuses.
fn refused(group: &Coordinator) {
    let stream = Stream::new(group.device()).unwrap();
    let [a, b, short] = [6, 6, 5].map(|elems| DeviceBuffer::<f32>::from_slice(&vec![1.0; elems], &stream).unwrap());
    let none = None::<&DeviceBuffer<f32>>;
    let rank = group.rank();
    let overlapping = a.borrow().slice(1..6).unwrap();
    let cases = [
        ("lengths", group.all_reduce(&a, &short, &stream)),
        ("overlap", group.all_reduce(a.borrow().slice(0..5).unwrap(), overlapping, &stream)),
        ("parts", group.reduce_scatter(&short, &a, Reduction::Sum, &stream)),
        ("output", group.reduce_scatter(&a, &b, Reduction::Sum, &stream)),
        ("dimension", group.all_gather_along(2, &[3, 1], a.borrow().slice(0..3).unwrap(), &b, &stream)),
        ("output", group.all_gather(&a, &b, &stream)),
        ("parts", group.all_to_all(&short, &short, &stream)),
        ("in place", group.all_to_all(&a, &a, &stream)),
        ("counts", group.all_to_all_v(&a, &[1], &b, &[1, 1], &stream)),
        ("sum of counts", group.all_to_all_v(&a, &[4, 4], &b, &[1, 1], &stream)),
        ("overflow", group.all_to_all_v(&a, &[usize::MAX, 2], &b, &[1, 1], &stream)),
        ("root", group.broadcast(&a, 2, &stream)),
        ("root", group.gather(&a, Some(&b), 7, &stream)),
        ("no output", group.reduce(&a, none, Reduction::Sum, rank, &stream)),
        ("no output", group.gather(&a, none, rank, &stream)),
        ("no input", group.scatter(none, &a, rank, &stream)),
        ("root", group.scatter(none, &a, 2, &stream)),
        (
            "peer",
            group.batch(&stream, |messages| {
                messages.send(&a, 2);
                Ok(())
            }),
        ),
        (
            "twice",
            group.batch(&stream, |messages| {
                messages.send_next(&a);
                messages.send_next(&b);
                Ok(())
            }),
        ),
    ];
    for (what, result) in cases {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{what}: {result:?}");
    }
    let none: BTreeMap<String, Value<'_>> = BTreeMap::new();
    let two = group.broadcast_named((rank == 0).then_some(&none), 1, &stream).unwrap_err();
    assert!(matches!(two, Error::InvalidArgument { .. }), "{two}");
    group.all_reduce(&a, &b, &stream).unwrap();
    group.synchronize(&stream).unwrap();
    assert_eq!(b.read(&stream).unwrap(), [2.0; 6]);
}

/// A map as a root has it.
fn named<'a>(values: &[(&str, &'a DeviceBuffer<f32>, &[usize])], layer: u64) -> BTreeMap<String, Value<'a>> {
    let tensor = |&(name, buffer, shape): &(&str, &'a DeviceBuffer<f32>, &[usize])| {
        (name.to_owned(), Value::Tensor(Tensor::borrowed(&buffer.borrow(), shape).unwrap()))
    };
    let mut map: BTreeMap<_, _> = values.iter().map(tensor).collect();
    map.insert("layer".to_owned(), Value::Other(layer.into()));
    map
}

#[test]
fn maps_of_named_tensors_travel() {
    let seed = fastrand::u64(..);
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 2])).unwrap();
        for group in groups(&environment) {
            let stream = Stream::new(group.device()).unwrap();
            let root = group.world_size() - 1;
            let values: Vec<f32> = (0..600).map(|index| f32::sample(mix(seed ^ index))).collect();
            let weights = DeviceBuffer::from_slice(&values, &stream).unwrap();
            let (bias, empty) = (DeviceBuffer::from_slice(&values[..3], &stream).unwrap(), 0);
            let empty = DeviceBuffer::<f32>::new(group.device(), empty).unwrap();
            let map =
                named(&[("weights", &weights, &[20, 30]), ("bias", &bias, &[3]), ("empty", &empty, &[4, 0])], seed);
            let received = group.broadcast_named((group.rank() == root).then_some(&map), root, &stream).unwrap();
            assert_eq!(received.is_none(), group.rank() == root);
            group.synchronize(&stream).unwrap();
            let Some(received) = received else { continue };
            assert_eq!(received.keys().collect::<Vec<_>>(), ["bias", "empty", "layer", "weights"]);
            assert_eq!(received["layer"].other().and_then(|value| value.as_u64()), Some(seed));
            let tensor = |name: &str| received[name].tensor().unwrap();
            assert_eq!((tensor("weights").dtype(), tensor("weights").shape()), (Dtype::F32, &[20, 30][..]));
            assert_eq!(tensor("empty").shape(), [4, 0]);
            for (name, elems) in [("weights", 600), ("bias", 3), ("empty", 0)] {
                let got = tensor(name).elements::<f32>().unwrap().read(&stream).unwrap();
                assert_same(&got, &values[..elems], &(name, group.name(), seed));
            }
            let other = tensor("bias").elements::<i32>().map(drop).unwrap_err().to_string();
            assert!(other.contains("the type is i32, but the tensor holds f32"), "{other}");
        }
        let wrong = DeviceBuffer::<f32>::new(environment.world().device(), 3).unwrap();
        let shape = Tensor::borrowed(&wrong.borrow(), &[2, 2]).unwrap_err().to_string();
        assert!(shape.contains("[2, 2]") && shape.contains("3 elements"), "{shape}");
        environment.close().unwrap();
    });
}

#[test]
fn a_capture_that_fails_on_one_rank_fails_on_all() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let (tp, stream) = (environment.tp(), Stream::new(environment.world().device()).unwrap());
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
        let outcome = tp.capture(&stream, |capture| match tp.rank() {
            0 => tp.all_reduce_in_place(&buffer, capture),
            _ => tp.broadcast(&buffer, 9, capture),
        });
        match (tp.rank(), outcome.map(drop).unwrap_err()) {
            (0, Error::Peer { rank: 1, message }) => {
                assert!(message.contains("root is 9"), "{message}")
            }
            (1, Error::InvalidArgument { .. }) => {}
            (rank, error) => panic!("rank {rank}: {error}"),
        }
        let options = AllReduceOptions::from(Reduction::Max);
        tp.all_reduce_with(options, &buffer, &buffer, &stream).unwrap();
        tp.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [1.0; 4]);
        environment.close().unwrap();
    });
}

/// What the engine between hosts computes.
#[cfg(feature = "gloo")]
const SUMS: [Reduction; 1] = [Reduction::Sum];

#[cfg(feature = "gloo")]
#[test]
fn every_operation_through_the_cpu_gives_the_same_values() {
    let seed = fastrand::u64(..);
    for (world, sizes) in [(4, [2, 1, 2]), (3, [3, 1, 1])] {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            for group in groups(&environment) {
                let host = group.through(Backend::Host).unwrap();
                for round in 0..4 {
                    check::<f32>(group, &host, &SUMS, mix(seed ^ round), false);
                    check::<bf16>(group, &host, &SUMS, mix(seed ^ round), false);
                    check::<u8>(group, &host, &SUMS, mix(seed ^ round), false);
                    check::<i64>(group, &host, &SUMS, mix(seed ^ round), false);
                }
            }
            environment.close().unwrap();
        });
    }
}

#[cfg(feature = "gloo")]
#[test]
fn groups_that_span_hosts_serve_every_operation() {
    let seed = fastrand::u64(..);
    for (hosts, sizes) in [(vec![0, 0, 1, 1], [2, 1, 2]), (vec![0, 1, 0], [3, 1, 1]), (vec![0, 1, 2, 2], [2, 2, 1])] {
        meet(hosts.len(), |bootstrap| {
            let mut config = config(bootstrap, sizes);
            // Sums in rank order, so that there is one right answer.
            config.communicator.determinism = symmetra::Determinism::Exact;
            let InitMethod::Bootstrap(told) = &config.init_method else { panic!("it is one") };
            config.host = Some(format!("host-{}", hosts[told.rank()]));
            let environment = Environment::init(config).unwrap();
            for (number, group) in groups(&environment).into_iter().enumerate() {
                for round in 0..3 {
                    let seed = mix(seed ^ (number as u64) << 8 ^ round);
                    check::<f32>(group, group, &SUMS, seed, false);
                    check::<u8>(group, group, &SUMS, seed, false);
                }
            }
            let map = named(&[], seed);
            let world = environment.world();
            let stream = Stream::new(world.device()).unwrap();
            let received = world.broadcast_named(world.is_first_rank().then_some(&map), 0, &stream).unwrap();
            assert_eq!(received.as_ref().unwrap_or(&map)["layer"].other().unwrap().as_u64(), Some(seed));
            environment.close().unwrap();
        });
    }
}

#[cfg(feature = "gloo")]
#[test]
fn ranks_that_call_differently_through_the_cpu_all_learn_it() {
    for error in meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let host = environment.tp().through(Backend::Host).unwrap();
        let stream = Stream::new(host.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 6], &stream).unwrap();
        let error = match host.rank() {
            0 => host.broadcast(&buffer, 0, &stream).unwrap_err(),
            _ => host.broadcast(&buffer, 1, &stream).unwrap_err(),
        };
        assert_eq!(host.broadcast(&buffer, 0, &stream), Err(error.clone()), "it stays so");
        assert_eq!(environment.close(), Err(error.clone()));
        error
    }) {
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{words}");
        assert!(words.contains("broadcast of root 0, 24 bytes of f32"), "{words}");
    }
}
