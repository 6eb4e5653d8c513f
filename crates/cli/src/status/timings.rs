//! The times of calls as a table: a row for each operation, size class and algorithm.

use symmetra::observe::{CallTimes, ObservedGroup, Timings};

use harness::bytes;
use harness::table::Table;

/// The times of a group as text.
pub(super) fn text(group: &ObservedGroup) -> String {
    let Timings { calls, unlabelled, .. } = &group.timings;
    if calls.is_empty() {
        let hint =
            "no times: start the program with SYMMETRA_TIMING=1, on GPUs with a build that has the feature `timing`";
        return hint.to_owned();
    }
    let headings =
        ["operation", "up to", "algorithm", "calls", "median us", "p99 us", "total us", "GB/s", "waits %", "for rank"];
    let mut table = Table::new(headings, [1, 3, 4, 5, 6, 7, 8, 9]);
    calls.iter().for_each(|times| table.add_row(row(times)));
    match unlabelled {
        0 => table.to_string(),
        calls => format!("{table}\n{calls} more calls are of operations, sizes and algorithms beyond the first 1024"),
    }
}

fn row(times: &CallTimes) -> [String; 10] {
    let [waits, rank] = waits(times);
    [
        times.operation.clone(),
        bytes::format(times.up_to_bytes),
        times.algorithm.unwrap_or("-").to_owned(),
        times.calls.to_string(),
        format!("{:.2}", times.median_us),
        format!("{:.2}", times.p99_us),
        format!("{:.0}", times.total_us),
        times.busbw_gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.2}")),
        waits,
        rank,
    ]
}

/// The share of the time that was waiting, and the rank for which most of it was.
fn waits(times: &CallTimes) -> [String; 2] {
    let known = times.attributed > 0.0;
    let share: f64 = times.waits.iter().map(|wait| wait.share).sum();
    let most = times.waits.first().map_or_else(|| "-".to_owned(), |wait| wait.rank.to_string());
    [if known { format!("{:.0}", share * 100.0) } else { "-".to_owned() }, most]
}
