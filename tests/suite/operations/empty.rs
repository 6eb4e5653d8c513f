//! Calls without elements: nothing is enqueued but, where calls are compared, the comparison.

use symmetra::{Error, Queue, Reduction, Result, SymmetricBuffer};

use super::refused::failing;
use crate::support::{Rank, config, threads};

/// Every operation whose size all ranks know.
const OPS: usize = 14;
/// Room for the largest operand, and for the smaller operands after it.
const ROOM: usize = 64;

/// Makes call number `op` of three ranks, of `elems` elements a part.
fn call<'op>(
    op: usize,
    rank: &'op Rank,
    buffer: &'op SymmetricBuffer<f32>,
    elems: usize,
    queue: impl Queue<'op>,
) -> Result<()> {
    let Rank { communicator, .. } = rank;
    let (part, whole) = (buffer.slice(..elems)?, buffer.slice(ROOM / 2..ROOM / 2 + 3 * elems)?);
    let is_root = rank.rank() == 1;
    match op {
        0 => communicator.all_reduce_in_place(part, queue),
        1 => communicator.bind_all_reduce(part, part)?.enqueue(queue),
        2 => communicator.all_gather(part, whole, queue),
        3 => communicator.reduce_scatter(whole, part, Reduction::Max, queue),
        4 => communicator.all_to_all(buffer.slice(..3 * elems)?, whole, queue),
        5 => communicator.broadcast(part, 1, queue),
        6 => communicator.reduce(part, is_root.then_some(part), Reduction::Sum, 1, queue),
        7 => communicator.reduce_in_place(part, Reduction::Sum, 1, queue),
        8 => communicator.gather(part, is_root.then_some(whole), 1, queue),
        9 => communicator.scatter(is_root.then_some(whole), part, 1, queue),
        10 => communicator.all_gather_v(part, whole, &[elems; 3], queue),
        11 => communicator.reduce_scatter_v(whole, part, &[elems; 3], Reduction::Sum, queue),
        12 => communicator.low_contention_all_gather(part, whole, queue).map(drop),
        _ => communicator.low_contention_reduce_scatter(whole, part, Reduction::Sum, queue).map(drop),
    }
}

/// Without the error the other ranks would meet the next call of the rank that has no elements.
#[test]
fn pitfall_4_a_rank_without_elements_is_told_so() {
    for (op, captured) in (0..2 * OPS).map(|case| (case / 2, case % 2 == 1)) {
        let mut config = config();
        config.check_calls = true;
        let errors = failing(&config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            communicator.reserve_workspace(ROOM * size_of::<f32>())?;
            let buffer = communicator.symmetric::<f32>(ROOM)?;
            let elems = if rank.rank() == 2 { 0 } else { 8 };
            match captured {
                true => {
                    stream.capture(|capture| call(op, rank, &buffer, elems, capture))?.launch(stream)?;
                }
                false => call(op, rank, &buffer, elems, stream)?,
            }
            communicator.all_reduce_in_place(buffer.slice(..8)?, stream)?;
            communicator.synchronize(stream)
        });
        for error in errors {
            let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{op}: {error}") };
            let empty = [ours, theirs].map(|call| call.contains(" of 0 bytes of f32"));
            assert_eq!(empty.iter().filter(|empty| **empty).count(), 1, "{op}: {error}");
        }
    }
}

/// With comparison, ranks compare these calls with those of other ranks, eager or captured. Without comparison, the
/// calls meet no other rank, and rank 0 makes them alone.
#[test]
fn calls_without_elements_move_nothing() {
    for check_calls in [false, true] {
        let mut config = config();
        config.check_calls = check_calls;
        threads(3, &config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let buffer = communicator.symmetric::<f32>(ROOM).unwrap();
            buffer.write(&[1.0; ROOM], stream).unwrap();
            for op in (0..OPS).filter(|_| check_calls || rank.rank() == 0) {
                let graph = stream.capture(|capture| call(op, rank, &buffer, 0, capture)).unwrap();
                for launched in [rank.rank() == 0, rank.rank() == 1, true] {
                    match launched {
                        true => graph.launch(stream).unwrap(),
                        false => call(op, rank, &buffer, 0, stream).unwrap(),
                    }
                }
            }
            rank.finish();
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
            rank.finish();
            assert_eq!(buffer.read(stream).unwrap(), [3.0; ROOM]);
        });
    }
}
