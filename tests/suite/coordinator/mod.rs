//! Every operation of parallel groups against an independent model, eager and from graphs, through every available
//! backend; groups used in turn; maps of named tensors; calls that are refused.

mod ended;
mod own_kernels;
mod refused;
pub(crate) mod round;
#[cfg(feature = "gloo")]
mod through_cpu;
#[cfg(feature = "nccl")]
mod through_nccl;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::Sample;
use crate::support::data::{Random, assert_same, mix};
use crate::support::device::device;
use crate::support::extent::repeats;
use crate::support::world::meet;
use half::{bf16, f16};
use round::{Plan, Round, check};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{
    Backend, Coordinator, EnvConfig, Environment, InitMethod, NamedTensor, NamedValue, Parallelism,
};
use symmetra::float8::F8E4M3;
use symmetra::{AllReduceOptions, Config, Deadlines, Determinism, DeviceBuffer, Dtype, Error, Reduction, Stream};

/// How often graphs of all groups are replayed in turn.
const REPLAYS: &str = "SYMMETRA_TEST_REPLAYS";

fn small() -> Config {
    let minute = Duration::from_secs(60);
    let mut config = Config::default();
    config.deadlines = Deadlines::default().open(minute).first_use(minute).steady(minute);
    config.heap_bytes = 1 << 20;
    (config.one_shot_ll_bytes, config.two_shot_ll_bytes) = (4 << 10, 4 << 10);
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(4 << 10), 4 << 10);
    config
}

pub(crate) fn config(bootstrap: Threads, [tensor, pipeline, data]: [usize; 3]) -> EnvConfig {
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
                check::<F8E4M3>(group, group, &Reduction::ALL, seed, false);
                let own = group.through(Backend::Own).unwrap();
                check::<f16>(group, &own, &Reduction::ALL, seed, false);
            }
            environment.close().unwrap();
        });
    }
}

/// Every operation keeps the model's bits, also with a weaker determinism, and ranks choose as by default.
#[test]
fn every_operation_whatever_the_determinism() {
    let seed = fastrand::u64(..);
    let mut choices = Vec::new();
    for determinism in Determinism::ALL {
        let explained = meet(3, |bootstrap| {
            let mut config = config(bootstrap, [3, 1, 1]);
            config.communicator.determinism = determinism;
            let environment = Environment::init(config).unwrap();
            let group = environment.tp();
            check::<f32>(group, group, &Reduction::ALL, seed, true);
            check::<bf16>(group, group, &Reduction::ALL, mix(seed), true);
            check::<i64>(group, group, &Reduction::ALL, seed, false);
            let communicator = group.communicator().unwrap();
            let explained = (communicator.explain(Dtype::F32, true), communicator.explain(Dtype::BF16, false));
            let explained = format!("{explained:?} {:?}", group.explain());
            environment.close().unwrap();
            explained
        });
        choices.push(explained);
    }
    assert_eq!(choices[0], choices[2]);
    assert_eq!(choices[1], choices[2]);
}

#[test]
fn graphs_of_all_groups_in_turn_are_never_wrong() {
    let replays = repeats(REPLAYS, 50, 150) as u64;
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
            crate::support::data::shuffle(shared.next(), &mut order);
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

/// A map as a root has it.
fn named<'a>(values: &[(&str, &'a DeviceBuffer<f32>, &[usize])], layer: u64) -> BTreeMap<String, NamedValue<'a>> {
    let tensor = |&(name, buffer, shape): &(&str, &'a DeviceBuffer<f32>, &[usize])| {
        (name.to_owned(), NamedValue::Tensor(NamedTensor::borrowed(&buffer.borrow(), shape).unwrap()))
    };
    let mut map: BTreeMap<_, _> = values.iter().map(tensor).collect();
    map.insert("layer".to_owned(), NamedValue::Other(layer.into()));
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
        let shape = NamedTensor::borrowed(&wrong.borrow(), &[2, 2]).unwrap_err().to_string();
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
