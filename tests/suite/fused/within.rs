//! Work of the caller within a call: calls on the same communicator are refused, and nothing waits for itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use symmetra::bootstrap::Bootstrap;
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::experts::{Method, Received};
use symmetra::fused::{FusedOptions, Way};
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::mixed::{Mixed, MixedConfig, MixedOptions};
use symmetra::{Communicator, DeviceBuffer, Error, Queue, Result, Stream};

use super::beside::Layer;
use crate::expert_errors::{Operands, small};
use crate::support::device::device;
use crate::support::world::{meet, open};
use crate::support::{Rank, config, fits, threads};

const COUNT: usize = 64;

/// Memory for calls that run the caller's work.
struct Parts {
    input: DeviceBuffer<i32>,
    output: DeviceBuffer<i32>,
}

impl Parts {
    fn new(communicator: &Communicator, stream: &Stream) -> Self {
        let elems = COUNT * communicator.world_size();
        communicator.reserve_workspace(elems * size_of::<i32>()).unwrap();
        let values: Vec<i32> = (0..elems).map(|at| (100 * communicator.rank() + at / COUNT) as i32).collect();
        let input = DeviceBuffer::from_slice(&values, stream).unwrap();
        Self { input, output: DeviceBuffer::new(communicator.device(), elems).unwrap() }
    }

    fn gather<'op>(
        &'op self,
        communicator: &Communicator,
        queue: impl Queue<'op>,
        consume: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        communicator.all_gather_and_consume(self.input.borrow().slice(..COUNT)?, &self.output, queue, consume)
    }

    fn scatter(
        &self,
        communicator: &Communicator,
        stream: &Stream,
        produce: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        communicator.produce_and_all_to_all(&self.input, &self.output, stream, produce)
    }

    /// Runs `work` in the first part of a call with a consumer, then of a call with a producer; both calls have the
    /// right result.
    fn around(&self, communicator: &Communicator, stream: &Stream, work: &dyn Fn()) {
        let first = |number: &AtomicUsize| {
            if number.fetch_add(1, Ordering::Relaxed) == 0 {
                work();
            }
            Ok(())
        };
        let (world, rank) = (communicator.world_size(), communicator.rank());
        let (gathered, scattered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        self.gather(communicator, stream, |_| first(&gathered)).unwrap();
        let all: Vec<i32> = (0..world * COUNT).map(|at| 100 * (at / COUNT) as i32).collect();
        assert_eq!(self.output.read(stream).unwrap(), all);
        self.scatter(communicator, stream, |_| first(&scattered)).unwrap();
        let all: Vec<i32> = all.iter().map(|value| value + rank as i32).collect();
        assert_eq!(self.output.read(stream).unwrap(), all);
        assert_eq!([gathered, scattered].map(AtomicUsize::into_inner), [world; 2]);
    }
}

/// Whether a call was refused because it is within another, with its name.
fn refused<T>(what: &str, called: Result<T>) {
    let error = called.err().unwrap();
    let words = format!("{what} within another call of the same communicator is not supported: a callback");
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().starts_with(&words), "{error}");
}

#[test]
fn calls_within_a_call_are_refused() {
    for world in [1, 2, 3].into_iter().filter(|world| fits(*world)) {
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, device, .. } = rank;
            let parts = Parts::new(communicator, stream);
            let [one, all] = [COUNT, COUNT * world].map(|elems| communicator.symmetric::<i32>(elems).unwrap());
            let bound = communicator.bind_all_reduce(&one, &one).unwrap();
            let graph = stream.capture(|capture| communicator.all_reduce_in_place(&one, capture)).unwrap();
            let sequence = Layer::new(communicator, Way::Sequence, 2, stream).unwrap();
            let pipeline = (world > 1).then(|| Layer::new(communicator, Way::Pipeline, 2, stream).unwrap());
            let other = communicator.split(Some(0), rank.rank() as i32).unwrap().unwrap();
            let elsewhere = other.symmetric::<i32>(1).unwrap();
            elsewhere.write(&[1], stream).unwrap();
            let experts = communicator.experts(small(Method::Auto)).unwrap();
            let operands = Operands::new(rank, &experts, &[0, 1, 2, 3]);
            let pending = parking_lot::Mutex::new(Vec::new());
            let leave_pending =
                || pending.lock().push(communicator.low_contention_all_gather(&one, &all, stream).unwrap());
            leave_pending();
            leave_pending();
            parts.around(communicator, stream, &|| {
                refused("all-reduce", communicator.all_reduce_in_place(&one, stream));
                refused("a bound all-reduce", bound.enqueue(stream));
                refused("all-gather", communicator.all_gather(&one, &all, stream));
                refused("all-gather", communicator.low_contention_all_gather(&one, &all, stream));
                refused("all-gather", parts.gather(communicator, stream, |_| Ok(())));
                refused("all-to-all", parts.scatter(communicator, stream, |_| Ok(())));
                refused("a launch of a graph", graph.launch(stream));
                refused(
                    "all-reduce",
                    Stream::new(device)
                        .unwrap()
                        .capture(|capture| communicator.all_reduce_in_place(&one, capture))
                        .map(drop),
                );
                for layer in [Some(&sequence), pipeline.as_ref()].into_iter().flatten() {
                    refused("a plan of all-gather + matmul", layer.gather(stream));
                    refused("a plan of matmul + reduce-scatter", layer.scatter(stream));
                    refused("a plan of matmul + all-reduce", layer.reduce(stream));
                }
                let into = Received::rows(&operands.received);
                refused("dispatch", experts.dispatch(&operands.routing(), &operands.rows, &into, stream).map(drop));
                refused("a workspace", communicator.reserve_workspace(1));
                refused("leaving a stream", communicator.leave(stream));
                refused("closing", communicator.clone().close());
                refused("departing", communicator.clone().depart());
                // Calls that need no turn go on, and so does another communicator.
                communicator.heap(stream).unwrap();
                one.signals().barrier(0, stream).unwrap();
                pending.lock().pop();
                other.all_reduce_in_place(&elsewhere, stream).unwrap();
            });
            rank.finish();
            assert_eq!(elsewhere.read(stream).unwrap(), [(world * world) as i32]);
            // The refused calls had no effect.
            communicator.all_reduce_in_place(&one, stream).unwrap();
            graph.launch(stream).unwrap();
            operands.round(rank, &experts).unwrap();
            assert_eq!(operands.output.read(stream).unwrap(), operands.expected(rank));
            rank.finish();
            drop((elsewhere, experts));
            other.close().unwrap();
        });
    }
}

/// A capture contains the call, but not the calls of the work.
#[test]
fn calls_within_a_captured_call_are_refused() {
    if !fits(2) {
        return;
    }
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let parts = Parts::new(communicator, stream);
        let one = communicator.symmetric::<i32>(COUNT).unwrap();
        one.write(&[1; COUNT], stream).unwrap();
        let layer = Layer::new(communicator, Way::Pipeline, 2, stream).unwrap();
        let graph = stream.capture(|capture| {
            parts.gather(communicator, capture, |_| {
                refused("all-reduce", communicator.all_reduce_in_place(&one, capture));
                refused("a plan of all-gather + matmul", layer.gather(capture));
                Ok(())
            })
        });
        let graph = graph.unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let all: Vec<i32> = (0..2 * COUNT).map(|at| 100 * (at / COUNT) as i32).collect();
        assert_eq!(parts.output.read(stream).unwrap(), all);
        assert_eq!(one.read(stream).unwrap(), [1; COUNT]);
    });
}

/// Calls of a group and of a grid, within a call of the communicator that serves both.
#[test]
fn calls_of_a_coordinator_are_refused_within_its_communicator() {
    if !fits(2) {
        return;
    }
    meet(2, |bootstrap| {
        let rank = bootstrap.rank();
        let mut settings = GroupConfig::default();
        settings.communicator = config();
        settings.interface = Some("127.0.0.1".to_owned());
        let group = Coordinator::open(bootstrap, &device(rank), settings).unwrap();
        let mut grid = MixedConfig::default();
        grid.most_bytes = 16 << 10;
        let grid = Mixed::open(&group, &grid).unwrap();
        let (communicator, stream) = (group.communicator().unwrap(), Stream::new(group.device()).unwrap());
        let parts = Parts::new(communicator, &stream);
        let buffer = communicator.symmetric::<i32>(COUNT).unwrap();
        let product = Product::new(4, 4, Numeric::F32);
        let plan = group.plan_matmul_all_reduce(&[4, 4], product, FusedOptions::default()).unwrap();
        let memory = [0; 3].map(|_| DeviceBuffer::<f32>::new(group.device(), 16).unwrap());
        let multiply = || {
            let [left, right, result] = memory.each_ref().map(Tensor::of);
            plan.enqueue(left, right, result, &stream)
        };
        parts.around(communicator, &stream, &|| {
            refused("all-reduce", group.all_reduce_in_place(&buffer, &stream));
            refused("a plan of matmul + all-reduce", multiply());
            refused("all-reduce", grid.all_reduce(&buffer, &buffer, MixedOptions::default(), &stream));
            refused("leaving a stream", group.leave(&stream));
            refused("closing", group.clone().close());
        });
        multiply().unwrap();
        group.all_reduce_in_place(&buffer, &stream).unwrap();
        group.synchronize(&stream).unwrap();
        drop((buffer, plan, parts));
        grid.close().unwrap();
        group.close().unwrap();
    });
}

/// Other threads wait, also a thread that holds a plan which the work needs.
#[test]
fn calls_of_other_threads_wait_for_the_work() {
    if !fits(2) {
        return;
    }
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let parts = Parts::new(communicator, stream);
        let layer = Layer::new(communicator, Way::Sequence, 2, stream).unwrap();
        let beside = Stream::new(device).unwrap();
        std::thread::scope(|scope| {
            let waiting = parking_lot::Mutex::new(None);
            parts
                .gather(communicator, stream, |source| {
                    if source == rank.rank() {
                        let thread = scope.spawn(|| layer.gather(&beside));
                        std::thread::sleep(Duration::from_millis(50));
                        refused("a plan of all-gather + matmul", layer.gather(stream));
                        assert!(!thread.is_finished());
                        *waiting.lock() = Some(thread);
                    }
                    Ok(())
                })
                .unwrap();
            waiting.into_inner().unwrap().join().unwrap().unwrap();
        });
        communicator.synchronize(&beside).unwrap();
        rank.finish();
    });
}

/// A refusal that a producer returns ends the group, as every error of a producer does. Work that panics leaves the
/// communicator usable.
#[test]
fn the_turn_ends_with_the_work() {
    if !fits(1) {
        return;
    }
    meet(1, |bootstrap| {
        let rank = open(bootstrap, &config()).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let parts = Parts::new(communicator, stream);
        let buffer = communicator.symmetric::<i32>(COUNT).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = parts.gather(communicator, stream, |_| panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        parts.around(communicator, stream, &|| ());
        let again = |_| communicator.all_reduce_in_place(&buffer, stream);
        refused("all-reduce", parts.gather(communicator, stream, again));
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        refused("all-reduce", parts.scatter(communicator, stream, again));
        refused("all-reduce", communicator.all_reduce_in_place(&buffer, stream));
        refused("all-reduce", communicator.clone().close());
    });
}
