//! Bound all-reduces: they have the results of ordinary calls in every situation; they allocate nothing; they fail as
//! calls do.

use std::sync::Arc;

use half::bf16;
use reference::element::Summand;
use symmetra::bootstrap::Threads;
use symmetra::{
    Algorithm, AllReduceOptions, BoundAllReduce, Communicator, Config, Device, DeviceBuffer, Error, Graph, Operand,
    Reduction, Stream,
};

use crate::allocations::allocations;
use crate::support::data::{Random, assert_same};
use crate::support::refusal::refused;
use crate::support::world::{meet, open};
use crate::support::{Data, Rank, Sample, config, is_host, threads};

/// Calls come in several parts soon.
fn small(world: usize) -> Config {
    let mut config = config();
    config.one_shot_ll_bytes = 1100;
    config.one_shot_sentinel_bytes = Some(1500);
    config.two_shot_ll_bytes = 2200;
    config.two_shot_sentinel_bytes = 5000;
    config.ring_bytes = 8192;
    config.recursive_doubling_bytes = 1100;
    config.check_calls = world.is_multiple_of(2);
    config
}

const COUNTS: [usize; 8] = [0, 1, 3, 130, 1000, 1255, 3001, 12_345];

/// Every algorithm and count, on symmetric, adopted and plain memory, eager and captured. Half of the ranks make
/// ordinary calls, and the others make bound calls.
fn every_way<T: Sample>(world: usize) {
    let most = COUNTS[COUNTS.len() - 1];
    let data = Data::<T>::new(world as u64, world, most);
    threads(world, &small(world), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let input = communicator.symmetric::<T>(most).unwrap();
        let output = communicator.symmetric::<T>(most).unwrap();
        let plain = [0, 1].map(|_| DeviceBuffer::<T>::new(&rank.device, most).unwrap());
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = [0, 1].map(|item: usize| unsafe { communicator.adopt(plain[item].borrow()) }.unwrap());
        let mine = &data.inputs[rank.rank()];
        input.write(mine, stream).unwrap();
        plain[0].write(mine, stream).unwrap();
        let zeros = vec![T::sample(0); most];
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(T::DTYPE)) {
            for (case, count) in COUNTS.into_iter().enumerate() {
                let case = Case { rank, algorithm, number: case };
                output.write(&zeros, stream).unwrap();
                case.run(true, || [&input, &output].map(|buffer| buffer.slice(0..count).unwrap()));
                let expected = data.expected(algorithm, Reduction::Sum, 0, count);
                assert_same(&output.read(stream).unwrap()[..count], &expected, &"symmetric");
                assert_same(&output.read(stream).unwrap()[count..], &zeros[count..], &"behind it");
                if algorithm.needs_reach() {
                    continue;
                }
                plain[1].write(&zeros, stream).unwrap();
                case.run(false, || [0, 1].map(|item: usize| plain[item].borrow().slice(0..count).unwrap()));
                assert_same(&plain[1].read(stream).unwrap()[..count], &expected, &"plain");
            }
            plain[1].write(&zeros, stream).unwrap();
            let [from, to] = &adopted;
            communicator.bind_all_reduce_with(algorithm, from, to).unwrap().enqueue(stream).unwrap();
            rank.finish();
            let expected = data.expected(algorithm, Reduction::Sum, 0, most);
            assert_same(&plain[1].read(stream).unwrap(), &expected, &"adopted");
        }
    });
}

struct Case<'a> {
    rank: &'a Rank,
    algorithm: Algorithm,
    number: usize,
}

impl Case<'_> {
    /// Twice on a stream or from a graph, on input and output as `operands` makes them.
    fn run<'op, T: Sample, O: Operand<'op, T>>(&self, direct: bool, operands: impl Fn() -> [O; 2])
    where
        Self: 'op,
    {
        let Rank { communicator, stream, .. } = self.rank;
        let [input, output] = operands();
        let bound = communicator.bind_all_reduce_with(self.algorithm, input, output).unwrap();
        let call = |queue: &Stream| {
            let [input, output] = operands();
            communicator.all_reduce_with(self.algorithm, input, output, queue)
        };
        let ordinary = self.rank.rank() % 2 == self.number % 2;
        let graph = stream.capture(|capture| match ordinary && direct {
            true => {
                let [input, output] = operands();
                communicator.all_reduce_with(self.algorithm, input, output, capture)
            }
            false => bound.enqueue(capture),
        });
        let graph = graph.unwrap();
        for launch in 0..2 {
            match self.number % 3 == launch {
                true => graph.launch(stream).unwrap(),
                false if ordinary => call(stream).unwrap(),
                false => bound.enqueue(stream).unwrap(),
            }
        }
        self.rank.finish();
    }
}

#[test]
fn bound_is_ordinary_of_two_and_three_ranks() {
    every_way::<f32>(2);
    every_way::<bf16>(3);
    every_way::<i64>(3);
}

#[test]
fn bound_is_ordinary_of_five_and_eight_ranks() {
    every_way::<bf16>(5);
    every_way::<u8>(8);
}

#[test]
fn one_rank_copies() {
    threads(1, &small(1), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let input = DeviceBuffer::from_slice(&[1.5f32, 2.5], stream).unwrap();
        let output = communicator.symmetric::<f32>(2).unwrap();
        let bound = communicator.bind_all_reduce(&input, &output).unwrap();
        bound.enqueue(stream).unwrap();
        rank.finish();
        assert_eq!(output.read(stream).unwrap(), [1.5, 2.5]);
    });
}

#[test]
fn bound_calls_keep_their_order_among_others_and_over_streams() {
    const SPAN: usize = 700;
    let world = 3;
    let data = Data::<i32>::new(17, world, SPAN);
    threads(world, &small(world), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let other = Stream::new(&rank.device).unwrap();
        let buffer = communicator.symmetric::<i32>(SPAN).unwrap();
        let plain = DeviceBuffer::<i32>::new(&rank.device, SPAN).unwrap();
        let reductions = [Reduction::Max, Reduction::Sum, Reduction::Min];
        let bind = |options: AllReduceOptions, len: usize| -> BoundAllReduce<'_> {
            let part = buffer.slice(0..len).unwrap();
            communicator.bind_all_reduce_with(options, part, part).unwrap()
        };
        let bounds: Vec<_> = Algorithm::ALL
            .into_iter()
            .filter(|algorithm| algorithm.carries(symmetra::Dtype::I32))
            .flat_map(|algorithm| {
                reductions.map(|reduction| AllReduceOptions::default().reduction(reduction).algorithm(algorithm))
            })
            .enumerate()
            .map(|(number, options)| (options, 1 + 53 * number % SPAN))
            .map(|(options, len)| (options.reduction, len, bind(options, len)))
            .collect();
        let aside = communicator.bind_all_reduce(&plain, &plain).unwrap();
        let graph = stream.capture(|capture| aside.enqueue(capture)).unwrap();
        let mut random = Random(17);
        for _ in 0..20 {
            buffer.write(&data.inputs[rank.rank()], stream).unwrap();
            communicator.group().barrier().unwrap();
            let mut model = data.inputs.clone();
            for _ in 0..20 {
                let on = if random.below(2) == 0 { stream } else { &other };
                let (reduction, len, bound) = &bounds[random.below(bounds.len())];
                match random.below(4) {
                    0 => graph.launch(on).unwrap(),
                    1 => communicator.all_reduce(&plain, &plain, on).unwrap(),
                    _ => {
                        bound.enqueue(on).unwrap();
                        for index in 0..*len {
                            let result = i32::reduce(*reduction, model.iter().map(|values| values[index]));
                            model.iter_mut().for_each(|values| values[index] = result);
                        }
                    }
                }
            }
            communicator.synchronize(&other).unwrap();
            rank.finish();
            assert_same(&buffer.read(stream).unwrap(), &model[rank.rank()], &"after twenty calls");
        }
    });
}

#[test]
fn pitfall_19_bound_calls_allocate_nothing() {
    let mut config = small(2);
    for check_calls in [false, true] {
        config.check_calls = check_calls;
        threads(2, &config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let buffer = communicator.symmetric::<bf16>(4000).unwrap();
            let one =
                communicator.bind_all_reduce(buffer.slice(0..64).unwrap(), buffer.slice(64..128).unwrap()).unwrap();
            let several = communicator.bind_all_reduce_with(Algorithm::OneShotLL, &buffer, &buffer).unwrap();
            let other = Stream::new(&rank.device).unwrap();
            // Spans stay enabled after a subscriber of one thread has ended.
            tracing::subscriber::with_default(tracing_subscriber::registry(), || one.enqueue(stream)).unwrap();
            let before = allocations();
            for call in 0..200 {
                one.enqueue(stream).unwrap();
                several.enqueue(stream).unwrap();
                if call % 50 == 0 {
                    one.enqueue(&other).unwrap();
                }
                if call % 10 == 0 {
                    rank.finish();
                }
            }
            assert_eq!(allocations() - before, 0);
            drop(std::hint::black_box(Box::new(1)));
            assert_eq!(allocations() - before, 1);
            communicator.synchronize(&other).unwrap();
            rank.finish();
        });
    }
}

/// A bound all-reduce, and graphs of it, own the buffers.
#[test]
fn what_owns_its_operands_keeps_them() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let plain = DeviceBuffer::from_slice(&[1; 3000], stream).unwrap();
        let owner = Arc::new((communicator.clone(), communicator.symmetric::<i32>(2000).unwrap(), plain));
        let bound = BoundAllReduce::owning(owner.clone(), |(communicator, sums, plain)| {
            communicator.bind_all_reduce(&plain.borrow().slice(..2000)?, sums)
        });
        let bound: BoundAllReduce<'static> = bound.unwrap();
        let weak = Arc::downgrade(&owner);
        bound.enqueue(stream).unwrap();
        assert_same(&owner.1.read(stream).unwrap(), &[2; 2000], &"eager");
        owner.1.write(&[0; 2000], stream).unwrap();
        let graph: Graph<'static> = stream.capture(|capture| bound.enqueue(capture)).unwrap();
        graph.register().unwrap();
        drop(owner);
        drop(bound);
        graph.launch(stream).unwrap();
        rank.finish();
        assert_same(&weak.upgrade().unwrap().1.read(stream).unwrap(), &[2; 2000], &"captured");
        drop(graph);
        assert!(weak.upgrade().is_none());

        let owner = Arc::new((communicator.clone(), communicator.symmetric::<i32>(2).unwrap()));
        let weak = Arc::downgrade(&owner);
        let owned = BoundAllReduce::owning(owner, |(communicator, both)| {
            communicator.bind_all_reduce(both.slice(..1)?, both.slice(..)?)
        });
        refused(owned, &["the output's length is 2, but the input has 1"]);
        assert!(weak.upgrade().is_none());
    });
}

#[test]
fn what_does_not_fit_is_refused_when_bound() {
    threads(2, &small(2), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i32>(100).unwrap();
        let plain = DeviceBuffer::<i32>::new(&rank.device, 100).unwrap();
        let part = |range| buffer.slice(range).unwrap();
        refused(communicator.bind_all_reduce(part(0..10), part(20..31)), &["the output's length is 11"]);
        refused(communicator.bind_all_reduce(part(0..10), part(5..15)), &["the distance of input and output"]);
        refused(
            communicator.bind_all_reduce_with(Algorithm::TwoShotZeroCopy, &buffer, &plain),
            &["two-shot-zero-copy on plain memory"],
        );
        refused(
            communicator.bind_all_reduce_with(Algorithm::OneShotSentinel, &buffer, &buffer),
            &["floating types only"],
        );
        let averages = AllReduceOptions::default().reduction(Reduction::Average).algorithm(Algorithm::Ring);
        refused(communicator.bind_all_reduce_with(averages, &buffer, &buffer), &["partial sums would wrap"]);

        let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
        let captured = stream.capture(|_| bound.enqueue(stream));
        assert!(matches!(captured, Err(Error::Unsupported { .. })));
        if !is_host() {
            let host = Device::host().unwrap();
            let foreign = DeviceBuffer::<i32>::new(&host, 100).unwrap();
            refused(communicator.bind_all_reduce(&buffer, &foreign), &["the output's device"]);
            let error = bound.enqueue(&Stream::new(&host).unwrap()).unwrap_err();
            assert!(error.to_string().contains("the stream's device"), "{error}");
        }
        // Nothing of this was a call.
        buffer.write(&[1; 100], stream).unwrap();
        communicator.group().barrier().unwrap();
        bound.enqueue(stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), [2; 100]);
    });
}

#[test]
fn failures_of_the_group_come_with_bound_calls() {
    meet(2, |bootstrap: Threads| {
        let rank = open(bootstrap, &small(2)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = communicator.symmetric::<f32>(10).unwrap();
        let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
        bound.enqueue(stream).unwrap();
        rank.finish();
        communicator.group().barrier().unwrap();
        if rank.rank() == 0 {
            communicator.abort();
        }
        crate::support::world::until(std::time::Duration::from_secs(20), "the abort is noticed", || {
            bound.enqueue(stream).is_err()
        });
        assert!(matches!(bound.enqueue(stream), Err(Error::Aborted { .. })));
        assert!(matches!(communicator.bind_all_reduce(&buffer, &buffer), Err(Error::Aborted { .. })));
    });
    meet(2, |bootstrap: Threads| {
        let rank = open(bootstrap, &small(2)).unwrap();
        let buffer = rank.communicator.symmetric::<f32>(10).unwrap();
        let bound = rank.communicator.bind_all_reduce(&buffer, &buffer).unwrap();
        Communicator::close(rank.communicator.clone()).unwrap();
        assert!(matches!(bound.enqueue(&rank.stream), Err(Error::Closed)));
    });
}

#[test]
fn a_bound_call_is_compared_with_those_of_others() {
    meet(2, |bootstrap: Threads| {
        let rank = open(bootstrap, &small(2)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = communicator.symmetric::<f32>(100).unwrap();
        let part = buffer.slice(0..50 + rank.rank()).unwrap();
        let bound = communicator.bind_all_reduce(part, part).unwrap();
        let enqueued = bound.enqueue(stream).and_then(|()| communicator.synchronize(stream));
        assert!(matches!(enqueued, Err(Error::Mismatch { .. })), "{enqueued:?}");
        let error = bound.enqueue(stream).unwrap_err().to_string();
        assert!(error.contains("200 bytes") && error.contains("204 bytes"), "{error}");
    });
}
