//! Bad input is a typed error that names the value and the limit, and nothing is enqueued.

use std::time::Duration;

use half::bf16;
use symmetra::float8::F8E4M3;
use symmetra::{
    Algorithm, Communicator, Deadlines, Determinism, Device, DeviceBuffer, Element, Error, LayerNorm, Narrow, Operand,
    Operation, Quantisation, Result, RmsNorm, RowNorm, Stream,
};

use crate::support::refusal::{invalid, says, unserved};
use crate::support::{Rank, config, is_host, threads};

const NORM: RmsNorm = RmsNorm::new(1e-6);

/// A norm of rows and weight of any types.
fn typed<T: Element, W: Element>(rank: &Rank) -> Result<()> {
    let (rows, weight) = (DeviceBuffer::<T>::new(&rank.device, 8)?, DeviceBuffer::<W>::new(&rank.device, 4)?);
    rank.communicator.all_reduce_norm(RowNorm::new(&rows, &weight, NORM).output(&rows), &rank.stream)
}

#[test]
fn types_that_are_not_served() {
    threads(2, &config(), |rank| {
        unserved(typed::<f64, f64>(rank), &["all-reduce-norm of f64", "f32, f16, bf16"]);
        unserved(typed::<i32, f32>(rank), &["all-reduce-norm of i32"]);
        unserved(typed::<u8, u8>(rank), &["all-reduce-norm of u8"]);
        unserved(typed::<bf16, half::f16>(rank), &["a weight of f16", "bf16 or f32"]);
        unserved(typed::<f32, bf16>(rank), &["a weight of bf16", "f32"]);
        typed::<f32, f32>(rank).unwrap();
        typed::<bf16, f32>(rank).unwrap();
        rank.finish();
    });
}

/// Parts of one buffer of 64 elements as operands, and a weight of 4.
fn call<'op, W: Element>(
    rank: &Rank,
    weight: impl Operand<'op, W>,
    input: impl Operand<'op, f32>,
    change: impl FnOnce(RowNorm<'op, f32>) -> RowNorm<'op, f32>,
) -> Result<()> {
    rank.communicator.all_reduce_norm(change(RowNorm::new(input, weight, NORM)), &rank.stream)
}

#[test]
fn lengths_and_numbers_outside_their_limits() {
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(64).unwrap();
        let at = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let weight = DeviceBuffer::<f32>::new(&rank.device, 4).unwrap();
        let none = DeviceBuffer::<f32>::new(&rank.device, 0).unwrap();
        let long = DeviceBuffer::<f32>::new(&rank.device, (1 << 20) + 1).unwrap();
        invalid(call(rank, &none, at(0, 8), |rows| rows.output(at(8, 8))), &["weight's length is 0", "1048576"]);
        invalid(call(rank, &long, at(0, 8), |rows| rows.output(at(8, 8))), &["weight's length is 1048577"]);
        invalid(
            call(rank, &weight, at(0, 9), |rows| rows.output(at(16, 9))),
            &["input's length is 9", "multiple", "4"],
        );
        invalid(call(rank, &weight, at(0, 8), |rows| rows.output(at(16, 9))), &["output's length is 9", "2 rows of 4"]);
        let padded = call(rank, &weight, at(0, 8), |rows| rows.output(at(16, 8)).padded_to(5));
        invalid(padded, &["output's length is 8", "2 rows of 5"]);
        let shorter = call(rank, &weight, at(0, 8), |rows| rows.residual(at(32, 4)).output(at(16, 8)));
        invalid(shorter, &["residual's length is 4", "2 rows of 4"]);
        let kept = call(rank, &weight, at(0, 8), |rows| rows.residual_out(at(16, 12)));
        invalid(kept, &["residual_out's length is 12", "2 rows of 4"]);
        invalid(call(rank, &weight, at(0, 8), |rows| rows), &["number of outputs is 0"]);
        for width in [0, 3, (1 << 31) + 1, u32::MAX as usize] {
            let narrow = call(rank, &weight, at(0, 8), |rows| rows.output(at(16, 8)).padded_to(width));
            invalid(narrow, &[&format!("width of an output row is {width}"), "4 elements"]);
        }
        for epsilon in [-1e-6, f32::NAN, f32::NEG_INFINITY] {
            let rows = RowNorm::new(at(0, 8), &weight, RmsNorm::new(epsilon)).output(at(8, 8));
            let refusal = rank.communicator.all_reduce_norm(rows, &rank.stream);
            invalid(refusal, &[&format!("epsilon is {epsilon}"), "at least 0"]);
        }
        // The group is as it was.
        call(rank, &weight, at(0, 8), |rows| rows.output(at(8, 8))).unwrap();
        rank.finish();
    });
}

#[test]
fn a_bias_that_does_not_fit_the_norm() {
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(64).unwrap();
        let at = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let half = DeviceBuffer::<bf16>::new(&rank.device, 4).unwrap();
        let rows = || RowNorm::new(at(0, 8), at(60, 4), LayerNorm::new(1e-5)).output(at(8, 8));
        let call = |rows: RowNorm<'_, f32>| rank.communicator.all_reduce_norm(rows, &rank.stream);
        let other = RowNorm::new(at(0, 8), at(60, 4), NORM).output(at(8, 8));
        unserved(call(other.bias(at(56, 4))), &["RMSNorm with a bias", "LayerNorm"]);
        unserved(call(rows().bias(&half)), &["a bias of bf16", "weight, f32"]);
        invalid(call(rows().bias(at(55, 5))), &["the bias's length is 5", "weight's is 4"]);
        invalid(call(rows().bias(at(13, 4))), &["the output", "the bias", "may not overlap"]);
        let epsilon = RowNorm::new(at(0, 8), at(60, 4), LayerNorm::new(-1.0)).output(at(8, 8));
        invalid(call(epsilon), &["epsilon is -1", "at least 0"]);
        // The weight may be the bias.
        call(rows().bias(at(60, 4))).unwrap();
        rank.finish();
    });
}

#[test]
fn operands_that_overlap() {
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(64).unwrap();
        let at = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let weight = at(60, 4);
        let (input, apart) = (at(0, 8), at(32, 8));
        invalid(call(rank, weight, input, |rows| rows.output(at(4, 8))), &["the output", "the input", "in place"]);
        invalid(call(rank, weight, input, |rows| rows.output(at(53, 8))), &["the output", "the weight"]);
        let over = |start: usize| call(rank, weight, input, |rows| rows.residual(apart).output(at(start, 8)));
        invalid(over(32), &["the output", "the residual", "may not overlap"]);
        invalid(over(33), &["the output", "the residual"]);
        let kept = |start: usize| call(rank, weight, input, |rows| rows.residual(apart).residual_out(at(start, 8)));
        invalid(kept(31), &["residual_out", "the residual", "in place"]);
        invalid(kept(1), &["residual_out", "the input", "in place"]);
        let both = call(rank, weight, input, |rows| rows.residual_out(apart).output(at(39, 8)));
        invalid(both, &["residual_out", "the output"]);
        let wider = call(rank, weight, input, |rows| rows.output(at(0, 10)).padded_to(5));
        invalid(wider, &["the output", "the input", "in place"]);
        // The same memory where it may be: residual and residual_out, input and either output.
        call(rank, weight, input, |rows| rows.residual(apart).residual_out(apart).output(input)).unwrap();
        call(rank, weight, input, |rows| rows.residual(apart).residual_out(input).output(at(16, 8))).unwrap();
        rank.finish();
    });
}

#[test]
fn operands_of_another_device() {
    if !is_host() {
        return;
    }
    threads(1, &config(), |rank| {
        let other = Device::host().unwrap();
        let (rows, weight) =
            (DeviceBuffer::<f32>::new(&rank.device, 8).unwrap(), DeviceBuffer::new(&other, 4).unwrap());
        invalid(call::<f32>(rank, &weight, &rows, |call| call.output(&rows)), &["the weight"]);
        let (weight, far) = (DeviceBuffer::<f32>::new(&rank.device, 4).unwrap(), DeviceBuffer::new(&other, 8).unwrap());
        invalid(call::<f32>(rank, &weight, &rows, |call| call.output(&far)), &["the output"]);
        invalid(call::<f32>(rank, &weight, &rows, |call| call.residual(&far).output(&rows)), &["the residual"]);
        invalid(call::<f32>(rank, &weight, &far, |call| call.output(&rows)), &["the input"]);
        invalid(call::<f32>(rank, &weight, &rows, |call| call.residual_out(&far)), &["residual_out"]);
        let stream = Stream::new(&other).unwrap();
        let rows = RowNorm::new(&rows, &weight, NORM).output(&rows);
        invalid(rank.communicator.all_reduce_norm(rows, &stream), &["stream"]);
    });
}

#[test]
fn a_sum_without_a_place_and_algorithms_that_cannot() {
    let mut exact = config();
    exact.determinism = Determinism::Exact;
    (exact.one_shot_sentinel_bytes, exact.two_shot_sentinel_bytes) = (Some(4096), 16 << 10);
    threads(3, &exact, |rank| {
        let plain = DeviceBuffer::<f32>::new(&rank.device, 64).unwrap();
        let at = |start: usize, len: usize| plain.borrow().slice(start..start + len).unwrap();
        let weight = DeviceBuffer::<f32>::new(&rank.device, 4).unwrap();
        let residual = DeviceBuffer::<f32>::new(&rank.device, 1 << 18).unwrap();
        let over = |algorithm| {
            call(rank, &weight, at(0, 8), |rows| rows.residual(at(8, 8)).residual_out(at(8, 8)).algorithm(algorithm))
        };
        unserved(over(Algorithm::TwoShotLL), &["writes over its residual", "ask for an output"]);
        over(Algorithm::Auto).unwrap();
        let long = DeviceBuffer::<f32>::new(&rank.device, 1 << 18).unwrap();
        let longer = call::<f32>(rank, &long, &long, |rows| rows.residual(&residual).residual_out(&residual));
        unserved(longer, &["writes over its residual", "ask for an output"]);
        for algorithm in [Algorithm::Ring, Algorithm::RecursiveDoubling] {
            let named = call(rank, &weight, at(0, 8), |rows| rows.output(at(8, 8)).algorithm(algorithm));
            unserved(named, &[algorithm.name(), "exact"]);
        }
        let direct = call(rank, &weight, at(0, 8), |rows| rows.output(at(8, 8)).algorithm(Algorithm::TwoShotZeroCopy));
        unserved(direct, &["two-shot-zero-copy on plain memory"]);
        rank.finish();
    });
}

/// How the calls of two ranks differ.
fn differ(calls: impl Fn(&Communicator, &DeviceBuffer<f32>, &DeviceBuffer<f32>, &Stream) -> Result<()> + Sync) {
    let mut compared = config();
    compared.check_calls = true;
    for error in threads_that_fail(&compared, calls) {
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        says(&error, &["all-reduce-norm of 32 bytes of f32"]);
    }
}

fn threads_that_fail(
    config: &symmetra::Config,
    calls: impl Fn(&Communicator, &DeviceBuffer<f32>, &DeviceBuffer<f32>, &Stream) -> Result<()> + Sync,
) -> Vec<Error> {
    crate::support::world::meet(2, |bootstrap| {
        let rank = crate::support::world::open(bootstrap, config).unwrap();
        let rows = DeviceBuffer::<f32>::new(&rank.device, 8).unwrap();
        let weight = DeviceBuffer::<f32>::new(&rank.device, 8).unwrap();
        calls(&rank.communicator, &rows, &weight, &rank.stream).unwrap();
        let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
        assert_eq!(rank.communicator.close(), Err(error.clone()));
        error
    })
}

#[test]
fn ranks_whose_norms_differ_all_learn_it() {
    // In the format of quantised rows.
    differ(|communicator, rows, weight, stream| {
        let (device, to) = (communicator.device(), [Narrow::E4M3, Narrow::I8][communicator.rank()]);
        let (scale, how) = (DeviceBuffer::<f32>::new(device, 1)?, Quantisation::PerToken(to));
        let call = RowNorm::new(rows, weight, NORM).output(rows);
        match communicator.rank() {
            0 => communicator
                .all_reduce_norm(call.quantised(how, &DeviceBuffer::<F8E4M3>::new(device, 8)?, &scale), stream),
            _ => {
                communicator.all_reduce_norm(call.quantised(how, &DeviceBuffer::<i8>::new(device, 8)?, &scale), stream)
            }
        }
    });
    // The calls differ in the length of a row, in epsilon, in the outputs, and in whether rows are normed at all.
    differ(|communicator, rows, weight, stream| {
        let weight = weight.borrow().slice(0..4 << communicator.rank())?;
        communicator.all_reduce_norm(RowNorm::new(rows, weight, NORM).output(rows), stream)
    });
    differ(|communicator, rows, weight, stream| {
        let norm = RmsNorm::new(communicator.rank() as f32);
        communicator.all_reduce_norm(RowNorm::new(rows, weight, norm).output(rows), stream)
    });
    // In the norm, and in whether there is a bias.
    differ(|communicator, rows, weight, stream| {
        let call = match communicator.rank() {
            0 => RowNorm::new(rows, weight, RmsNorm::new(1e-6)),
            _ => RowNorm::new(rows, weight, LayerNorm::new(1e-6)),
        };
        communicator.all_reduce_norm(call.output(rows), stream)
    });
    differ(|communicator, rows, weight, stream| {
        let call = RowNorm::new(rows, weight, LayerNorm::new(1e-6)).output(rows);
        let call = if communicator.rank() == 0 { call.bias(weight) } else { call };
        communicator.all_reduce_norm(call, stream)
    });
    differ(|communicator, rows, weight, stream| {
        let call = RowNorm::new(rows, weight, NORM);
        let call = if communicator.rank() == 0 { call.output(rows) } else { call.residual_out(rows) };
        communicator.all_reduce_norm(call, stream)
    });
    differ(|communicator, rows, weight, stream| match communicator.rank() {
        0 => communicator.all_reduce_norm(RowNorm::new(rows, weight, NORM).output(rows), stream),
        _ => communicator.all_reduce_in_place(rows, stream),
    });
}

/// A rank that does not call is named in time, by an error of this operation, in every kernel that waits.
#[test]
fn a_rank_that_skips_a_norm_is_named() {
    for algorithm in [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel] {
        let mut short = config();
        let limit = Duration::from_secs(2);
        short.deadlines = Deadlines::default().open(short.deadlines.open).first_use(limit).steady(limit);
        let errors = crate::support::world::meet(2, |bootstrap| {
            let rank = crate::support::world::open(bootstrap, &short).unwrap();
            let (rows, weight) = (DeviceBuffer::<f32>::new(&rank.device, 8).unwrap(), [1.0f32; 4]);
            let weight = DeviceBuffer::from_slice(&weight, &rank.stream).unwrap();
            let norm = || RowNorm::new(&rows, &weight, NORM).output(&rows).algorithm(algorithm);
            rank.communicator.all_reduce_norm(norm(), &rank.stream).unwrap();
            rank.finish();
            if rank.rank() == 0 {
                rank.communicator.all_reduce_norm(norm(), &rank.stream).unwrap();
                return rank.communicator.synchronize(&rank.stream).unwrap_err();
            }
            crate::support::world::until(Duration::from_secs(20), "rank 0 gives up", || {
                rank.communicator.group().check().is_err()
            });
            rank.communicator.all_reduce_norm(norm(), &rank.stream).unwrap_err()
        });
        if errors.is_empty() {
            return; // the world does not fit this machine
        }
        let Error::Timeout { operation, rank, .. } = &errors[0] else { panic!("{}", errors[0]) };
        assert_eq!((*operation, *rank), (Operation::AllReduceNorm, Some(1)));
        says(&errors[0], &["all-reduce-norm 1: timed out", "waiting for rank 1"]);
        assert!(matches!(errors[1], Error::Aborted { .. }), "{}", errors[1]);
    }
}
