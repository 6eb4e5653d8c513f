//! Bad input is a typed error that names the values, and nothing hangs.

use std::time::{Duration, Instant};

use symmetra::op::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, ALL_TO_ALL_V, REDUCE_SCATTER, SEND_RECEIVE};
use symmetra::{
    Algorithm, Communicator, DeviceBuffer, Error, How, Operand, Operation, Reduction, Result, SymmetricBuffer,
    SymmetricSlice, Transport,
};

use crate::support::refusal::invalid;
use crate::support::world::Gate;
use crate::support::{Rank, config, threads};

#[test]
fn bad_operands_are_refused() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<f32>(64).unwrap();
        let slice = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let sum = Reduction::Sum;
        invalid(communicator.all_gather(slice(0, 4), slice(32, 11), stream), &["output", "11", "12"]);
        invalid(communicator.all_gather(slice(3, 4), slice(0, 12), stream), &["in place"]);
        invalid(communicator.all_gather_along(2, &[2, 2], slice(0, 4), slice(32, 12), stream), &["dimension", "2"]);
        invalid(communicator.all_gather_along(1, &[2, 3], slice(0, 4), slice(32, 18), stream), &["input", "4", "6"]);
        let own = [3, 0, 5][rank.rank()];
        let gather = |input, output, counts: &[usize]| communicator.all_gather_v(input, output, counts, stream);
        invalid(gather(slice(0, own), slice(32, 8), &[3, 5]), &["number of counts", "2", "3"]);
        invalid(gather(slice(0, own), slice(32, 9), &[3, 0, 5]), &["output's length", "9", "[3, 0, 5]"]);
        invalid(gather(slice(0, own + 1), slice(32, 8), &[3, 0, 5]), &["input's length", &(own + 1).to_string()]);
        invalid(gather(slice(0, own), slice(32, 8), &[usize::MAX, 2, 7]), &["output's length", "8"]);
        if own > 0 {
            invalid(gather(slice(33, own), slice(32, 8), &[3, 0, 5]), &["in place"]);
        }
        let scatter =
            |input, output, counts: &[usize]| communicator.reduce_scatter_v(input, output, counts, sum, stream);
        invalid(scatter(slice(32, 8), slice(0, own), &[3, 0, 3, 2]), &["number of counts", "4", "3"]);
        invalid(scatter(slice(32, 7), slice(0, own), &[3, 0, 5]), &["input's length", "7", "[3, 0, 5]"]);
        invalid(scatter(slice(32, 8), slice(0, own + 1), &[3, 0, 5]), &["output's length", &(own + 1).to_string()]);
        invalid(scatter(slice(32, 8), slice(0, own), &[2, usize::MAX, 7]), &["input's length", "8"]);
        if own > 0 {
            invalid(scatter(slice(32, 8), slice(33, own), &[3, 0, 5]), &["in place"]);
        }
        invalid(communicator.reduce_scatter(slice(0, 13), slice(32, 4), sum, stream), &["13", "multiple", "3"]);
        invalid(communicator.reduce_scatter(slice(0, 12), slice(32, 5), sum, stream), &["output", "5", "4"]);
        invalid(communicator.reduce_scatter(slice(0, 12), slice(1, 4), sum, stream), &["in place"]);
        let along = communicator.reduce_scatter_along(1, &[3, 4], slice(0, 12), slice(32, 4), sum, stream);
        invalid(along, &["dimension 1", "4", "3"]);
        invalid(communicator.all_to_all(slice(0, 10), slice(32, 10), stream), &["10", "multiple", "3"]);
        invalid(communicator.all_to_all(slice(0, 12), slice(32, 9), stream), &["9", "12"]);
        invalid(communicator.all_to_all(slice(0, 12), slice(0, 12), stream), &["may not overlap"]);
        invalid(communicator.broadcast(slice(0, 4), 3, stream), &["root is 3", "world size is 3"]);
        invalid(communicator.reduce(slice(0, 4), Some(slice(32, 4)), sum, 9, stream), &["root is 9"]);
        invalid(communicator.gather(slice(0, 4), Some(slice(32, 12)), 9, stream), &["root is 9"]);
        invalid(communicator.scatter(Some(slice(0, 12)), slice(32, 4), 9, stream), &["root is 9"]);
        let root = rank.rank();
        let none = || None::<symmetra::SymmetricSlice<'_, f32>>;
        invalid(communicator.reduce(slice(0, 4), none(), sum, root, stream), &["output is missing"]);
        invalid(communicator.gather(slice(0, 4), Some(slice(32, 9)), root, stream), &["9", "12"]);
        invalid(communicator.scatter(none(), slice(0, 4), root, stream), &["input is missing"]);
        let scattered = communicator.scatter(Some(slice(0, 12)), slice(1, 4), root, stream);
        invalid(scattered, &["the output is 16 bytes", "the input is 48 bytes", "in place"]);
        let output = slice(32, 32);
        invalid(communicator.all_to_all_v(slice(0, 32), &[1; 2], output, &[1; 3], stream), &["counts", "2", "3"]);
        invalid(communicator.all_to_all_v(slice(0, 32), &[20, 20, 0], output, &[1; 3], stream), &["20, 20, 0", "32"]);
        let huge = [usize::MAX, usize::MAX, 1];
        invalid(communicator.all_to_all_v(slice(0, 32), &huge, output, &[1; 3], stream), &["32"]);
        let mut own = [1; 3];
        own[rank.rank()] = 2;
        invalid(communicator.all_to_all_v(slice(0, 32), &own, output, &[1; 3], stream), &["send_counts", "2", "1"]);
        // Nothing was enqueued anywhere: the group works on.
        communicator.broadcast(slice(0, 4), 1, stream).unwrap();
        rank.finish();
    });
}

#[test]
fn bad_batches_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<f32>(64).unwrap();
        let slice = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let (own, peer) = (rank.rank(), 1 - rank.rank());
        let send = |operand, peer| {
            communicator.batch(stream, |batch| {
                batch.send(operand, peer);
                Ok(())
            })
        };
        invalid(send(slice(0, 4), 2), &["peer is 2", "world size is 2"]);
        let twice = communicator.batch(stream, |batch| {
            batch.send(slice(0, 4), peer);
            batch.send(slice(8, 4), peer);
            Ok(())
        });
        invalid(twice, &["messages sent to", "is 2"]);
        let overlap = communicator.batch(stream, |batch| {
            batch.send(slice(0, 4), peer);
            batch.receive(slice(3, 4), peer);
            Ok(())
        });
        let words = ["sent to rank", "received from rank", "is 16 bytes"];
        invalid(overlap, &words);
        invalid(send(slice(0, 4), own), &["itself", "16", "0"]);
        // By the description: messages lie one after the other.
        let by_counts = |send: &[usize], receive: &[usize]| {
            let how = How { counts: [send, receive], ..How::default() };
            communicator.perform(&SEND_RECEIVE, &how, [Some(slice(0, 8)), Some(slice(16, 8))], stream)
        };
        invalid(by_counts(&[4, 5], &[0, 0]), &["count of rank 1 is 5", "input has 4 elements"]);
        invalid(by_counts(&[0, 8], &[9, 0]), &["count of rank 0 is 9", "output has 8 elements"]);
        invalid(by_counts(&[1], &[1]), &["number of counts of the input is 1", "world size is 2"]);
        // Settings that an operation does not have change nothing.
        let how = How { parameter: 5, options: Algorithm::Ring.into(), ..How::default() };
        let gather = [Some(slice(0, 4)), Some(slice(16, 8))];
        communicator.perform(&ALL_GATHER, &how, gather, stream).unwrap();
        communicator.batch(stream, |_| Ok(())).unwrap();
        rank.finish();
    });
}

/// Elements outside the overlap are right, and the group works on.
#[test]
fn operands_overlap_where_the_call_accepts_it() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let (symmetric, plain) =
            (communicator.symmetric::<i32>(64).unwrap(), DeviceBuffer::<i32>::new(device, 64).unwrap());
        let how = How { counts: [&[8, 8], &[8, 8]], may_overlap: true, ..How::default() };
        for op in [&ALL_REDUCE, &ALL_GATHER, &REDUCE_SCATTER, &ALL_TO_ALL, &ALL_TO_ALL_V, &SEND_RECEIVE] {
            let [input, output] = match op.operation {
                Operation::AllGather => [8, 16],
                Operation::ReduceScatter => [16, 8],
                _ => [16, 16],
            };
            let part = |start: usize, len: usize| Some(symmetric.slice(start..start + len).unwrap());
            let strict = How { may_overlap: false, ..how };
            invalid(communicator.perform(op, &strict, [part(3, input), part(4, output)], stream), &[]);
            communicator.perform(op, &how, [part(3, input), part(4, output)], stream).unwrap();
            let part = |start: usize, len: usize| Some(plain.borrow().slice(start..start + len).unwrap());
            communicator.perform(op, &how, [part(3, input), part(4, output)], stream).unwrap();
        }
        let peer = 1 - rank.rank();
        plain.write(&[7; 64], stream).unwrap();
        let messages = |loose: bool| {
            communicator.pairs(stream, |messages| {
                if loose {
                    messages.allow_overlaps();
                }
                messages.send(plain.borrow().slice(0..16)?, peer)?;
                messages.receive(plain.borrow().slice(8..24)?, peer)
            })
        };
        invalid(messages(false), &["may not overlap"]);
        messages(true).unwrap();
        communicator.all_reduce_in_place(&symmetric, stream).unwrap();
        rank.finish();
        assert_eq!(plain.read(stream).unwrap()[..8], [7; 8]);
        assert_eq!(plain.read(stream).unwrap()[24..], [7; 40]);
    });
}

/// A call that a transport does not serve is an error at the call.
#[test]
fn pitfall_30_a_direct_exchange_of_plain_memory_is_an_error() {
    let mut config = config();
    config.transport = Transport::Direct;
    threads(2, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let plain = DeviceBuffer::from_slice(&[7i32; 64], stream).unwrap();
        let error = communicator.broadcast(&plain, 0, stream).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("broadcast")), "{error}");
        assert_eq!(plain.read(stream).unwrap(), vec![7; 64]);
    });
}

/// All ranks learn of an error that only rank 1 can detect, long before a deadline: no rank can write into its plain
/// memory.
#[test]
fn pitfall_5_plain_memory_of_one_rank_in_a_direct_exchange_is_named_on_every_rank() {
    for operation in [Operation::Gather, Operation::Scatter, Operation::AllToAll, Operation::SendReceive] {
        let mut config = config();
        config.transport = Transport::Direct;
        let errors = failing(&config, |rank| {
            let buffer = rank.communicator.symmetric::<i32>(128)?;
            let plain = DeviceBuffer::from_slice(&[7i32; 24], &rank.stream)?;
            let start = Instant::now();
            let called = match rank.rank() {
                1 => receiving(operation, rank, &buffer, &plain),
                _ => receiving(operation, rank, &buffer, buffer.slice(96..120)?),
            };
            let ended = called.and_then(|()| rank.communicator.synchronize(&rank.stream));
            assert!(start.elapsed() < config.deadlines.first_use / 2, "{operation}: {:?}", start.elapsed());
            ended
        });
        for error in errors {
            let Error::Unsupported { what, reason } = &error else { panic!("{operation}: {error}") };
            assert!(
                what.contains("direct") && what.contains("rank 1") && reason.contains("plain"),
                "{operation}: {error}"
            );
        }
    }
}

/// An exchange in which each rank that receives does so in `output`, which has 24 elements.
fn receiving<'a>(
    operation: Operation,
    rank: &Rank,
    input: &'a SymmetricBuffer<i32>,
    output: impl Operand<'a, i32>,
) -> Result<()> {
    let (communicator, stream, own) = (&rank.communicator, &rank.stream, rank.rank());
    match operation {
        Operation::Gather => communicator.gather(input.slice(0..8)?, (own == 1).then_some(output), 1, stream),
        Operation::Scatter => communicator.scatter((own == 0).then_some(input.slice(0..72)?), output, 0, stream),
        Operation::AllToAll => communicator.all_to_all_v(input.slice(0..24)?, &[8; 3], output, &[8; 3], stream),
        _ => communicator.batch(stream, |batch| {
            batch.send(input.slice(0..24)?, (own + 1) % 3);
            batch.receive(output, (own + 2) % 3);
            Ok(())
        }),
    }
}

/// Counts that do not match: every rank learns which ranks differ, and no call hangs.
#[test]
fn counts_that_differ_are_named_on_every_rank() {
    for transport in [Transport::Packets, Transport::Direct] {
        let mut config = config();
        config.transport = transport;
        let errors = failing(&config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let [input, output] = [0; 2].map(|_| communicator.symmetric::<f64>(64).unwrap());
            // Rank 2 expects one element more of rank 1 than that sends.
            let mut receives = [3; 3];
            receives[1] += usize::from(rank.rank() == 2);
            communicator.all_to_all_v(&input, &[3; 3], &output, &receives, stream)?;
            communicator.synchronize(stream)?;
            communicator.all_to_all(input.slice(0..9)?, output.slice(0..9)?, stream)
        });
        for error in errors {
            let Error::Mismatch { what, against, ours, rank, theirs } = error else { panic!("{error}") };
            assert_eq!((what.as_str(), against, rank), ("how much rank 1 sends rank 2", 1, 2));
            assert_eq!((ours.as_str(), theirs.as_str()), ("24 bytes", "32 bytes"));
        }
    }
}

/// Counts of parts that differ, with equal sums and largest counts: every rank learns it, also if ranks do not compare
/// calls before they run.
#[test]
fn counts_of_parts_that_differ_are_named_on_every_rank() {
    let cases = [(true, Transport::Auto), (false, Transport::Packets), (false, Transport::Direct)];
    for (gathers, (check_calls, transport)) in
        [true, false].into_iter().flat_map(|gathers| cases.map(|case| (gathers, case)))
    {
        let mut config = config();
        (config.check_calls, config.transport) = (check_calls, transport);
        config.deadlines.first_use = Duration::from_secs(2);
        let errors = failing(&config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let [input, output] = [0; 2].map(|_| communicator.symmetric::<f64>(64).unwrap());
            let counts = if rank.rank() == 2 { [9, 4, 2] } else { [4, 9, 2] };
            let (own, all) = (input.slice(..counts[rank.rank()])?, output.slice(..counts.iter().sum::<usize>())?);
            match gathers {
                true => communicator.all_gather_v(own, all, &counts, stream)?,
                false => communicator.reduce_scatter_v(all, own, &counts, Reduction::Sum, stream)?,
            }
            communicator.synchronize(stream)
        });
        for error in errors {
            let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{error}") };
            let name = if gathers { "all-gather-v" } else { "reduce-scatter-v" };
            assert!(ours != theirs && [ours, theirs].iter().all(|call| call.contains(name)), "{error}");
        }
    }
}

/// A rank that leaves an operation out: the others time out and name it and the operation.
#[test]
fn pitfall_4_a_rank_that_skips_is_named() {
    type Call = fn(&Communicator, &DeviceBuffer<f32>, &symmetra::Stream) -> Result<()>;
    let calls: [(Operation, Call); 4] = [
        (Operation::Broadcast, |communicator, buffer, stream| communicator.broadcast(buffer, 0, stream)),
        (Operation::Reduce, |communicator, buffer, stream| {
            communicator.reduce_in_place(buffer, Reduction::Max, 0, stream)
        }),
        (Operation::Counts, |communicator, _, stream| communicator.batch(stream, |_| Ok(()))),
        (Operation::Gather, |communicator, buffer, stream| {
            let all = DeviceBuffer::new(communicator.device(), 3 * buffer.len())?;
            communicator.gather(buffer, Some(&all), 0, stream)?;
            communicator.synchronize(stream)
        }),
    ];
    for (operation, call) in calls {
        let mut config = config();
        config.check_calls = false;
        config.deadlines.first_use = Duration::from_secs(1);
        config.deadlines.steady = Duration::from_secs(1);
        let together = Gate::new(2);
        let errors = failing(&config, |rank| {
            let buffer = DeviceBuffer::from_slice(&[1.0f32; 100], &rank.stream)?;
            if rank.rank() == 2 {
                // Until the others have given up.
                while rank.communicator.group().check().is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return rank.communicator.group().check();
            }
            // Neither of the two comes late to the other.
            together.pass();
            call(&rank.communicator, &buffer, &rank.stream)?;
            rank.communicator.synchronize(&rank.stream)
        });
        for (rank, error) in errors.into_iter().enumerate().take(2) {
            assert!(
                matches!(&error, Error::Timeout { operation: found, rank: Some(2), .. } if *found == operation),
                "rank {rank}: {error}"
            );
        }
    }
}

/// Ranks that call different operations get an error when calls are compared.
#[test]
fn pitfall_4_different_operations_are_named() {
    let mut config = config();
    config.check_calls = true;
    let errors = failing(&config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<f32>(64)?;
        let root = usize::from(rank.rank() == 2);
        communicator.broadcast(&buffer, root, stream)?;
        communicator.synchronize(stream)
    });
    for error in errors {
        let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{error}") };
        let mut calls = [ours.as_str(), theirs.as_str()];
        calls.sort_unstable();
        for (root, call) in calls.into_iter().enumerate() {
            let words = format!("broadcast of root {root} of 256 bytes of f32 by packets, output at offset ");
            assert!(call.starts_with(&words), "{call}");
        }
    }
}

/// Peers access theirs at the offsets where a rank has its own: elsewhere are other data.
#[test]
fn pitfall_4_operands_at_different_offsets_are_named() {
    type Call = fn(&Communicator, SymmetricSlice<'_, f32>, &symmetra::Stream) -> Result<()>;
    let calls: [Call; 3] = [
        |communicator, slice, stream| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, slice, slice, stream),
        |communicator, slice, stream| communicator.broadcast(slice, 0, stream),
        |communicator, slice, stream| {
            let inputs = communicator.symmetric::<f32>(3 * slice.len())?;
            communicator.low_contention_all_gather(slice, &inputs, stream)?.wait(stream)
        },
    ];
    for call in calls {
        let mut config = config();
        config.check_calls = true;
        config.transport = Transport::Direct;
        let errors = failing(&config, |rank| {
            let buffer = rank.communicator.symmetric::<f32>(300)?;
            let start = if rank.rank() == 1 { 100 } else { 0 };
            call(&rank.communicator, buffer.slice(start..start + 100)?, &rank.stream)?;
            rank.communicator.synchronize(&rank.stream)
        });
        for error in errors {
            let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{error}") };
            assert!(ours.contains("put at offset ") && theirs.contains("put at offset ") && ours != theirs, "{error}");
        }
    }
}

/// Runs `body` in a group of three that it makes fail: every rank's error.
pub(crate) fn failing(config: &symmetra::Config, body: impl Fn(&Rank) -> Result<()> + Sync) -> Vec<Error> {
    crate::support::world::meet(3, |bootstrap| {
        let rank = crate::support::world::open(bootstrap, config).unwrap();
        let error = body(&rank).unwrap_err();
        assert_eq!(rank.communicator.group().check().unwrap_err(), error);
        let _ = rank.communicator.close();
        error
    })
}
