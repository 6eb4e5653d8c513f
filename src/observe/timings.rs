//! Statistics of the times of calls, and the rank for which each call waited.
//!
//! All ranks of a collective end at nearly the same time, because none ends before the data of the last rank have come. A rank
//! that begins early therefore takes longer than the last rank, by the time for which it waits. So the shortest time of a call
//! among its ranks is the time that the call takes, the rank with that time is the last, and the rest of the other ranks' times
//! is waiting for that rank. Clocks of different devices are never compared.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::collective::Communicator;
use crate::error::{Error, Operation, Result};
use crate::group::TimedCall;
use crate::op::{Op, Size};

/// The times of the last calls of a group whose calls are timed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Timings {
    /// A row for each operation, size class and algorithm, in order of total time, the largest first.
    pub calls: Vec<CallTimes>,
    /// Calls without a label, because a rank has made calls of more than 1024 operations, sizes and algorithms.
    pub unlabelled: u64,
}

/// The times of the calls of one operation, size class and algorithm.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallTimes {
    /// The name of the operation.
    pub operation: String,
    /// The algorithm or transport; `None` for operations that have only one.
    pub algorithm: Option<&'static str>,
    /// The size class: calls of more than half as many bytes, and at most as many. Bytes are those of the message, and for
    /// operations with a part for each rank those of the largest part.
    pub up_to_bytes: u64,
    /// The number of calls of a rank.
    pub calls: u64,
    /// The median of the calls' times in microseconds, from the begin of a call's first kernel to the end of its last one.
    pub median_us: f64,
    /// The time in microseconds that 99 % of the calls do not exceed.
    pub p99_us: f64,
    /// The sum of the times of a rank's calls in microseconds.
    pub total_us: f64,
    /// Bus bandwidth in GB/s, as nccl-tests define it, of the time without waiting; `None` for operations that have none.
    pub busbw_gbps: Option<f64>,
    /// The share of the time that was waiting for each rank, from 0 to 1, the largest first. Ranks for which none waited are
    /// missing.
    pub waits: Vec<ShareOfWait>,
    /// The share of the calls whose waiting is known: those whose times are kept for all ranks. Messages between pairs have none.
    pub attributed: f64,
}

/// The waiting for one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShareOfWait {
    /// The rank that came last.
    pub rank: usize,
    /// The share of the time of all calls of the row, from 0 to 1.
    pub share: f64,
    /// The mean wait in microseconds of a call that waited for this rank.
    pub mean_us: f64,
}

/// A call of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) rank: usize,
    pub(super) call: TimedCall,
    /// How long the rank waited, and for which rank; `None` if the times of another rank are missing.
    pub(super) waited: Option<(u64, usize)>,
}

impl Span {
    pub(super) fn ns(&self) -> u64 {
        ns(&self.call)
    }
}

fn ns(call: &TimedCall) -> u64 {
    call.end_ns.saturating_sub(call.begin_ns)
}

/// The operation of a call that has a label.
fn operation(call: &TimedCall) -> Option<Operation> {
    call.call.and_then(|call| call.operation())
}

/// The calls of all ranks of a group; `ranks` has the calls of each rank.
pub(super) fn spans(ranks: &[Vec<TimedCall>]) -> Vec<Span> {
    // The number of a collective is equal on all ranks. Messages between pairs are calls of two ranks.
    let is_collective = |call: &&TimedCall| call.call.is_some() && operation(call) != Some(Operation::Pairs);
    let mut shortest: HashMap<u32, Vec<(u64, usize, TimedCall)>> = HashMap::new();
    for (rank, calls) in ranks.iter().enumerate() {
        for call in calls.iter().filter(is_collective) {
            shortest.entry(call.finished).or_default().push((ns(call), rank, *call));
        }
    }
    let last = |call: &TimedCall| {
        let all = shortest.get(&call.finished).filter(|all| all.len() == ranks.len())?;
        // A call with another number of a rank that has made 2^32 more calls is another call.
        all.iter().all(|(.., other)| operation(other) == operation(call)).then_some(())?;
        all.iter().map(|(ns, rank, _)| (*ns, *rank)).min()
    };
    let span = |(rank, call): (usize, &TimedCall)| {
        let last = Some(call).filter(is_collective).and_then(last);
        let waited = last.map(|(shortest_ns, last)| (ns(call).saturating_sub(shortest_ns), last));
        Span { rank, call: *call, waited }
    };
    ranks.iter().enumerate().flat_map(|(rank, calls)| calls.iter().map(move |call| (rank, call))).map(span).collect()
}

impl Timings {
    /// The statistics of calls of a group of `world_size` ranks, whose spans are those of `ranks` of the ranks.
    pub(super) fn of<'s>(spans: impl Iterator<Item = &'s Span>, world_size: usize, ranks: usize) -> Self {
        let mut rows: BTreeMap<Key, Vec<&Span>> = BTreeMap::new();
        let mut unlabelled = 0;
        for span in spans {
            match Key::of(span) {
                Some(key) => rows.entry(key).or_default().push(span),
                None => unlabelled += 1,
            }
        }
        let mut calls: Vec<_> = rows.iter().map(|(key, spans)| key.times(spans, world_size, ranks)).collect();
        calls.sort_by(|one, other| other.total_us.total_cmp(&one.total_us));
        Self { calls, unlabelled }
    }
}

/// The operation, algorithm and size class of a row.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    operation: u32,
    algorithm: Option<&'static str>,
    up_to_bytes: u64,
}

impl Key {
    fn of(span: &Span) -> Option<Self> {
        let call = span.call.call?;
        Some(Self { operation: call.op(), algorithm: call.way_name(), up_to_bytes: call.bytes.next_power_of_two() })
    }

    fn times(&self, spans: &[&Span], world_size: usize, ranks: usize) -> CallTimes {
        let operation = Operation::from_number(self.operation);
        let mut times: Vec<u64> = spans.iter().map(|span| span.ns()).collect();
        times.sort_unstable();
        let total_ns: u64 = times.iter().sum();
        // The least time that at least this percentage of the calls do not exceed.
        let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
        let mut waits: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (waited_ns, rank) in spans.iter().filter_map(|span| span.waited).filter(|(waited_ns, _)| *waited_ns > 0) {
            let (sum_ns, calls) = waits.entry(rank).or_default();
            *sum_ns += waited_ns;
            *calls += 1;
        }
        let waited_ns: u64 = waits.values().map(|(ns, _)| ns).sum();
        let share = |(rank, (ns, calls)): (usize, (u64, u64))| ShareOfWait {
            rank,
            share: ns as f64 / total_ns.max(1) as f64,
            mean_us: ns as f64 / calls as f64 / 1e3,
        };
        let mut waits: Vec<ShareOfWait> = waits.into_iter().map(share).collect();
        waits.sort_by(|one, other| other.share.total_cmp(&one.share));
        let bytes: u64 = spans.iter().filter_map(|span| Some(span.call.call?.bytes)).sum();
        let on_link = operation.and_then(Op::of).and_then(|op| {
            let sizes = [op.input.size, op.output.size];
            // Calls with a count for each rank are recorded with their largest part.
            let known = sizes.iter().all(|size| matches!(size, Size::None | Size::One | Size::PerRank | Size::Rows));
            let parts = if sizes.contains(&Size::PerRank) { world_size as f64 } else { 1.0 };
            known.then(|| bytes as f64 * parts * (op.bus_factor)(world_size))
        });
        let moving_ns = total_ns.saturating_sub(waited_ns);
        CallTimes {
            operation: operation.map_or_else(|| format!("operation {}", self.operation), |known| known.to_string()),
            algorithm: self.algorithm,
            up_to_bytes: self.up_to_bytes,
            calls: spans.len().div_ceil(ranks.max(1)) as u64,
            median_us: percentile(50),
            p99_us: percentile(99),
            total_us: total_ns as f64 / ranks.max(1) as f64 / 1e3,
            busbw_gbps: on_link.filter(|_| moving_ns > 0).map(|bytes| bytes / moving_ns as f64),
            waits,
            attributed: spans.iter().filter(|span| span.waited.is_some()).count() as f64 / spans.len().max(1) as f64,
        }
    }
}

impl Communicator {
    /// The times of this rank's last calls, at most 4096, by operation, size class and algorithm, and the share of each that was
    /// waiting for another rank. Counts a call of a graph at each replay, and each launch of a call that takes several launches.
    /// Does not count the last call unless a [`synchronize`](Self::synchronize) followed, calls that copy engines or NCCL run, and
    /// calls in a group of one rank. With `check_calls` the time of a call has its comparison. A call of experts that is begun and received
    /// apart has the time of both, with the work between them. Does not block, and any thread may call it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the group was opened without [`Config::timing`](crate::Config::timing).
    pub fn timings(&self) -> Result<Timings> {
        let group = self.group();
        if !group.is_timed() {
            let reason = "open the group with Config::timing or SYMMETRA_TIMING=1";
            return Err(Error::unsupported("timings of calls that are not timed", reason));
        }
        let spans = spans(&group.times());
        Ok(Timings::of(spans.iter().filter(|span| span.rank == group.rank()), group.world_size(), 1))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/observe/timings.rs"]
mod tests;
