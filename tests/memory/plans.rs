//! GEMM plans: calls allocate nothing, and the heap gets the memory of a plan back when the plan is dropped.

use std::sync::Arc;
use std::time::Duration;

use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Way};
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::{Config, DeviceBuffer, Queue, Result};

use crate::allocations::allocations;
use crate::support::data::Random;
use crate::support::extent::repeats;
use crate::support::process::apart;
use crate::support::system::Usage;
use crate::support::world::until;
use crate::support::{Rank, config, system, threads, world};
use crate::{CALLS, small};

const WORLD: usize = 2;
/// Of a part.
const ROWS: usize = 6;
const INNER: usize = 8;
const COLUMNS: usize = 4;

fn product() -> Product {
    Product::new(INNER, COLUMNS, Numeric::F32)
}

fn options(way: Way) -> FusedOptions {
    let mut options = FusedOptions::default();
    options.way = way;
    options
}

/// Plans of every kind in both schedules, and operands. Nothing in here allocates.
struct Layer<'a> {
    rank: &'a Rank,
    gathers: Vec<AllGatherMatmul>,
    scatters: Vec<MatmulReduceScatter>,
    reduces: Vec<MatmulAllReduce>,
    /// Of one rank's part, and of all rows.
    lefts: [DeviceBuffer<f32>; 2],
    right: DeviceBuffer<f32>,
    results: [DeviceBuffer<f32>; 2],
    gathered: DeviceBuffer<f32>,
}

impl<'a> Layer<'a> {
    /// Of each kind: in sequence, part by part, and with parts of unequal lengths if the kind has such.
    const KINDS: usize = 8;

    fn new(rank: &'a Rank) -> Self {
        let (communicator, whole) = (&rank.communicator, [WORLD * ROWS, INNER]);
        let mut unequal = options(Way::Sequence);
        unequal.rows = Some(vec![ROWS - 1, ROWS + 1]);
        let own = ROWS - 1 + 2 * rank.rank();
        let cases = [(ROWS, options(Way::Sequence)), (ROWS, options(Way::Pipeline)), (own, unequal)];
        let gather = |(rows, options): &(usize, FusedOptions)| {
            communicator.plan_all_gather_matmul(&[*rows, INNER], 0, &[product(); 2], options.clone()).unwrap()
        };
        let scatter = |(_, options): &(usize, FusedOptions)| {
            communicator.plan_matmul_reduce_scatter(&whole, 0, product(), options.clone()).unwrap()
        };
        let reduce = |(_, options): &(usize, FusedOptions)| {
            communicator.plan_matmul_all_reduce(&whole, product(), options.clone()).unwrap()
        };
        let buffer = |elems: usize| DeviceBuffer::new(&rank.device, elems).unwrap();
        Self {
            rank,
            gathers: cases.iter().map(gather).collect(),
            scatters: cases.iter().map(scatter).collect(),
            reduces: cases[..2].iter().map(reduce).collect(),
            lefts: [buffer((ROWS + 1) * INNER), buffer(WORLD * ROWS * INNER)],
            right: buffer(INNER * COLUMNS),
            results: [0; 2].map(|_| buffer(WORLD * ROWS * COLUMNS)),
            gathered: buffer(WORLD * ROWS * INNER),
        }
    }

    fn call<'op>(&'op self, kind: usize, queue: impl Queue<'op>) -> Result<()> {
        let (which, case) = (kind % 3, kind / 3);
        let rows = if case == 2 { ROWS - 1 + 2 * self.rank.rank() } else { ROWS };
        let [first, second] = &self.results;
        let [left, right, again] = [&self.lefts[1], &self.right, &self.right].map(Tensor::of);
        match which {
            0 => {
                let shard = Tensor::of(self.lefts[0].borrow().slice(..rows * INNER)?);
                let gathered = (case == 1).then(|| Tensor::of(&self.gathered));
                let products = [(right, Tensor::of(first)), (again, Tensor::of(second))];
                self.gathers[case].enqueue(shard, gathered, products, queue)
            }
            1 => self.scatters[case].enqueue(left, right, Tensor::of(first.borrow().slice(..rows * COLUMNS)?), queue),
            _ => self.reduces[case].enqueue(left, right, Tensor::of(first), queue),
        }
    }
}

/// Calls allocate neither on the calling thread nor, as far as the system reports, on any other.
#[test]
fn pitfall_19_calls_of_plans_allocate_nothing() {
    if !apart("plans::pitfall_19_calls_of_plans_allocate_nothing") {
        return;
    }
    const KINDS: usize = Layer::KINDS;
    let calls = repeats(CALLS, 8_000, 20_000);
    for check_calls in [false, true] {
        let mut config = config();
        config.check_calls = check_calls;
        threads(WORLD, &config, |rank| {
            let layer = Layer::new(rank);
            let graph = rank.stream.capture(|capture| (0..KINDS).try_for_each(|kind| layer.call(kind, capture)));
            let graph = graph.unwrap();
            graph.register().unwrap();
            let mut random = Random(23);
            let mut before = None;
            let mut allocated = [0; KINDS + 1];
            // A launch has a call of each kind, so there are about twice as many calls.
            for first in (0..calls / 4).step_by(100) {
                if first == 1_000 {
                    before = Some((Usage::of(rank), system::free_device_bytes(rank)));
                    allocated = [0; KINDS + 1];
                }
                let mut hundred = |first_kind| {
                    for _ in 0..100 {
                        let kind = first_kind + random.below(KINDS + 1 - first_kind);
                        let start = allocations();
                        match kind {
                            KINDS => graph.launch(&rank.stream).unwrap(),
                            kind => layer.call(kind, &rank.stream).unwrap(),
                        }
                        allocated[kind] += allocations() - start;
                    }
                };
                match first {
                    // A launch has more commands than a call, so no queue is longer later.
                    0 | 100 => world::behind(rank, first / 100, || hundred(KINDS)),
                    _ => hundred(0),
                }
                rank.finish();
            }
            assert_eq!(allocated, [0; KINDS + 1], "allocations by kind of call");
            let (usage, free) = before.unwrap();
            if let (Some(before), Some(after)) = (usage, Usage::of(rank)) {
                after.assert_flat(&before);
            }
            system::assert_device_flat(free, system::free_device_bytes(rank));
        });
    }
}

/// Columns of GEMMs whose memory is significant in a heap.
const WIDE: usize = 512;

fn wide() -> Product {
    Product::new(INNER, WIDE, Numeric::F32)
}

/// A heap with room for one plan of each kind at a time.
fn tight(way: Way) -> Config {
    let (options, whole) = (options(way), [WORLD * ROWS, INNER]);
    let bytes = [
        AllGatherMatmul::heap_bytes(WORLD, &[ROWS, INNER], 0, &[wide()], &options).unwrap(),
        MatmulReduceScatter::heap_bytes(WORLD, &whole, 0, &wide(), &options).unwrap(),
        MatmulAllReduce::heap_bytes(WORLD, &whole, &wide(), &options).unwrap(),
    ];
    let mut config = small();
    config.heap_bytes = bytes.into_iter().max().unwrap();
    config
}

/// Plans made and dropped again and again, with calls in flight, one of them a launch.
#[test]
fn plans_give_their_memory_back_with_work_in_flight() {
    if !apart("plans::plans_give_their_memory_back_with_work_in_flight") {
        return;
    }
    let shared = [WORLD * ROWS, INNER];
    for way in [Way::Sequence, Way::Pipeline] {
        threads(WORLD, &tight(way), |rank| {
            let Rank { communicator, stream, device } = rank;
            let left = DeviceBuffer::from_slice(&vec![1f32; WORLD * ROWS * INNER], stream).unwrap();
            let right = DeviceBuffer::from_slice(&[2f32; INNER * WIDE], stream).unwrap();
            let [result, part] =
                [WORLD * ROWS, ROWS].map(|rows| DeviceBuffer::<f32>::new(device, rows * WIDE).unwrap());
            let shard = || Tensor::of(left.borrow().slice(..ROWS * INNER).unwrap());
            let mut before = None;
            for round in 0..60 {
                if round == 20 {
                    before = Some(Usage::of(rank));
                }
                // The other rank is late, so this rank's call is in flight at the drop.
                let sum = (2 * INNER * WORLD) as f32;
                let expected = match round % 3 {
                    0 => {
                        let options = options(way);
                        let plan = communicator.plan_all_gather_matmul(&[ROWS, INNER], 0, &[wide()], options);
                        let plan = plan.unwrap();
                        world::behind(rank, round % WORLD, || {
                            plan.enqueue(shard(), None, [(Tensor::of(&right), Tensor::of(&result))], stream).unwrap();
                            drop(plan);
                        });
                        sum / WORLD as f32
                    }
                    1 => {
                        let plan = communicator.plan_matmul_reduce_scatter(&shared, 0, wide(), options(way));
                        let plan = plan.unwrap();
                        world::behind(rank, round % WORLD, || {
                            let [left, right] = [&left, &right].map(Tensor::of);
                            plan.enqueue(left, right, Tensor::of(&part), stream).unwrap();
                            drop(plan);
                        });
                        sum
                    }
                    _ => {
                        let plan = communicator.plan_matmul_all_reduce(&shared, wide(), options(way)).unwrap();
                        world::behind(rank, round % WORLD, || {
                            let [left, right] = [&left, &right].map(Tensor::of);
                            plan.enqueue(left, right, Tensor::of(&result), stream).unwrap();
                            drop(plan);
                        });
                        sum
                    }
                };
                let written = if round % 3 == 1 { &part } else { &result };
                assert!(written.read(stream).unwrap().iter().all(|element| *element == expected), "round {round}");
                written.write(&vec![0.0; written.len()], stream).unwrap();
            }
            if let (Some(before), Some(after)) = (before.unwrap(), Usage::of(rank)) {
                after.assert_flat(&before);
            }
        });
    }
}

/// A plan whose memory a graph keeps, after the last other owner has dropped the plan.
#[test]
fn a_graph_keeps_a_plan_that_was_dropped() {
    for way in [Way::Sequence, Way::Pipeline] {
        let mut config = tight(way);
        config.heap_bytes *= 3;
        threads(WORLD, &config, |rank| {
            let Rank { communicator, stream, device } = rank;
            let make = || communicator.plan_matmul_all_reduce(&[WORLD * ROWS, INNER], wide(), options(way));
            // How many plans the heap has room for. The ranks agree in each.
            let fitting = || std::iter::repeat_with(make).map_while(Result::ok).collect::<Vec<_>>().len();
            let all = fitting();
            assert!(all > 1);
            let left = DeviceBuffer::<f32>::new(device, WORLD * ROWS * INNER).unwrap();
            let right = DeviceBuffer::from_slice(&[2f32; INNER * WIDE], stream).unwrap();
            let result = DeviceBuffer::<f32>::new(device, WORLD * ROWS * WIDE).unwrap();
            let plan = Arc::new(make().unwrap());
            let graph = stream.capture(|capture| {
                let [left, right, result] = [&left, &right, &result].map(Tensor::of);
                capture.keep(plan.clone()).enqueue(left, right, result, capture)
            });
            let graph = graph.unwrap();
            graph.register().unwrap();
            drop(plan);
            for round in 0..5 {
                assert_eq!(fitting(), all - 1, "round {round}");
                // A free of one rank may wait for the work of both devices, and that work for the rank's launch.
                communicator.group().barrier().unwrap();
                left.write(&vec![round as f32; left.len()], stream).unwrap();
                graph.launch(stream).unwrap();
                let expected = (2 * round * INNER * WORLD) as f32;
                assert!(result.read(stream).unwrap().iter().all(|sum| *sum == expected), "round {round}");
            }
            world::behind(rank, 1, || {
                graph.launch(stream).unwrap();
                drop(graph);
            });
            until(Duration::from_secs(20), "the memory comes back", || fitting() == all);
            rank.finish();
        });
    }
}
