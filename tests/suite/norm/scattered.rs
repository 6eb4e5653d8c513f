//! Norms of rows that are scattered over the ranks: every bit of every buffer, the calls that are refused, and ranks that
//! differ.

use half::{bf16, f16};
use symmetra::{Algorithm, DeviceBuffer, Error, Result, RmsNorm, RowNorm};

use super::rows::{Bench, Case, Form, ROOM};
use crate::support::data::{Random, mix, shuffle};
use crate::support::extent::cases_of;
use crate::support::norm::Narrow;
use crate::support::world::{meet, open};
use crate::support::{Data, Rank, config, fits, threads};

/// Elements of a row: short of a packet, around packets and columns, and more than a block stages.
const HIDDEN: [usize; 16] = [1, 3, 7, 8, 9, 16, 31, 64, 100, 127, 513, 1000, 1001, 2048, 2880, 8200];
const NORM: RmsNorm = RmsNorm::new(1e-6);

fn every_case<T: Narrow>(world: usize, number: usize) {
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
    // Regions that hold some of the messages, and not all.
    let mut config = config();
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(20_000), 40_000);
    config.check_calls = world.is_multiple_of(2);
    threads(world, &config, |rank| {
        let bench = Bench::new(rank, &data, &residual.inputs[0]);
        cases.iter().for_each(|case| bench.check(case));
    });
}

#[test]
fn every_scattered_norm() {
    for world in [1, 2, 3, 4, 8].into_iter().filter(|world| fits(*world)) {
        every_case::<bf16>(world, 0);
        every_case::<f16>(world, 1);
        every_case::<f32>(world, 2);
    }
}

/// What is refused, and how it is said.
fn refused(result: Result<()>, words: &[&str]) {
    let error = result.unwrap_err();
    for word in words {
        assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
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
            refused(call(ring), &["by ring is not supported"]);
        }
        refused(norm(false, rows(8).output(at(32, 8))), &["output's length is 8", "1 rows of 4"]);
        refused(norm(true, rows(8).output(at(32, 4))), &["output's length is 4", "2 rows of 4"]);
        let whole = norm(true, rows(8).output(at(4, 8)));
        refused(whole, &["the output", "the input", "in place they are"]);
        rank.finish();
    });
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
