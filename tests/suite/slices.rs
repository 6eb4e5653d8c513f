//! Calls on slices of the program, and read-only operands.

use std::ops::Range;
use std::time::Duration;

use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::op::{InPlace, OPERATIONS, Op, Size};
use symmetra::{Deadlines, DeviceBuffer, Error, Reduction, Ref, Result, RmsNorm, RowNorm, copy};

use crate::operations::calls::effects;
use crate::support::batch::Memory;
use crate::support::call::Call;
use crate::support::data::{Random, assert_same, mix};
use crate::support::refusal::{invalid, unserved};
use crate::support::world::{Gate, meet, open};
use crate::support::{Data, Rank, Sample, config, is_host, threads};

/// Elements of a rank's data.
const ROOM: usize = 9000;

fn call(op: &'static Op, count: usize, world: usize, in_place: bool, random: &mut Random) -> Call {
    Call {
        op,
        count,
        rows: 1,
        options: (*random.pick(&Reduction::ALL)).into(),
        root: random.below(world),
        memory: Memory::Plain,
        in_place,
        from: random.below(16),
        to: random.below(16),
        seed: random.next(),
    }
}

fn every_operation<T: Sample>(world: usize) {
    let seed = fastrand::u64(..);
    let data = Data::<T>::new(seed, world, ROOM);
    threads(world, &config(), |rank| {
        let mut random = Random(seed);
        for op in OPERATIONS {
            for count in [0, 1, 65, 2064] {
                let reduces_in_place = op.in_place == InPlace::Same && op.input.size != Size::None;
                for in_place in [false, reduces_in_place] {
                    let call = call(op, count, world, in_place, &mut random);
                    let own = &data.inputs[rank.rank()];
                    let (mut output, mut expected) = (own.clone(), own.clone());
                    for (start, elements) in effects(&call, &data, rank.rank(), world) {
                        expected[start..start + elements.len()].copy_from_slice(&elements);
                    }
                    let places = call.operands(rank.rank(), world, |_, start, len| start..start + len);
                    on_slices(rank, &call, places, own, &mut output).unwrap();
                    assert_same(&output, &expected, &(T::DTYPE, rank.rank(), world, &call));
                }
            }
        }
    });
}

/// Makes the call on slices. A rank that reduces in place without an output still has its input.
fn on_slices<T: Sample>(
    Rank { communicator, stream, .. }: &Rank,
    call: &Call,
    [input, output]: [Option<Range<usize>>; 2],
    own: &[T],
    values: &mut [T],
) -> Result<()> {
    let input = input.filter(|_| !call.in_place || output.is_none()).map(|place| &own[place]);
    let output = output.map(|place| &mut values[place]);
    call.how(communicator, |how| communicator.perform_on_slices(call.op, how, input, output, stream))
}

#[test]
fn every_operation_on_slices_has_its_effect() {
    if !is_host() {
        return;
    }
    every_operation::<f32>(1);
    every_operation::<u8>(2);
    every_operation::<half::bf16>(3);
    every_operation::<i64>(4);
}

#[test]
fn a_gpu_refuses_slices() {
    if is_host() {
        return;
    }
    threads(1, &config(), |Rank { communicator, stream, .. }| {
        unserved(communicator.all_reduce_slice(&mut [1.0f32], Reduction::Sum, stream), &["memory of the program"]);
    });
}

#[test]
fn a_stream_that_is_captured_refuses_slices() {
    if !is_host() {
        return;
    }
    threads(1, &config(), |Rank { communicator, stream, .. }| {
        let mut values = [1.0f32; 5];
        let mut sum = || communicator.all_reduce_slice(&mut values, Reduction::Sum, stream);
        let graph = stream.capture(|_| {
            unserved(sum(), &["captured"]);
            Ok(())
        });
        drop(graph.unwrap());
        // SAFETY: the recording is dropped.
        let native = unsafe { stream.begin_capture() }.unwrap();
        unserved(sum(), &["captures"]);
        drop(native);
        sum().unwrap();
    });
}

/// The other rank calls only after the error, so its packets arrive late.
#[test]
fn a_call_that_gave_up_no_longer_uses_its_slices() {
    if !is_host() {
        return;
    }
    let short = Duration::from_millis(300);
    for (len, leaves) in [(1000, false), (100_000, false), (1000, true)] {
        let mut config = config();
        // A call that begins while the rank leaves gives up at the monitor's next look, which is later than `short`.
        if !leaves {
            config.deadlines = Deadlines::default().first_use(short).steady(short);
        }
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let Rank { communicator, stream, .. } = open(bootstrap, &config).unwrap();
            let mut values = vec![3.0f32; len];
            if communicator.rank() == 1 && leaves {
                drop(communicator);
                gate.pass();
                return;
            }
            if communicator.rank() == 1 {
                gate.pass();
                communicator.all_reduce_slice(&mut values, Reduction::Sum, &stream).unwrap_err();
                gate.pass();
                return;
            }
            let error = communicator.all_reduce_slice(&mut values, Reduction::Sum, &stream).unwrap_err();
            match leaves {
                true => assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}"),
                false => assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}"),
            }
            assert!(stream.is_done().unwrap());
            values.fill(7.0);
            gate.pass();
            if !leaves {
                gate.pass();
            }
            assert!(values.iter().all(|value| *value == 7.0));
        });
    }
}

/// A blocking call runs on this thread if the stream has no work, and on the stream otherwise: calls of both kinds, and calls
/// that only enqueue, have one order.
fn blocking_calls_among_enqueued_calls(world: usize) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    threads(world, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let (mut common, mut busy) = (Random(seed), 0);
        let all = DeviceBuffer::<i64>::new(device, 600).unwrap();
        for round in 0..1000 {
            let count = 1 + common.below(600);
            let of_round = common.next();
            let numbers = |rank: usize, kind: u64| {
                let mut random = Random(mix(of_round ^ mix(rank as u64 * 2 + kind)));
                (0..count).map(|_| random.next() as i64 >> 32).collect::<Vec<_>>()
            };
            let sum = |kind| {
                let parts = (0..world).map(|rank| numbers(rank, kind));
                parts.reduce(|sum, part| sum.iter().zip(&part).map(|(sum, part)| sum + part).collect()).unwrap()
            };
            let enqueued = all.borrow().slice(..count).unwrap();
            enqueued.write(&numbers(rank.rank(), 0), stream).unwrap();
            let (before, after) = (common.below(3), common.below(2));
            for _ in 0..before {
                communicator.all_reduce_in_place(&enqueued, stream).unwrap();
            }
            busy += usize::from(!stream.is_done().unwrap());
            let mut values = numbers(rank.rank(), 1);
            communicator.all_reduce_slice(&mut values, Reduction::Sum, stream).unwrap();
            assert!(stream.is_done().unwrap());
            assert_eq!(values, sum(1), "round {round}");
            // The next round finds the stream with work.
            for _ in 0..after {
                communicator.all_reduce_in_place(&enqueued, stream).unwrap();
            }
            let factor = |calls: usize| (world as i64).pow(calls.saturating_sub(1) as u32);
            let expected: Vec<_> = match before + after {
                0 => numbers(rank.rank(), 0),
                calls => sum(0).into_iter().map(|sum| sum * factor(calls)).collect(),
            };
            if round % 3 == 0 {
                assert_eq!(enqueued.read(stream).unwrap(), expected, "round {round}");
            }
        }
        eprintln!("rank {}: {busy} of 1000 calls found the stream with work", rank.rank());
    });
}

#[test]
fn blocking_calls_among_enqueued_calls_are_in_order() {
    if !is_host() {
        return;
    }
    blocking_calls_among_enqueued_calls(2);
    blocking_calls_among_enqueued_calls(4);
}

/// The error of an all-gather with these lengths on each of two ranks: of a blocking call, or of a call and a wait.
fn refusals(blocks: bool, lengths: [[usize; 2]; 2]) -> Vec<Error> {
    // A rank that leaves is lost to a rank that has not made the call.
    let all_have_an_error = Gate::new(2);
    meet(2, |bootstrap| {
        let Rank { communicator, device, stream } = open(bootstrap, &config().check_calls(true)).unwrap();
        let [count, elements] = lengths[communicator.rank()];
        let (input, mut output) = (vec![1.0f32; count], vec![0.0f32; elements]);
        if blocks {
            let error = communicator.all_gather_slices(&input, &mut output, &stream).unwrap_err();
            all_have_an_error.pass();
            return error;
        }
        // SAFETY: the memory outlives the work, for which the next lines wait.
        let input = unsafe { Ref::from_const(&device, input.as_ptr(), count) }.unwrap();
        // SAFETY: as above.
        let to = unsafe { Ref::from_raw(&device, output.as_mut_ptr(), elements) }.unwrap();
        let enqueued = communicator.all_gather(input, to, &stream);
        stream.synchronize().unwrap();
        let error = enqueued.and_then(|()| communicator.synchronize(&stream)).unwrap_err();
        all_have_an_error.pass();
        error
    })
}

#[test]
fn a_blocking_call_has_the_errors_of_an_enqueued_call() {
    if !is_host() {
        return;
    }
    let short = [[8, 15]; 2];
    assert!(refusals(false, short).iter().all(|error| matches!(error, Error::InvalidArgument { .. })));
    assert_eq!(refusals(true, short), refusals(false, short));
    for blocks in [false, true] {
        let errors = refusals(blocks, [[8, 16], [7, 14]]);
        assert!(errors.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{errors:?}");
    }
}

/// A read-only operand with the values of a buffer.
fn read_only<T: symmetra::Element>(rank: &Rank, buffer: &DeviceBuffer<T>) -> Ref<'static, T> {
    // SAFETY: the caller keeps the buffer until all work is done, and writes it only while no work uses the result.
    unsafe { Ref::from_const(&rank.device, buffer.as_raw(), buffer.len()) }.unwrap()
}

#[test]
fn every_operation_refuses_a_read_only_output_and_reads_a_read_only_input() {
    let (world, seed) = (2, fastrand::u64(..));
    let data = Data::<f32>::new(seed, world, ROOM);
    threads(world, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let mut random = Random(seed);
        let own = &data.inputs[rank.rank()];
        let source = DeviceBuffer::from_slice(own, stream).unwrap();
        let output = DeviceBuffer::from_slice(own, stream).unwrap();
        let (reads, writes) = (read_only(rank, &source), output.borrow());
        for op in OPERATIONS {
            let call = call(op, 257, world, false, &mut random);
            let of = |buffers: [&Ref<'static, f32>; 2]| {
                call.operands(rank.rank(), world, |which, start, len| buffers[which].slice(start..start + len).unwrap())
            };
            let refused = of([&reads, &reads]);
            if refused[1].as_ref().is_some_and(|output| !output.is_empty()) {
                invalid(call.perform(communicator, refused, stream), &["is read-only memory", "the call writes it"]);
            }
            output.write(own, stream).unwrap();
            // SAFETY: as long as `output`, which outlives the call.
            let writes = unsafe { Ref::from_raw(device, writes.as_raw(), writes.len()) }.unwrap();
            call.perform(communicator, of([&reads, &writes]), stream).unwrap();
            rank.finish();
            let mut expected = own.clone();
            for (start, elements) in effects(&call, &data, rank.rank(), world) {
                expected[start..start + elements.len()].copy_from_slice(&elements);
            }
            assert_same(&output.read(stream).unwrap(), &expected, &call);
        }
        assert_eq!(source.read(stream).unwrap(), *own);
    });
}

#[test]
fn calls_with_more_operands_refuse_a_read_only_output() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let words = &["read-only memory"];
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 64], stream).unwrap();
        let other = DeviceBuffer::<f32>::new(device, 64).unwrap();
        let fixed = read_only(rank, &buffer);
        let norm = || RowNorm::new(&other, fixed.slice(..32).unwrap(), RmsNorm::new(1e-6));
        invalid(communicator.all_reduce_norm(norm().output(&fixed), stream), words);
        invalid(communicator.all_reduce_norm(norm().residual_out(&fixed), stream), words);
        invalid(communicator.pairs(stream, |messages| messages.receive(&fixed, 1 - rank.rank())), words);
        invalid(copy(&other, &fixed, stream), words);
        copy(&fixed, &other, stream).unwrap();
        invalid(fixed.write(&[2.0; 64], stream), words);
        invalid(fixed.slice(1..3).unwrap().write(&[2.0; 2], stream), words);
        // SAFETY: the call is refused.
        invalid(unsafe { communicator.adopt(fixed.clone()) }, words);
        let product = Product::new(8, 8, Numeric::F32);
        let multiplier = Multiplier::new(device).unwrap();
        let [left, right, result] = [&other.borrow(), &other.borrow(), &fixed].map(Tensor::of);
        invalid(multiplier.enqueue(&product, 8, [left, right, result], stream), words);
        assert_eq!(other.read(stream).unwrap(), [1.0; 64]);
        assert_eq!(fixed.read(stream).unwrap(), [1.0; 64]);
    });
}
