//! Captured collectives: many graphs, many replays, mixed with eager calls; captures that fail;
//! pointers registered late; graphs that outlive their communicator or streams.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use half::bf16;
use symmetra::{Algorithm, DeviceBuffer, Error, Graph, Stream, SymmetricBuffer};

use crate::support::data::{Data, Random, assert_same, mix};
use crate::support::extent::{full, repeats};
use crate::support::process::apart;
use crate::support::system::{Usage, assert_device_flat, free_device_bytes, is_mapped};
use crate::support::world::{alone, behind};
use crate::support::{Rank, config, is_host, threads};

/// How often the graph with every kind of node is replayed.
const REPLAYS: &str = "SYMMETRA_TEST_REPLAYS";
/// The output starts where all inputs end.
const SPAN: usize = 512;

/// Fifty graphs of 1 to 512 elements, each with its own part of the buffer.
fn capture_fifty<'env>(
    rank: &Rank,
    buffer: &'env SymmetricBuffer<i32>,
    plain: &'env [DeviceBuffer<i32>; 5],
) -> Vec<Graph<'env>> {
    let communicator = &rank.communicator;
    let capture = |number: usize| {
        let len = fifty(number);
        let start = number * SPAN;
        rank.stream.capture(|capture| {
            communicator.all_reduce(
                buffer.slice(start..start + len)?,
                buffer.slice(50 * SPAN + start..50 * SPAN + start + len)?,
                capture,
            )?;
            match number % 10 {
                0 => communicator.all_reduce_with(
                    Algorithm::TwoShotZeroCopy,
                    &plain[number / 10],
                    &plain[number / 10],
                    capture,
                ),
                _ => Ok(()),
            }
        })
    };
    let graphs: Vec<_> = (0..50).map(|number| capture(number).unwrap()).collect();
    graphs.iter().step_by(10).for_each(|graph| graph.register().unwrap());
    graphs
}

/// Elements of one of the fifty.
fn fifty(number: usize) -> usize {
    1 + number * 511 / 49
}

#[test]
fn pitfall_08_fifty_graphs_replayed_and_recaptured_with_memory_flat() {
    if !apart("graphs::pitfall_08_fifty_graphs_replayed_and_recaptured_with_memory_flat") {
        return;
    }
    let rounds = if full() { 100 } else { 30 };
    let mut config = config();
    config.registrations = 64;
    config.check_calls = false;
    threads(2, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i32>(100 * SPAN).unwrap();
        let plain = [0; 5].map(|_| DeviceBuffer::from_slice(&[0i32; 100], stream).unwrap());
        let eager = DeviceBuffer::from_slice(&[1i32; 33], stream).unwrap();
        let mut random = Random(8);
        let mut before = None;
        for round in 0..rounds {
            let graphs = capture_fifty(rank, &buffer, &plain);
            let mut inputs = vec![0i32; 100 * SPAN];
            let value = |number: usize, rank: usize| (round * 1000 + number * 10 + rank) as i32;
            (0..50 * SPAN).for_each(|index| inputs[index] = value(index / SPAN, rank.rank()));
            buffer.write(&inputs, stream).unwrap();
            let mut launch = || {
                for _ in 0..60 {
                    graphs[random.below(50)].launch(stream).unwrap();
                    if random.below(3) == 0 {
                        communicator.all_reduce_in_place(&eager, stream).unwrap();
                    }
                }
                graphs.iter().for_each(|graph| graph.launch(stream).unwrap());
            };
            match round {
                8 | 9 => behind(rank, round - 8, launch),
                _ => launch(),
            }
            drop(graphs);
            rank.finish();
            let got = buffer.read(stream).unwrap();
            for number in 0..50 {
                let start = (50 + number) * SPAN;
                let sum = value(number, 0) + value(number, 1);
                assert!(got[start..start + fifty(number)].iter().all(|value| *value == sum), "graph {number}");
                assert!(got[start + fifty(number)..start + SPAN].iter().all(|value| *value == 0), "graph {number}");
            }
            if round == 9 {
                before = Some((Usage::of(rank), free_device_bytes(rank)));
            }
        }
        let (usage, free) = before.unwrap();
        if let (Some(before), Some(after)) = (usage, Usage::of(rank)) {
            after.assert_flat(&before);
        }
        assert_device_flat(free, free_device_bytes(rank));
    });
}

/// One graph with every kind of node. Integers reduced in place grow by the world's size with every
/// node, so one node that ran too early, twice or not at all makes the end wrong.
#[test]
fn pitfall_09_mixed_nodes_replayed_with_ranks_out_of_step() {
    const WORLD: usize = 3;
    let replays = repeats(REPLAYS, 400, 2000) as u64;
    let integers = Data::<i64>::new(9, WORLD, 40);
    let floats = Data::<bf16>::new(9, WORLD, 40);
    let mut config = config();
    config.check_calls = false;
    threads(WORLD, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i64>(40).unwrap();
        buffer.write(&integers.inputs[rank.rank()], stream).unwrap();
        let input = DeviceBuffer::from_slice(&floats.inputs[rank.rank()], stream).unwrap();
        let outputs = [0; 2].map(|_| DeviceBuffer::from_slice(&[bf16::ZERO; 40], stream).unwrap());
        let pad = buffer.signals();
        let graph = stream.capture(|capture| {
            communicator.all_reduce_with(Algorithm::OneShotLL, &buffer, &buffer, capture)?;
            communicator.all_reduce_with(Algorithm::OneShotSentinel, &input, &outputs[0], capture)?;
            pad.barrier(1, capture)?;
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &buffer, &buffer, capture)?;
            communicator.all_reduce_with(Algorithm::TwoShotSentinel, &outputs[0], &outputs[1], capture)?;
            communicator.all_reduce_with(Algorithm::TwoShotLL, &buffer, &buffer, capture)
        });
        let graph = graph.unwrap();
        let mut jitter = Random(mix(rank.rank() as u64));
        let free = free_device_bytes(rank);
        for _ in 0..replays {
            graph.launch(stream).unwrap();
            match jitter.below(20) {
                0 => std::thread::sleep(Duration::from_micros(jitter.below(500) as u64)),
                1 => rank.finish(),
                _ => {}
            }
        }
        rank.finish();
        assert_device_flat(free, free_device_bytes(rank));
        let factor = (1..3 * replays).fold(1i64, |product, _| product.wrapping_mul(WORLD as i64));
        let expected: Vec<i64> = integers.sums.iter().map(|sum| sum.wrapping_mul(factor)).collect();
        assert_eq!(buffer.read(stream).unwrap(), expected);
        assert_same(&outputs[0].read(stream).unwrap(), &floats.sums, &"one shot");
        let twice = Data::of(vec![floats.sums.clone(); WORLD]).sums;
        assert_same(&outputs[1].read(stream).unwrap(), &twice, &"two shot of the sums");
    });
}

#[test]
fn pitfall_10_an_error_or_a_panic_in_a_capture_leaves_the_stream_usable() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<f32>(100).unwrap();
        buffer.write(&[1.0; 100], stream).unwrap();
        let refused = stream.capture(|capture| {
            communicator.all_reduce_in_place(&buffer, capture)?;
            communicator.all_reduce(buffer.slice(0..2)?, buffer.slice(10..13)?, capture)
        });
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
        if rank.rank() == 0 {
            // One rank alone: nothing it recorded was ever enqueued, so the others miss nothing.
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                stream.capture(|capture| {
                    communicator.all_reduce_in_place(&buffer, capture)?;
                    std::panic::resume_unwind(Box::new("in the capture"))
                })
            }));
            let Err(payload) = panicked else { panic!("the panic did not come through") };
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"in the capture"));
        }
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), vec![4.0; 100]);
    });
}

#[test]
fn pitfall_10_replay_before_registration_is_an_error() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let input = DeviceBuffer::from_slice(&[rank.rank() as i32 + 1; 7000], stream).unwrap();
        let output = DeviceBuffer::from_slice(&[0i32; 7000], stream).unwrap();
        let graph = stream
            .capture(|capture| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &input, &output, capture))
            .unwrap();
        assert_eq!(graph.launch(stream), Err(Error::NotRegistered { pointers: 2 }));
        rank.finish();
        assert_eq!(output.read(stream).unwrap(), vec![0; 7000]);
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(output.read(stream).unwrap(), vec![6; 7000]);
        graph.register().unwrap(); // does no harm
        graph.launch(stream).unwrap();
        rank.finish();
    });
}

/// Two threads of rank 0 register a graph at once, and rank 1 once.
#[test]
fn a_graph_is_registered_once_by_many_threads() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = DeviceBuffer::from_slice(&[1i32; 7000], stream).unwrap();
        let graph = stream
            .capture(|capture| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &buffer, &buffer, capture))
            .unwrap();
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(200));
            graph.register().unwrap();
        } else {
            std::thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(|| graph.register()));
                threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
            });
        }
        communicator.group().barrier().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), [2; 7000]);
    });
}

#[test]
fn pitfall_10_ranks_that_captured_different_counts_all_learn_it() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffers = [0; 2].map(|_| DeviceBuffer::from_slice(&[1.0f32; 5000], stream).unwrap());
        let captured = if rank.rank() == 1 { 2 } else { 1 };
        let graph = stream.capture(|capture| {
            let each = |buffer| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, buffer, buffer, capture);
            buffers[..captured].iter().try_for_each(each)
        });
        let graph = graph.unwrap();
        let error = graph.register().unwrap_err();
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("2 pointers"), "{error}");
        assert_eq!(graph.launch(stream), Err(Error::NotRegistered { pointers: captured }));
        // The group is as before.
        communicator.all_reduce_in_place(&buffers[0], stream).unwrap();
        rank.finish();
        assert_eq!(buffers[0].read(stream).unwrap(), vec![3.0; 5000]);
    });
}

/// As many pointers and as large, but other pointers where they are used again.
#[test]
fn pitfall_10_ranks_that_captured_other_operands_twice_all_learn_it() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let [a, b, c] = [0; 3].map(|_| DeviceBuffer::from_slice(&[1i32; 5000], stream).unwrap());
        let second = if rank.rank() == 2 { [&c, &b] } else { [&a, &c] };
        let graph = stream.capture(|capture| {
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &a, &b, capture)?;
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, second[0], second[1], capture)
        });
        let graph = graph.unwrap();
        let error = graph.register().unwrap_err();
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 2, .. }), "{error}");
        assert!(error.to_string().contains("pointer 2 as operand 0 of call 1"), "{error}");
        assert_eq!(graph.launch(stream), Err(Error::NotRegistered { pointers: 3 }));
        rank.finish();
    });
}

/// A pointer and symmetric memory, in another order.
#[test]
fn pitfall_10_ranks_that_captured_pointers_at_other_places_all_learn_it() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let symmetric = communicator.symmetric::<i32>(5000).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; 5000], stream).unwrap();
        let graph = stream.capture(|capture| match rank.rank() {
            0 => communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &plain, &symmetric, capture),
            _ => communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &symmetric, &plain, capture),
        });
        let error = graph.unwrap().register().unwrap_err();
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("operand 1 of call 0"), "{error}");
        rank.finish();
    });
}

/// Ranks may differ in how they call with symmetric memory.
#[test]
fn bound_and_ordinary_calls_go_with_captured_pointers() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let symmetric = communicator.symmetric::<i32>(5000).unwrap();
        symmetric.write(&[1; 5000], stream).unwrap();
        let plain = DeviceBuffer::from_slice(&[2i32; 5000], stream).unwrap();
        let zero_copy = Algorithm::TwoShotZeroCopy;
        let bound = communicator.bind_all_reduce_with(zero_copy, &symmetric, &symmetric).unwrap();
        let graph = stream.capture(|capture| {
            match rank.rank() {
                0 => bound.enqueue(capture)?,
                _ => communicator.all_reduce_with(zero_copy, &symmetric, &symmetric, capture)?,
            }
            communicator.all_reduce_with(zero_copy, &plain, &plain, capture)
        });
        let graph = graph.unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(symmetric.read(stream).unwrap(), vec![2; 5000]);
        assert_eq!(plain.read(stream).unwrap(), vec![4; 5000]);
    });
}

/// A ring reads only the input of its own rank.
#[test]
fn a_captured_ring_registers_its_output_alone() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let [input, output] =
            [rank.rank() as i32 + 1, 0].map(|x| DeviceBuffer::from_slice(&[x; 5000], stream).unwrap());
        let graph =
            stream.capture(|capture| communicator.all_reduce_with(Algorithm::Ring, &input, &output, capture)).unwrap();
        assert_eq!(graph.launch(stream), Err(Error::NotRegistered { pointers: 1 }));
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(output.read(stream).unwrap(), vec![3; 5000]);
    });
}

#[test]
fn pitfall_11_every_captured_operation_has_its_own_output() {
    const OPERATIONS: usize = 6;
    let data: Vec<_> = (0..OPERATIONS as u64).map(|seed| Data::<f32>::new(seed, 4, 3000)).collect();
    threads(4, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let inputs: Vec<_> =
            data.iter().map(|data| DeviceBuffer::from_slice(&data.inputs[rank.rank()], stream).unwrap()).collect();
        let outputs: Vec<_> =
            (0..OPERATIONS).map(|_| DeviceBuffer::from_slice(&[0.0f32; 3000], stream).unwrap()).collect();
        let algorithms = [Algorithm::TwoShotZeroCopy, Algorithm::OneShotSentinel, Algorithm::TwoShotZeroCopy];
        let graph = stream.capture(|capture| {
            let operands = inputs.iter().zip(&outputs).zip(algorithms.iter().cycle());
            operands.into_iter().try_for_each(|((input, output), algorithm)| {
                communicator.all_reduce_with(*algorithm, input, output, capture)
            })
        });
        let graph = graph.unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        for (data, output) in data.iter().zip(&outputs) {
            assert_same(&output.read(stream).unwrap(), &data.sums, &"own output");
        }
    });
}

#[test]
fn a_graph_is_of_no_use_after_close() {
    crate::support::world::meet(2, |bootstrap| {
        let Rank { communicator, stream, .. } = crate::support::world::open(bootstrap, &config()).unwrap();
        let buffer = communicator.symmetric::<f32>(10).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        graph.launch(&stream).unwrap();
        let clone = communicator.clone();
        communicator.close().unwrap();
        assert_eq!(graph.launch(&stream), Err(Error::Closed));
        assert_eq!(graph.register(), Err(Error::Closed));
        assert_eq!(clone.all_reduce_in_place(&buffer, &stream), Err(Error::Closed));
        stream.synchronize().unwrap();
    });
}

/// Also where the group has nothing to exchange: a world of one copies, no elements are no work.
#[test]
fn a_graph_without_exchange_is_of_no_use_after_close() {
    for (world, len) in [(1, 10), (2, 0)] {
        crate::support::world::meet(world, |bootstrap| {
            let Rank { communicator, stream, .. } = crate::support::world::open(bootstrap, &config()).unwrap();
            let input = communicator.symmetric::<f32>(len).unwrap();
            let output = communicator.symmetric::<f32>(len).unwrap();
            let graph = stream.capture(|capture| communicator.all_reduce(&input, &output, capture)).unwrap();
            graph.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            communicator.close().unwrap();
            assert_eq!(graph.launch(&stream), Err(Error::Closed));
        });
    }
}

/// The operands and the memory of the graph stay until its last launch is done.
#[test]
fn a_graph_is_dropped_while_launches_are_in_flight() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i64>(4000).unwrap();
        buffer.write(&vec![1; 4000], stream).unwrap();
        for _ in 0..50 {
            let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
            graph.launch(stream).unwrap();
        }
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), vec![1 << 50; 4000]);
    });
}

/// A graph and the buffers it works on, in one place.
struct Owner {
    graph: Graph<'static>,
    sums: Arc<SymmetricBuffer<i64>>,
    plain: Weak<DeviceBuffer<i64>>,
}

fn owner(rank: &Rank) -> Owner {
    let Rank { communicator, stream, .. } = rank;
    let sums = Arc::new(communicator.symmetric::<i64>(4000).unwrap());
    let plain = Arc::new(DeviceBuffer::from_slice(&[1; 4000], stream).unwrap());
    let weak = Arc::downgrade(&plain);
    let graph = stream.capture(|capture| {
        let (plain, sums) = (capture.keep(plain), capture.keep(sums.clone()));
        communicator.all_reduce(plain, sums, capture)?;
        communicator.all_reduce_in_place(sums.slice(1000..4000)?, capture)
    });
    Owner { graph: graph.unwrap(), sums, plain: weak }
}

#[test]
fn a_graph_owns_what_it_keeps() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let owners: Vec<_> = (0..3).map(|_| owner(rank)).collect();
        for owner in owners {
            owner.graph.register().unwrap();
            // On any thread: no borrow ties the graph to this one.
            std::thread::spawn({
                let stream = stream.clone();
                move || {
                    let Owner { graph, sums, plain } = owner;
                    graph.launch(&stream).unwrap();
                    stream.synchronize().unwrap();
                    assert_same(
                        &sums.read(&stream).unwrap(),
                        &[[2; 1000], [4; 1000], [4; 1000], [4; 1000]].concat(),
                        &"kept",
                    );
                    let sums = {
                        let weak = Arc::downgrade(&sums);
                        drop(sums);
                        weak
                    };
                    assert!(plain.upgrade().is_some() && sums.upgrade().is_some());
                    graph.launch(&stream).unwrap();
                    // In flight.
                    drop(graph);
                    assert!(plain.upgrade().is_none() && sums.upgrade().is_none());
                }
            })
            .join()
            .unwrap();
        }
        communicator.synchronize(stream).unwrap();
        communicator.group().barrier().unwrap();
    });
}

/// After a launch that failed, a peer may still be writing to memory that this rank has dropped. Round after round,
/// memory that no rank can reach any more is freed.
#[test]
fn pitfall_16_what_peers_can_reach_stays_allocated() {
    const ELEMS: usize = 16 << 20;
    const BYTES: usize = ELEMS * size_of::<f32>();
    const ROUNDS: usize = 12;
    let _alone = alone();
    let addresses = threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let mut addresses = BTreeSet::new();
        let before = free_device_bytes(rank);
        for round in 0..ROUNDS {
            let buffer = DeviceBuffer::<f32>::new(communicator.device(), ELEMS).unwrap();
            let (address, algorithm) = (buffer.as_raw() as usize, Algorithm::TwoShotZeroCopy);
            addresses.insert(address);
            let graph = stream.capture(|capture| {
                communicator.all_reduce_with(
                    algorithm,
                    buffer.borrow().slice(..1000)?,
                    buffer.borrow().slice(..1000)?,
                    capture,
                )
            });
            let graph = graph.unwrap();
            graph.register().unwrap();
            graph.launch(stream).unwrap();
            rank.finish();
            let held = free_device_bytes(rank);
            if rank.rank() == round % 2 {
                drop(graph);
                drop(buffer);
                assert!(!is_host() || is_mapped(address), "freed, though the other rank has its graph");
                assert!(free_device_bytes(rank).zip(held).is_none_or(|(free, held)| free < held + BYTES / 2));
            } else {
                free_device_bytes(rank);
            }
        }
        let mapped = addresses.iter().filter(|address| is_mapped(**address)).count();
        assert!(mapped <= 8, "{mapped} of {ROUNDS} are kept");
        let free = free_device_bytes(rank);
        assert!(
            free.zip(before).is_none_or(|(free, before)| free + 6 * BYTES > before),
            "{before:?} to {free:?} bytes"
        );
        addresses
    });
    let mapped = || addresses.iter().flatten().filter(|address| is_mapped(**address)).count();
    // A thread of the library drops graphs.
    let patience = Instant::now() + Duration::from_secs(10);
    while is_host() && mapped() > 0 {
        assert!(Instant::now() < patience, "not given back when the group was closed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_capture_that_fails_gives_back_what_it_kept() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = Arc::new(DeviceBuffer::from_slice(&[1.0f32; 100], stream).unwrap());
        let weak = Arc::downgrade(&buffer);
        let refused = stream.capture(|capture| {
            communicator.all_reduce_in_place(capture.keep(buffer), capture)?;
            Err(Error::Closed)
        });
        assert_eq!(refused.map(drop), Err(Error::Closed));
        assert!(weak.upgrade().is_none());
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 100], stream).unwrap();
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), [2.0; 100]);
    });
}

/// Two groups with common ranks, in one graph and between its launches, with different numbers of calls.
#[test]
fn pitfall_12_32_two_groups_share_ranks_and_a_graph() {
    threads(4, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let pair = communicator.split(Some(rank.rank() as u32 / 3), 0).unwrap().unwrap();
        let members = if rank.rank() < 3 { 3 } else { 1 };
        assert_eq!(pair.world_size(), members);
        let all = communicator.symmetric::<i64>(300).unwrap();
        let few = pair.symmetric::<i64>(300).unwrap();
        all.write(&[1; 300], stream).unwrap();
        few.write(&[1; 300], stream).unwrap();
        let graph = stream.capture(|capture| {
            communicator.all_reduce_in_place(&all, capture)?;
            pair.all_reduce_in_place(&few, capture)?;
            pair.all_reduce_in_place(&few, capture)?;
            communicator.all_reduce_in_place(&all, capture)
        });
        let graph = graph.unwrap();
        for _ in 0..5 {
            graph.launch(stream).unwrap();
            pair.all_reduce_in_place(&few, stream).unwrap();
        }
        rank.finish();
        pair.synchronize(stream).unwrap();
        assert_eq!(all.read(stream).unwrap(), vec![1 << 20; 300]);
        assert_eq!(few.read(stream).unwrap(), vec![(members as i64).pow(15); 300]);
        drop(graph);
        drop(few);
        pair.close().unwrap();
    });
}

/// On one rank alone: a refused call does not count as a call.
#[test]
fn pitfall_04_an_eager_call_on_a_stream_under_capture_is_refused_without_a_trace() {
    for check_calls in [false, true] {
        let mut config = config();
        config.check_calls = check_calls;
        threads(2, &config, |rank| {
            let Rank { communicator, device, stream, .. } = rank;
            let buffer = communicator.symmetric::<f32>(64).unwrap();
            buffer.write(&[1.0; 64], stream).unwrap();
            let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
            let other = Stream::new(device).unwrap();
            let launched = other.capture(|capture| bound.enqueue(capture)).unwrap();
            let graph = stream.capture(|capture| {
                let nested = stream.capture(|_| Ok(())).map(drop);
                assert!(matches!(nested, Err(Error::Unsupported { .. })), "{nested:?}");
                if rank.rank() == 0 {
                    for refused in [
                        communicator.all_reduce_in_place(&buffer, stream),
                        communicator.broadcast(&buffer, 0, stream),
                        bound.enqueue(stream),
                        launched.launch(stream),
                    ] {
                        let told =
                            matches!(&refused, Err(Error::Unsupported { what, .. }) if what.contains("captured"));
                        assert!(told, "{refused:?}");
                    }
                }
                communicator.all_reduce_in_place(&buffer, capture)
            });
            graph.unwrap().launch(stream).unwrap();
            rank.finish();
            assert_eq!(buffer.read(stream).unwrap(), vec![2.0; 64]);
        });
    }
}

/// Whichever kind of call ranks begin with, they meet.
#[test]
fn pitfall_06_the_first_calls_of_ranks_are_of_any_kinds() {
    const WORLD: usize = 3;
    for (first, check_calls) in (0..2 * WORLD).map(|case| (case % WORLD, case >= WORLD)) {
        let mut config = config();
        config.check_calls = check_calls;
        threads(WORLD, &config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let buffer = communicator.symmetric::<i32>(64).unwrap();
            buffer.write(&[1; 64], stream).unwrap();
            let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
            match (rank.rank() + first) % WORLD {
                0 => communicator.all_reduce_in_place(&buffer, stream).unwrap(),
                1 => stream.capture(|capture| bound.enqueue(capture)).unwrap().launch(stream).unwrap(),
                _ => {
                    let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture));
                    graph.unwrap().launch(stream).unwrap();
                }
            }
            bound.enqueue(stream).unwrap();
            rank.finish();
            assert_eq!(buffer.read(stream).unwrap(), vec![9; 64]);
        });
    }
}

/// Calls and launches on two streams in turn, on the same memory, nowhere synchronised by hand.
#[test]
fn pitfall_32_one_lane_orders_two_streams() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, .. } = rank;
        let streams = [Stream::new(device).unwrap(), Stream::new(device).unwrap()];
        let buffer = communicator.symmetric::<i64>(2500).unwrap();
        buffer.write(&vec![1; 2500], &streams[0]).unwrap();
        let graph = streams[1].capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        let mut random = Random(mix(rank.rank() as u64));
        for step in 0..60 {
            let stream = &streams[step % 2];
            match step % 3 {
                0 => graph.launch(stream).unwrap(),
                _ => communicator.all_reduce_in_place(&buffer, stream).unwrap(),
            }
            if random.below(8) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        communicator.synchronize(&streams[0]).unwrap();
        communicator.synchronize(&streams[1]).unwrap();
        assert_eq!(buffer.read(&streams[0]).unwrap(), vec![1 << 60; 2500]);
    });
}

/// The order of calls outlives the streams they were on, if the communicator has left these.
#[test]
fn a_stream_that_was_left_may_end_with_its_work_in_flight() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let buffer = communicator.symmetric::<i64>(2500).unwrap();
        buffer.write(&vec![1; 2500], stream).unwrap();
        for step in 0..60 {
            let brief = Stream::new(device).unwrap();
            communicator.all_reduce_in_place(&buffer, &brief).unwrap();
            communicator.leave(&brief).unwrap();
            // One that the last call was not on: nothing to leave.
            communicator.leave(if step % 2 == 0 { stream } else { &brief }).unwrap();
        }
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        communicator.synchronize(stream).unwrap();
        assert_eq!(buffer.read(stream).unwrap(), vec![1 << 61; 2500]);
    });
}
