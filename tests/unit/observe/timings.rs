//! Tests of `src/observe/timings.rs`, whose module they are.

use super::*;
use crate::group::EnqueuedCall;
use crate::types::{Dtype, Reduction};

/// A call of an operation after `finished` collectives, of `ns` nanoseconds from `begin_ns` on.
fn called(operation: Operation, bytes: u64, finished: u32, begin_ns: u64, ns: u64) -> TimedCall {
    let call = EnqueuedCall::new(bytes, operation.number(), Dtype::F32, Reduction::Sum, 0, 0);
    TimedCall { number: u64::from(finished), begin_ns, end_ns: begin_ns + ns, finished, call: Some(call) }
}

fn all_reduce(finished: u32, ns: u64) -> TimedCall {
    called(Operation::AllReduce, 1000, finished, u64::from(finished) * 100_000, ns)
}

#[test]
fn the_rank_that_takes_the_least_time_came_last() {
    // The clocks of the ranks differ by any time.
    let ranks = [
        vec![all_reduce(1, 52_000), all_reduce(2, 2_000)],
        vec![all_reduce(1, 2_000), all_reduce(2, 2_000)],
        vec![all_reduce(1, 42_000), TimedCall { begin_ns: 7, end_ns: 12_007, ..all_reduce(2, 0) }],
    ];
    let spans = spans(&ranks);
    let waited: Vec<_> = spans.iter().map(|span| (span.rank, span.waited)).collect();
    let expected = [(0, (50_000, 1)), (0, (0, 0)), (1, (0, 1)), (1, (0, 0)), (2, (40_000, 1)), (2, (10_000, 0))];
    assert_eq!(waited, expected.map(|(rank, waited)| (rank, Some(waited))));

    let timings = Timings::of(spans.iter().filter(|span| span.rank == 2), 3, 1);
    let [row] = &timings.calls[..] else { panic!("{timings:?}") };
    assert_eq!((row.operation.as_str(), row.up_to_bytes, row.calls), ("all-reduce", 1024, 2));
    assert_eq!((row.median_us, row.p99_us, row.total_us, row.attributed), (12.0, 42.0, 54.0, 1.0));
    let share = |rank, ns: f64| ShareOfWait { rank, share: ns / 54_000.0, mean_us: ns / 1e3 };
    assert_eq!(row.waits, [share(1, 40_000.0), share(0, 10_000.0)]);
    // Two messages, of which each crosses a link 4/3 times, in 4 us without waiting.
    assert_eq!(row.busbw_gbps, Some(2000.0 * 4.0 / 3.0 / 4000.0));

    // All ranks: the calls of a rank, and the times of all.
    let timings = Timings::of(spans.iter(), 3, 3);
    assert_eq!((timings.calls[0].calls, timings.calls[0].median_us), (2, 2.0));
    assert_eq!(timings.calls[0].total_us, (54.0 + 4.0 + 54.0) / 3.0);
}

#[test]
fn waits_are_unknown_where_a_rank_has_no_times() {
    let other = called(Operation::Broadcast, 1000, 2, 0, 1_000);
    let pairs = called(Operation::Pairs, 1000, 3, 0, 1_000);
    let ranks = [vec![all_reduce(1, 5_000), all_reduce(2, 5_000), pairs], vec![other, pairs]];
    let spans = spans(&ranks);
    assert!(spans.iter().all(|span| span.waited.is_none()));
    let timings = Timings::of(spans.iter().filter(|span| span.rank == 0), 2, 1);
    let rows: Vec<_> = timings.calls.iter().map(|row| (row.operation.as_str(), row.attributed, row.calls)).collect();
    assert_eq!(rows, [("all-reduce", 0.0, 2), ("pairs", 0.0, 1)]);
    assert!(timings.calls.iter().all(|row| row.waits.is_empty()));
    // Messages have no bus bandwidth.
    assert!(timings.calls[1].busbw_gbps.is_none());
}

#[test]
fn rows_are_sorted_and_calls_without_a_label_are_counted() {
    let gather = |finished| called(Operation::AllGather, 1 << 20, finished, 0, 50_000);
    let unlabelled = TimedCall { call: None, ..all_reduce(9, 1) };
    let ranks = [vec![all_reduce(1, 5_000), gather(2), unlabelled], vec![all_reduce(1, 5_000), gather(2)]];
    let timings = Timings::of(spans(&ranks).iter(), 2, 2);
    let rows: Vec<_> = timings.calls.iter().map(|row| (row.operation.as_str(), row.up_to_bytes)).collect();
    assert_eq!((rows, timings.unlabelled), (vec![("all-gather", 1 << 20), ("all-reduce", 1024)], 1));
    // The larger operand of an all-gather has a part for each rank, of which half crosses a link.
    assert_eq!(timings.calls[0].busbw_gbps, Some(2.0 * 2.0 * f64::from(1 << 20) / 2.0 / 100_000.0));
    assert!(Timings::of(std::iter::empty(), 2, 2).calls.is_empty());
}
