//! Plans of GEMMs and collectives, in both schedules, whose ranks leave a call out, come late, abort, are killed or are
//! stopped. The other ranks learn in time which rank it was and in which operation, keep their memory, and make plans
//! in a new group.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra::bootstrap::Bootstrap;
use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Way};
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::{Communicator, DeviceBuffer, Error, Operation, Queue, Result, Stream, SymmetricBuffer};

use crate::support::data::mix;
use crate::support::extent::full;
use crate::support::process::{Child, Ranks, Said, this, within_a_second};
use crate::support::world::{Gate, bounded, meet, open, open_on};
use crate::support::{Rank, config, fits};
use crate::{LIMIT, STEADY, VICTIM, WORLD, direct, failure, taken, told, worlds};

/// Of a part.
const ROWS: usize = 13;
const INNER: usize = 20;
const COLUMNS: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Gather,
    Scatter,
    Reduce,
}

const KINDS: [Kind; 3] = [Kind::Gather, Kind::Scatter, Kind::Reduce];
const WAYS: [Way; 2] = [Way::Sequence, Way::Pipeline];

/// Every kind part by part, and in sequence one kind, or every kind in a full run: other tests cover their collectives.
fn cases() -> impl Iterator<Item = (Kind, Way)> {
    let all = KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way)));
    all.filter(|(kind, way)| full() || *way == Way::Pipeline || *kind == Kind::Scatter)
}

/// The operation in which a rank waits first.
fn operation((kind, way): (Kind, Way)) -> Operation {
    match (kind, way) {
        (Kind::Gather, _) => Operation::AllGather,
        (Kind::Reduce, Way::Sequence) => Operation::AllReduce,
        // An all-reduce part by part begins with a reduce-scatter.
        (Kind::Scatter | Kind::Reduce, _) => Operation::ReduceScatter,
    }
}

enum Plan {
    Gather(AllGatherMatmul),
    Scatter(MatmulReduceScatter),
    Reduce(MatmulAllReduce),
}

/// A plan and its operands. All but the weight are symmetric, so that peers reach them.
struct Layer {
    plan: Plan,
    /// A shard or a left factor, the gathered factor, and a result.
    operands: [SymmetricBuffer<f32>; 3],
    weight: DeviceBuffer<f32>,
}

/// Small integers: sums of their products are exact.
fn values(seed: u64, rank: usize, elems: usize) -> Vec<f32> {
    (0..elems).map(|index| (mix(seed ^ mix((rank << 32 | index) as u64)) % 9) as f32 - 4.0).collect()
}

fn product(left: &[f32], right: &[f32]) -> Vec<f32> {
    let rows = left.chunks_exact(INNER);
    let dot = |row: &[f32], column: &[f32]| row.iter().zip(column).map(|(left, right)| left * right).sum();
    rows.flat_map(|row| right.chunks_exact(INNER).map(move |column| dot(row, column))).collect()
}

impl Layer {
    /// Collective.
    fn new((kind, way): (Kind, Way), communicator: &Communicator) -> Result<Self> {
        let (world, product) = (communicator.world_size(), Product::new(INNER, COLUMNS, Numeric::F32));
        let mut options = FusedOptions::default();
        options.way = way;
        let (rows, shape) = (world * ROWS, [world * ROWS, INNER]);
        let (plan, [left, gathered, result]) = match kind {
            Kind::Gather => {
                let plan = communicator.plan_all_gather_matmul(&[ROWS, INNER], 0, &[product], options)?;
                (Plan::Gather(plan), [ROWS * INNER, rows * INNER, rows * COLUMNS])
            }
            Kind::Scatter => {
                let plan = communicator.plan_matmul_reduce_scatter(&shape, 0, product, options)?;
                (Plan::Scatter(plan), [rows * INNER, 1, ROWS * COLUMNS])
            }
            Kind::Reduce => {
                let plan = communicator.plan_matmul_all_reduce(&shape, product, options)?;
                (Plan::Reduce(plan), [rows * INNER, 1, rows * COLUMNS])
            }
        };
        let operands =
            [communicator.symmetric(left)?, communicator.symmetric(gathered)?, communicator.symmetric(result)?];
        Ok(Self { plan, operands, weight: DeviceBuffer::new(communicator.device(), INNER * COLUMNS)? })
    }

    fn call<'op>(&'op self, queue: impl Queue<'op>) -> Result<()> {
        let [left, gathered, result] = self.operands.each_ref().map(Tensor::of);
        let weight = Tensor::of(&self.weight);
        match &self.plan {
            Plan::Gather(plan) => plan.enqueue(left, Some(gathered), [(weight, result)], queue),
            Plan::Scatter(plan) => plan.enqueue(left, weight, result, queue),
            Plan::Reduce(plan) => plan.enqueue(left, weight, result, queue),
        }
    }

    /// Calls on fresh data in a group that works, and compares.
    fn check(&self, seed: u64, communicator: &Communicator, stream: &Stream) {
        let (own, world) = (communicator.rank(), communicator.world_size());
        let left = |rank: usize| values(seed, rank, self.operands[0].len());
        let weight = |rank: usize| values(!seed, rank, INNER * COLUMNS);
        self.operands[0].write(&left(own), stream).unwrap();
        self.weight.write(&weight(own), stream).unwrap();
        communicator.group().barrier().unwrap();
        self.call(stream).unwrap();
        communicator.synchronize(stream).unwrap();
        let result = self.operands[2].read(stream).unwrap();
        if let Plan::Gather(_) = self.plan {
            let gathered: Vec<f32> = (0..world).flat_map(left).collect();
            assert_eq!(self.operands[1].read(stream).unwrap(), gathered, "rank {own}");
            assert_eq!(result, product(&gathered, &weight(own)), "rank {own}");
        } else {
            let partials: Vec<Vec<f32>> = (0..world).map(|rank| product(&left(rank), &weight(rank))).collect();
            let sum: Vec<f32> =
                (0..partials[0].len()).map(|index| partials.iter().map(|partial| partial[index]).sum()).collect();
            let start = if let Plan::Scatter(_) = self.plan { own * result.len() } else { 0 };
            assert_eq!(result, sum[start..start + result.len()], "rank {own}");
        }
        communicator.group().barrier().unwrap();
    }

    /// Uses all memory for something else.
    fn reuse(&self, value: f32, stream: &Stream) {
        self.operands.iter().for_each(|buffer| buffer.write(&vec![value; buffer.len()], stream).unwrap());
    }

    /// Whether the first operands are.
    fn are_untouched(&self, operands: usize, value: f32, stream: &Stream) {
        for (which, buffer) in self.operands.iter().take(operands).enumerate() {
            let read = buffer.borrow().read(stream).unwrap();
            assert!(read.iter().all(|element| *element == value), "operand {which} was written");
        }
    }
}

/// A plan of the same kind and way works in a new group.
fn works_again(case: (Kind, Way), seed: u64, bootstrap: impl Bootstrap, failed: &Rank) {
    let communicator = Communicator::open(bootstrap, &failed.device, config()).unwrap();
    let layer = Layer::new(case, &communicator).unwrap();
    layer.check(seed, &communicator, &failed.stream);
    drop(layer);
    communicator.close().unwrap();
}

/// Whether a rank gave up on the victim in time.
fn gave_up(case: (Kind, Way), error: &Error, took: Duration) {
    let Error::Timeout { operation: named, rank: Some(VICTIM), waited, .. } = error else {
        panic!("{case:?}: {error}")
    };
    assert_eq!((*named, *waited), (operation(case), STEADY), "{case:?}: {error}");
    assert!(took >= STEADY / 2 && took < STEADY + Duration::from_secs(20), "{case:?}: {took:?}");
}

/// The stream of one rank is held up until the others have given up and use their memory for something else.
#[test]
fn pitfall_02_26_a_plan_with_a_late_rank_names_it_and_nothing_is_written() {
    for case in cases().filter(|_| fits(WORLD)) {
        let (gate, others, again) = (Gate::new(WORLD), worlds(WORLD), worlds(WORLD - 1));
        meet(WORLD, |bootstrap| {
            let own = bootstrap.rank();
            let holding = open(taken(&others, own), &config()).unwrap();
            let pads = holding.communicator.symmetric::<u8>(1).unwrap();
            let rank = open_on(&holding.device, bootstrap, &direct(STEADY)).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let layer = Layer::new(case, communicator).unwrap();
            layer.check(2, communicator, stream);
            if own == VICTIM {
                pads.signals().wait(0, 0, stream).unwrap();
                // Before the others call: a call after they have given up is refused.
                layer.call(stream).unwrap();
            }
            // Before any of the others waits.
            let start = Instant::now();
            gate.pass();
            if own != VICTIM {
                let error = told(layer.call(stream), &rank, LIMIT / 4);
                gave_up(case, &error, start.elapsed());
                assert_eq!(layer.call(stream), Err(error), "{case:?}: rank {own}");
                layer.reuse(77.0, stream);
            }
            gate.pass();
            if own == 0 {
                pads.signals().put(VICTIM, 0, &holding.stream).unwrap();
            }
            if own == VICTIM {
                let error = failure(&rank, LIMIT / 4);
                assert!(matches!(error, Error::Aborted { .. }), "{case:?}: {error}");
            }
            gate.pass();
            if own != VICTIM {
                layer.are_untouched(3, 77.0, stream);
                works_again(case, 3, taken(&again, own / 2), &rank);
            }
            holding.communicator.synchronize(&holding.stream).unwrap();
            gate.pass();
        });
    }
}

/// One rank leaves a launch of a graph with the plan out.
#[test]
fn pitfall_04_a_rank_that_leaves_a_plan_out_is_named() {
    // Each kind once in each schedule.
    let cases = [(Kind::Gather, Way::Pipeline), (Kind::Scatter, Way::Sequence), (Kind::Reduce, Way::Pipeline)];
    for case in cases.into_iter().filter(|_| fits(WORLD)) {
        let gate = Gate::new(WORLD);
        meet(WORLD, |bootstrap| {
            let rank = open(bootstrap, &direct(STEADY)).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let layer = Layer::new(case, communicator).unwrap();
            layer.check(4, communicator, stream);
            let graph = stream.capture(|capture| layer.call(capture)).unwrap();
            graph.register().unwrap();
            graph.launch(stream).unwrap();
            rank.finish();
            // Before any of the others waits.
            let start = Instant::now();
            gate.pass();
            let launched = if rank.rank() == VICTIM { Ok(()) } else { graph.launch(stream) };
            match told(launched, &rank, LIMIT / 4) {
                Error::Aborted { .. } if rank.rank() == VICTIM => {}
                error => {
                    gave_up(case, &error, start.elapsed());
                    assert_eq!(graph.launch(stream), Err(error), "{case:?}");
                }
            }
            gate.pass();
            drop(graph);
        });
    }
}

/// A thread of a rank that waits in a plan aborts.
#[test]
fn pitfall_03_an_abort_from_a_thread_ends_a_plan() {
    for case in cases().filter(|_| fits(WORLD)) {
        let (gate, again) = (Gate::new(WORLD), worlds(WORLD));
        meet(WORLD, |bootstrap| {
            let own = bootstrap.rank();
            let rank = open(bootstrap, &direct(LIMIT)).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let layer = Layer::new(case, communicator).unwrap();
            layer.check(5, communicator, stream);
            if own != VICTIM {
                layer.call(stream).unwrap();
            }
            gate.pass();
            std::thread::scope(|scope| {
                if own == 0 {
                    scope.spawn(|| communicator.abort());
                }
                let error = failure(&rank, Duration::from_secs(5));
                assert_eq!(error, Error::Aborted { detail: ": by rank 0".to_owned() }, "{case:?}");
                assert_eq!(layer.call(stream), Err(error), "{case:?}");
            });
            works_again(case, 6, taken(&again, own), &rank);
            gate.pass();
        });
    }
}

/// Calls plans of every kind until one fails; some calls are enqueued before the device has finished earlier ones.
fn until_error(layers: &[Layer], child: &Child, rank: &Rank) -> Error {
    let Rank { communicator, stream, .. } = rank;
    layers.iter().for_each(|layer| layer.check(7, communicator, stream));
    child.say("ready");
    for (number, layer) in layers.iter().cycle().enumerate() {
        let result = layer.call(stream).and_then(|()| match number % 7 {
            0 => communicator.synchronize(stream),
            _ => Ok(()),
        });
        if let Err(error) = result {
            return error;
        }
    }
    unreachable!()
}

fn layers(way: Way, communicator: &Communicator) -> Vec<Layer> {
    KINDS.iter().map(|kind| Layer::new((*kind, way), communicator).unwrap()).collect()
}

/// A rank of a test with a killed rank.
fn mortal(way: Way, child: &Child) {
    // Death is noticed, not waited for.
    let rank = child.open(&direct(Duration::from_secs(60)));
    let layers = layers(way, &rank.communicator);
    let error = until_error(&layers, child, &rank);
    child.say(&error.to_string());
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error:?}");
    layers.iter().for_each(|layer| assert_eq!(layer.call(&rank.stream), Err(error.clone())));
    drop(layers);
    child.hear();
    let again = |kind| {
        let name = format!("again {kind:?}");
        works_again((kind, way), 8, child.meet(&name, child.rank / 2, WORLD - 1).unwrap(), &rank);
    };
    KINDS.into_iter().for_each(again);
    child.say("planned");
}

/// One rank is killed during plans; the others learn of the death and go on together. Returns the time of the slowest rank.
fn killed(test: &str, delay: Duration) -> Duration {
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    let survivors = [0, 2];
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(delay);
    let death = Instant::now();
    ranks.signal(VICTIM, Signal::KILL);
    let took = survivors.map(|rank| {
        let Said { words, at } = ranks.hear(rank);
        assert!(words.starts_with(&format!("rank {VICTIM} is gone")), "{words}");
        at.duration_since(death)
    });
    ranks.tell(&survivors, "again");
    ranks.expect(&survivors, "planned");
    ranks.finish(&survivors);
    took.into_iter().max().unwrap()
}

fn killed_in_time(test: &str, delay_ms: u64) {
    within_a_second(test, || killed(test, Duration::from_millis(delay_ms)));
}

/// A rank of a test with a stopped rank.
fn sleeper(way: Way, child: &Child) {
    // Long enough for calls without end on a busy machine.
    let rank = child.open(&direct(Duration::from_secs(3)));
    let Rank { communicator, stream, .. } = &rank;
    let layers = layers(way, communicator);
    let error = until_error(&layers, child, &rank);
    if child.rank != VICTIM {
        layers.iter().for_each(|layer| layer.reuse(78.0, stream));
    }
    child.say(&error.to_string());
    child.hear();
    if child.rank != VICTIM {
        // A rank that was stopped while it wrote into outputs of peers goes on with that.
        layers.iter().for_each(|layer| layer.are_untouched(1, 78.0, stream));
    }
    drop(layers);
    for kind in KINDS {
        let bootstrap = child.meet(&format!("again {kind:?}"), child.rank, WORLD).unwrap();
        works_again((kind, way), 9, bootstrap, &rank);
    }
    child.say("planned");
}

/// One rank is stopped during plans, past the deadline. When it goes on, it writes into nothing that was no output.
fn stopped(test: &str, way: Way) {
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(Duration::from_millis(40));
    ranks.signal(VICTIM, Signal::STOP);
    ranks.wait_stopped(VICTIM);
    for rank in [0, 2] {
        let Said { words, .. } = ranks.hear(rank);
        assert!(words.contains("timed out") && words.contains("waiting for rank 1"), "{words}");
        let operations = KINDS.map(|kind| operation((kind, way)).to_string());
        // An all-reduce part by part ends with an all-gather.
        assert!(operations.iter().any(|operation| words.contains(operation)), "{words}");
    }
    ranks.signal(VICTIM, Signal::CONT);
    let Said { words, .. } = ranks.hear(VICTIM);
    assert!(words.starts_with("the group was aborted"), "{words}");
    ranks.tell(&[0, 1, 2], "look");
    ranks.expect(&[0, 1, 2], "planned");
    ranks.finish(&[0, 1, 2]);
}

macro_rules! by_processes {
    ($($name:ident: $way:expr, $child:ident, $parent:expr;)*) => {$(
        #[test]
        fn $name() {
            let parent: fn(&str) = $parent;
            match this() {
                Some(child) => bounded(LIMIT, || $child($way, &child)),
                None if fits(WORLD) => parent(concat!("plans::", stringify!($name))),
                None => {}
            }
        }
    )*};
}

by_processes! {
    pitfall_01_killed_during_plans_in_sequence: Way::Sequence, mortal, |test| killed_in_time(test, 25);
    pitfall_01_killed_during_plans_part_by_part: Way::Pipeline, mortal, |test| killed_in_time(test, 40);
    pitfall_02_a_rank_is_stopped_during_plans_in_sequence: Way::Sequence, sleeper, |test| stopped(test, Way::Sequence);
    pitfall_02_a_rank_is_stopped_during_plans_part_by_part: Way::Pipeline, sleeper, |test| stopped(test, Way::Pipeline);
}
