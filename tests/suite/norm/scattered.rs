//! Norms of rows that are scattered over the ranks: every bit of every buffer, the calls that are refused, and ranks that
//! differ.

use std::time::Duration;

use half::{bf16, f16};
use reference::element::Real;
use reference::norm;
use symmetra::{Algorithm, DeviceBuffer, Dtype, Error, Operation, RmsNorm, RowNorm};

use super::rows::{Bench, Case, Form, ROOM};
use crate::support::data::{Random, assert_same, mix, shuffle};
use crate::support::extent::{cases_of, full};
use crate::support::refusal::refused;
use crate::support::world::{meet, open, until};
use crate::support::{Data, Rank, Sample, config, fits, threads};

/// Elements of a row: short of a packet, around packets and columns, and more than a block stages.
const HIDDEN: [usize; 16] = [1, 3, 7, 8, 9, 16, 31, 64, 100, 127, 513, 1000, 1001, 2048, 2880, 8200];
const NORM: RmsNorm = RmsNorm::new(1e-6);

fn every_case<T: Real + Sample>(world: usize, number: usize) {
    let data = Data::<T>::new(world as u64 * 10 + number as u64, world, ROOM);
    let residual = Data::<T>::new(7 + number as u64, 1, ROOM);
    let seed = mix((world * 100 + number) as u64);
    let mut random = Random(seed);
    let forms = [Form::ReduceScatter, Form::ReduceScatterAllGather];
    let all = HIDDEN.into_iter().flat_map(|hidden| forms.map(|form| (hidden, form))).flat_map(|case| [case; 4]);
    let mut cases: Vec<Case> = all
        .map(|(hidden, form)| {
            let count = world * random.below(if hidden < 100 { 24 } else { 5 });
            Case::any(&mut random, form, world, hidden, count)
        })
        .collect();
    shuffle(seed, &mut cases);
    let cases = cases_of(world, number, cases);
    // Regions that hold some of the rows, some of them several times, and not all.
    let mut config = config();
    config.two_shot_sentinel_bytes = 12_000;
    config.check_calls = world.is_multiple_of(2);
    threads(world, &config, |rank| {
        let bench = Bench::new(rank, &data, &residual.inputs[0]);
        cases.iter().for_each(|case| bench.check(case));
    });
}

#[test]
fn every_scattered_norm() {
    let worlds: &[usize] = if full() { &[1, 2, 3, 4, 5, 7, 8] } else { &[1, 2, 3, 8] };
    for world in worlds.iter().copied().filter(|world| fits(*world)) {
        every_case::<bf16>(world, 0);
        every_case::<f16>(world, 1);
        every_case::<f32>(world, 2);
    }
}

#[test]
fn bad_input_is_refused() {
    threads(2, &config(), |rank: &Rank| {
        let buffer = rank.communicator.symmetric::<f32>(64).unwrap();
        let weight = DeviceBuffer::<f32>::new(&rank.device, 4).unwrap();
        let at = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
        let rows = |len: usize| RowNorm::new(at(0, len), &weight, NORM);
        let norm = |gathers, rows| match gathers {
            true => rank.communicator.reduce_scatter_norm_all_gather(rows, &rank.stream),
            false => rank.communicator.reduce_scatter_norm(rows, &rank.stream),
        };
        for gathers in [false, true] {
            let call = |rows| norm(gathers, rows);
            refused(call(rows(12).output(at(32, 12))), &["number of rows is 3", "multiple of the world size, 2"]);
            refused(call(rows(8).residual(at(16, 8)).output(at(32, 4))), &["residual's length is 8", "1 rows of 4"]);
            refused(call(rows(8).residual_out(at(16, 8))), &["residual_out's length is 8", "1 rows of 4"]);
            refused(call(rows(8)), &["number of outputs is 0"]);
            let others = 4 * (1 - rank.rank());
            refused(call(rows(8).residual_out(at(others, 4))), &["residual_out", "the input", "in place they are"]);
            let ring = rows(8).residual_out(at(16, 4)).algorithm(Algorithm::Ring);
            refused(call(ring), &["by ring is not supported", "its algorithms are two-shot-sentinel"]);
        }
        refused(norm(false, rows(8).output(at(32, 8))), &["output's length is 8", "1 rows of 4"]);
        refused(norm(true, rows(8).output(at(32, 4))), &["output's length is 4", "2 rows of 4"]);
        let plain = DeviceBuffer::<f32>::new(&rank.device, 8).unwrap();
        let direct = RowNorm::new(&plain, &weight, NORM).output(&plain).algorithm(Algorithm::TwoShotZeroCopy);
        refused(norm(true, direct), &["by two-shot-zero-copy is not supported", "symmetric or adopted memory"]);
        let ends = rows(8).output(at(32, 4)).algorithm(Algorithm::TwoShotZeroCopy);
        refused(norm(false, ends), &["by two-shot-zero-copy is not supported"]);
        let whole = norm(true, rows(8).output(at(4, 8)));
        refused(whole, &["the output", "the input", "in place they are"]);
        rank.finish();
    });
}

/// A named algorithm is refused where its scratch has no room for a row; without a name, the call is served.
#[test]
fn a_row_that_fits_no_scratch() {
    let mut small = config();
    small.two_shot_sentinel_bytes = 16 << 10;
    threads(2, &small, |rank: &Rank| {
        let [rows, weight, output] =
            [2 << 18, 1 << 18, 1 << 18].map(|len| DeviceBuffer::<f32>::new(&rank.device, len).unwrap());
        let norm = || RowNorm::new(&rows, &weight, NORM).output(&output);
        let named = norm().algorithm(Algorithm::TwoShotSentinel);
        refused(
            rank.communicator.reduce_scatter_norm(named, &rank.stream),
            &["two-shot-sentinel", "two_shot_sentinel_bytes makes slots of 8192 bytes, and a row takes 1048704"],
        );
        rank.communicator.reduce_scatter_norm(norm(), &rank.stream).unwrap();
        rank.finish();
        let found = |direct, gathers, hidden| {
            let ranges = rank.communicator.explain_scattered_norm(Dtype::F32, hidden, false, direct, gathers);
            ranges.iter().map(|range| range.choice).collect::<Vec<_>>()
        };
        use Algorithm::{Auto, TwoShotSentinel, TwoShotZeroCopy};
        assert_eq!(found(true, true, 100), [TwoShotSentinel, TwoShotZeroCopy]);
        assert_eq!(found(true, false, 100), [TwoShotSentinel, Auto]);
        assert_eq!(found(false, true, 1 << 18), [Auto]);
        assert_eq!(found(true, true, 1 << 18), [Auto, TwoShotZeroCopy]);
        let quantised = rank.communicator.explain_scattered_norm(Dtype::F32, 100, true, true, false);
        assert_eq!(quantised.iter().map(|range| range.choice).collect::<Vec<_>>(), [TwoShotSentinel, Auto]);
    });
}

/// More than the pushed sizes, between plain calls on the flags: by the zero-copy kernel, in place and with x kept.
#[test]
fn large_messages_go_without_copies() {
    let (world, hidden, count) = (2, 2880, 128);
    if !fits(world) {
        return;
    }
    let data = Data::<f32>::new(21, world, hidden * count);
    let mut config = config();
    config.heap_bytes = 32 << 20;
    threads(world, &config, |rank: &Rank| {
        let stream = &rank.stream;
        let buffer = rank.communicator.symmetric::<f32>(hidden * count).unwrap();
        let summed = rank.communicator.symmetric::<f32>(1000).unwrap();
        let weights = vec![0.5f32; hidden];
        let weight = DeviceBuffer::from_slice(&weights, stream).unwrap();
        let share = hidden * count / world;
        let kept = DeviceBuffer::<f32>::new(&rank.device, share).unwrap();
        let graph = stream.capture(|capture| {
            rank.communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &summed, &summed, capture)?;
            let rows = RowNorm::new(&buffer, &weight, NORM).residual_out(&kept).output(&buffer);
            rank.communicator.reduce_scatter_norm_all_gather(rows, capture)
        });
        let graph = graph.unwrap();
        for _ in 0..3 {
            buffer.write(&data.inputs[rank.rank()], stream).unwrap();
            graph.launch(stream).unwrap();
            rank.finish();
            assert_same(&buffer.read(stream).unwrap(), &norm::normed(&data.sums, &weights, NORM), &"output");
            let own = &data.sums[rank.rank() * share..(rank.rank() + 1) * share];
            assert_same(&kept.read(stream).unwrap(), own, &"x");
        }
    });
}

/// Rows that are summed and not normed: by the zero-copy kernel where it is named, and where the message is large on the CPU.
#[test]
fn sums_alone_go_without_copies() {
    let (world, hidden) = (2, 2880);
    if !fits(world) {
        return;
    }
    let data = Data::<f32>::new(22, world, hidden * 128);
    let mut config = config();
    config.heap_bytes = 32 << 20;
    threads(world, &config, |rank: &Rank| {
        let stream = &rank.stream;
        let buffer = rank.communicator.symmetric::<f32>(hidden * 128).unwrap();
        let weight = DeviceBuffer::from_slice(&vec![0.5f32; hidden], stream).unwrap();
        for (count, algorithm) in [(2, Algorithm::TwoShotZeroCopy), (128, Algorithm::Auto)] {
            let (all, share) = (hidden * count, hidden * count / world);
            buffer.write(&data.inputs[rank.rank()], stream).unwrap();
            let kept = DeviceBuffer::<f32>::new(&rank.device, share).unwrap();
            let rows = RowNorm::new(buffer.slice(0..all).unwrap(), &weight, NORM).residual_out(&kept);
            rank.communicator.reduce_scatter_norm_all_gather(rows.algorithm(algorithm), stream).unwrap();
            rank.finish();
            let own = &data.sums[rank.rank() * share..(rank.rank() + 1) * share];
            assert_same(&kept.read(stream).unwrap(), own, &"x");
        }
    });
}

/// A rank that does not call is named in time, by an error of the operation, in every kernel that waits.
#[test]
fn a_rank_that_skips_is_named() {
    let forms = [
        (Operation::ReduceScatterNorm, Algorithm::TwoShotSentinel),
        (Operation::ReduceScatterNormAllGather, Algorithm::TwoShotSentinel),
        (Operation::ReduceScatterNormAllGather, Algorithm::TwoShotZeroCopy),
    ];
    for (operation, algorithm) in forms {
        let mut short = config();
        short.deadlines.steady = Duration::from_secs(1);
        let errors = meet(2, |bootstrap| {
            let rank = open(bootstrap, &short).unwrap();
            let buffer = rank.communicator.symmetric::<f32>(20).unwrap();
            let at = |start: usize, len: usize| buffer.slice(start..start + len).unwrap();
            let norm = || {
                let rows = RowNorm::new(at(0, 8), at(16, 4), NORM).algorithm(algorithm);
                match operation {
                    Operation::ReduceScatterNorm => {
                        rank.communicator.reduce_scatter_norm(rows.output(at(8, 4)), &rank.stream)
                    }
                    _ => rank.communicator.reduce_scatter_norm_all_gather(rows.output(at(8, 8)), &rank.stream),
                }
            };
            norm().unwrap();
            rank.finish();
            if rank.rank() == 0 {
                norm().unwrap();
                return rank.communicator.synchronize(&rank.stream).unwrap_err();
            }
            until(Duration::from_secs(20), "rank 0 gives up", || rank.communicator.group().check().is_err());
            norm().unwrap_err()
        });
        if errors.is_empty() {
            return; // the world does not fit this machine
        }
        let Error::Timeout { operation: found, rank, .. } = &errors[0] else { panic!("{}", errors[0]) };
        assert_eq!((*found, *rank), (operation, Some(1)));
        assert!(matches!(errors[1], Error::Aborted { .. }), "{}", errors[1]);
    }
}

/// All ranks learn that the norms of two ranks differ, in the operation or in its settings.
#[test]
fn ranks_that_differ_learn_it() {
    let mut compared = config();
    compared.check_calls = true;
    for settings in [false, true] {
        let errors = meet(2, |bootstrap| {
            let rank = open(bootstrap, &compared).unwrap();
            let buffer = DeviceBuffer::<f32>::new(&rank.device, 64).unwrap();
            let at = |start: usize, len: usize| buffer.borrow().slice(start..start + len).unwrap();
            let first = rank.rank() == 0;
            let norm = if settings && first { RmsNorm::gemma(1e-6) } else { NORM };
            let rows = RowNorm::new(at(0, 8), at(60, 4), norm).residual(at(8, 4));
            let called = match settings || first {
                true => rank.communicator.reduce_scatter_norm(rows.output(at(16, 4)), &rank.stream),
                false => rank.communicator.reduce_scatter_norm_all_gather(rows.output(at(16, 8)), &rank.stream),
            };
            called.unwrap();
            let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
            assert_eq!(rank.communicator.close(), Err(error.clone()));
            error
        });
        for error in errors {
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
            assert!(error.to_string().contains("reduce-scatter-norm"), "{error}");
        }
    }
}
