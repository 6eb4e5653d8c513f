//! Plans among other work: several plans and communicators alternately, all-reduces meanwhile, ranks that enqueue different
//! plans, and groups that other backends than own kernels serve.

use std::time::{Duration, Instant};

use fastrand::Rng;
use symmetra::bootstrap::Bootstrap;
use symmetra::environment::{Backend, EnvConfig, Environment, InitMethod};
use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Way};
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::{Communicator, DeviceBuffer, Error, Queue, Result, Stream};

use crate::support::device::device;
use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config, fits, threads};

fn options(way: Way) -> FusedOptions {
    let mut options = FusedOptions::default();
    options.way = way;
    options
}

/// A layer as tensor parallel models have: a gather and a product, then a product and a reduce-scatter; and a product with an
/// all-reduce of the same rows.
pub(super) struct Layer {
    gather: AllGatherMatmul,
    scatter: MatmulReduceScatter,
    reduce: MatmulAllReduce,
    own: DeviceBuffer<f32>,
    middle: DeviceBuffer<f32>,
    identity: DeviceBuffer<f32>,
    results: [DeviceBuffer<f32>; 2],
}

impl Layer {
    const WIDTH: usize = 16;

    pub(super) fn new(communicator: &Communicator, way: Way, rows: usize, stream: &Stream) -> Result<Self> {
        let (width, world) = (Self::WIDTH, communicator.world_size());
        let product = Product::new(width, width, Numeric::F32);
        let whole = [rows * world, width];
        let identity: Vec<f32> = (0..width * width).map(|at| f32::from(at / width == at % width)).collect();
        let buffer = |rows: usize| DeviceBuffer::new(communicator.device(), rows * width);
        Ok(Self {
            gather: communicator.plan_all_gather_matmul(&[rows, width], 0, &[product], options(way))?,
            scatter: communicator.plan_matmul_reduce_scatter(&whole, 0, product, options(way))?,
            reduce: communicator.plan_matmul_all_reduce(&whole, product, options(way))?,
            own: buffer(rows)?,
            middle: buffer(rows * world)?,
            identity: DeviceBuffer::from_slice(&identity, stream)?,
            results: [buffer(rows)?, buffer(rows * world)?],
        })
    }

    pub(super) fn gather<'op>(&'op self, queue: impl Queue<'op>) -> Result<()> {
        let products = [(Tensor::of(&self.identity), Tensor::of(&self.middle))];
        self.gather.enqueue(Tensor::of(&self.own), None, products, queue)
    }

    pub(super) fn scatter<'op>(&'op self, queue: impl Queue<'op>) -> Result<()> {
        let [left, right, result] = [&self.middle, &self.identity, &self.results[0]].map(Tensor::of);
        self.scatter.enqueue(left, right, result, queue)
    }

    pub(super) fn reduce<'op>(&'op self, queue: impl Queue<'op>) -> Result<()> {
        let [left, right, result] = [&self.middle, &self.identity, &self.results[1]].map(Tensor::of);
        self.reduce.enqueue(left, right, result, queue)
    }

    /// The value of all elements of a rank in a round.
    fn value(number: usize, round: usize, rank: usize) -> f32 {
        (number * 100 + round * 10 + rank) as f32
    }

    fn check(&self, (number, round): (usize, usize), communicator: &Communicator, stream: &Stream) {
        let (world, own) = (communicator.world_size(), communicator.rank());
        let value = |rank| Self::value(number, round, rank);
        let scattered = self.results[0].read(stream).unwrap();
        assert!(scattered.iter().all(|sum| *sum == world as f32 * value(own)), "{number}, {round}: {}", scattered[0]);
        let reduced = self.results[1].read(stream).unwrap();
        for (rank, part) in reduced.chunks_exact(self.own.len()).enumerate() {
            assert!(part.iter().all(|sum| *sum == world as f32 * value(rank)), "{number}, {round}: {}", part[0]);
        }
    }
}

/// Two communicators, with two layers each of other sizes and ways. The steps of all layers alternate on one stream, with
/// all-reduces between; ranks are out of step.
#[test]
fn plans_of_two_communicators_alternate_with_all_reduces() {
    let world = 3;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        // The order of ranks differs.
        let second = communicator.split(Some(0), (world - rank.rank()) as i32).unwrap().unwrap();
        // The first two share a workspace.
        let cases = [(communicator, Way::Pipeline); 2].into_iter();
        let layers: Vec<(&Communicator, Layer)> = cases
            .chain([(&second, Way::Sequence), (&second, Way::Pipeline)])
            .enumerate()
            .map(|(number, (group, way))| (group, Layer::new(group, way, 3 + 8 * number, stream).unwrap()))
            .collect();
        let busy = communicator.symmetric::<i32>(3000).unwrap();
        busy.write(&[1; 3000], stream).unwrap();
        let mut random = Rng::with_seed(rank.rank() as u64);
        let rounds = 30;
        let mut sum = 1i32;
        for round in 0..rounds {
            for (number, (group, layer)) in layers.iter().enumerate() {
                let value = Layer::value(number, round, group.rank());
                layer.own.write(&vec![value; layer.own.len()], stream).unwrap();
            }
            for step in 0..3 {
                for (number, (_, layer)) in layers.iter().enumerate() {
                    match (step, number % 2) {
                        (0, _) => layer.gather(stream),
                        // Layers differ in their order.
                        (1, 0) | (2, 1) => layer.scatter(stream),
                        _ => layer.reduce(stream),
                    }
                    .unwrap();
                    if number > 0 {
                        communicator.all_reduce_in_place(&busy, stream).unwrap();
                        sum = sum.wrapping_mul(world as i32);
                    }
                    std::thread::sleep(Duration::from_micros(random.u64(0..60)));
                }
            }
            communicator.synchronize(stream).unwrap();
            second.synchronize(stream).unwrap();
            for (number, (group, layer)) in layers.iter().enumerate() {
                layer.check((number, round), group, stream);
            }
            assert!(busy.read(stream).unwrap().iter().all(|element| *element == sum));
        }
        drop(layers);
        second.close().unwrap();
    });
}

/// Rank 1 enqueues another plan than the others.
#[test]
fn pitfall_04_ranks_that_enqueue_different_plans_are_told() {
    type Step = fn(&[Layer; 2], &Stream) -> Result<()>;
    let differing: [(Step, Step, [&str; 2]); 3] = [
        (|layers, on| layers[0].gather(on), |layers, on| layers[0].scatter(on), ["all-gather", "reduce-scatter"]),
        // 4 and 5 rows of 16 elements.
        (
            |layers, on| layers[0].gather(on),
            |layers, on| layers[1].gather(on),
            ["256 bytes of f32", "320 bytes of f32"],
        ),
        (|layers, on| layers[0].reduce(on), |layers, on| layers[0].gather(on), ["reduce", "all-gather"]),
    ];
    let cases =
        [true, false].into_iter().flat_map(|check_calls| [Way::Sequence, Way::Pipeline].map(|way| (check_calls, way)));
    for (check_calls, way) in cases.filter(|_| fits(2)) {
        for (usual, other, words) in &differing {
            let gate = Gate::new(2);
            meet(2, |bootstrap| {
                let mut config = config();
                (config.check_calls, config.deadlines.steady) = (check_calls, Duration::from_secs(1));
                let rank = open(bootstrap, &config).unwrap();
                let Rank { communicator, stream, .. } = &rank;
                let layers = [4, 5].map(|rows| Layer::new(communicator, way, rows, stream).unwrap());
                for layer in &layers {
                    layer
                        .gather(stream)
                        .and_then(|()| layer.scatter(stream))
                        .and_then(|()| layer.reduce(stream))
                        .unwrap();
                }
                rank.finish();
                communicator.group().barrier().unwrap();
                let step = if rank.rank() == 1 { other } else { usual };
                let called = step(&layers, stream);
                let start = Instant::now();
                let error = loop {
                    if let Err(error) = communicator.synchronize(stream) {
                        break error;
                    }
                    assert!(start.elapsed() < Duration::from_secs(30), "rank {} never learned of it", rank.rank());
                    std::thread::sleep(Duration::from_millis(2));
                };
                // An all-reduce part by part ends with an all-gather, which the failed group may refuse at once.
                assert!(called.is_ok() || called == Err(error.clone()), "{called:?}");
                let message = error.to_string();
                assert!(matches!(error, Error::Mismatch { .. }), "{way}, checked {check_calls}: {message}");
                assert!(words.iter().all(|word| message.contains(word)), "{way}, {words:?}: {message}");
                gate.pass();
            });
        }
    }
}

/// Where another backend than own kernels serves a group, plans go one after the other. Part by part is refused with the
/// reason, and so is a call that no backend serves.
#[test]
fn plans_over_another_backend_go_in_sequence() {
    meet(2, |bootstrap| {
        let mut config = EnvConfig::default();
        config.device = Some(device(bootstrap.rank()));
        config.interface = Some("127.0.0.1".to_owned());
        config.init_method = InitMethod::bootstrap(bootstrap);
        config.tensor_parallel_size = 2;
        config.communicator = crate::support::config();
        // Without a codec it serves nothing.
        config.backend = Some(Backend::Quantised);
        let environment = Environment::init(config).unwrap();
        let (tp, stream) = (environment.tp(), Stream::new(environment.world().device()).unwrap());
        let product = Product::new(8, 16, Numeric::F32);
        let (gather, whole) = ([3, 8], [6, 8]);
        let reason = "another backend than own kernels serves the group";
        for (what, refused) in [
            (
                "all-gather + matmul",
                tp.plan_all_gather_matmul(&gather, 0, &[product], options(Way::Pipeline)).map(drop),
            ),
            (
                "matmul + reduce-scatter",
                tp.plan_matmul_reduce_scatter(&whole, 0, product, options(Way::Pipeline)).map(drop),
            ),
            ("matmul + all-reduce", tp.plan_matmul_all_reduce(&whole, product, options(Way::Pipeline)).map(drop)),
        ] {
            let words = format!("a plan of {what} part by part is not supported: {reason}");
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }) && error.to_string() == words, "{error}");
        }
        let left = DeviceBuffer::from_slice(&[1f32; 48], &stream).unwrap();
        let right = DeviceBuffer::from_slice(&[0.5f32; 128], &stream).unwrap();
        let result = DeviceBuffer::from_slice(&[7f32; 96], &stream).unwrap();
        let plan = tp.plan_matmul_all_reduce(&whole, product, options(Way::Auto)).unwrap();
        assert_eq!((plan.explain().way, plan.explain().reason.as_str()), (Way::Sequence, reason));
        let [first, second, third] = [&left, &right, &result].map(Tensor::of);
        let error = plan.enqueue(first, second, third, &stream).unwrap_err();
        assert!(error.to_string().contains("own: quantised is forced"), "{error}");
        assert_eq!(result.read(&stream).unwrap(), [7.0; 96]);
        if cfg!(feature = "gloo") {
            let host = tp.through(Backend::Host).unwrap();
            let refused = host.plan_all_gather_matmul(&gather, 0, &[product], options(Way::Pipeline)).map(drop);
            assert!(refused.unwrap_err().to_string().ends_with(reason));
            let plan = host.plan_matmul_all_reduce(&whole, product, options(Way::Auto)).unwrap();
            let [first, second, third] = [&left, &right, &result].map(Tensor::of);
            plan.enqueue(first, second, third, &stream).unwrap();
            assert_eq!(result.read(&stream).unwrap(), [8.0; 96]);
            let shard = Tensor::of(left.borrow().slice(..24).unwrap());
            let plan = host.plan_all_gather_matmul(&gather, 0, &[product], options(Way::Sequence)).unwrap();
            plan.enqueue(shard, None, [(Tensor::of(&right), Tensor::of(&result))], &stream).unwrap();
            assert_eq!(result.read(&stream).unwrap(), [4.0; 96]);
            let part = result.borrow().slice(..48).unwrap();
            let plan = host.plan_matmul_reduce_scatter(&whole, 0, product, options(Way::Sequence)).unwrap();
            let [first, second] = [&left, &right].map(Tensor::of);
            plan.enqueue(first, second, Tensor::of(part), &stream).unwrap();
            assert_eq!(result.read(&stream).unwrap()[..48], [8.0; 48]);
        }
        drop(plan);
        environment.close().unwrap();
    });
}
