//! The times of all calls of a process and its children, collected while they run.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::processes::{HostPages, OpenPage};
use super::timings::{Span, spans};
use crate::error::{Error, Result};
use crate::group::{Seen, TimedCall};

/// Collects the times of the calls of groups whose calls are timed, and writes them as a trace.
///
/// Each rank keeps its last 4096 calls, so [`look`](Self::look) must be called often enough. The tracer only reads, and can read
/// the pages of ranks that have ended.
#[derive(Default)]
pub struct Tracer {
    pages: BTreeMap<[u64; 2], Traced>,
    /// Calls that were overwritten before a look.
    lost: u64,
}

/// A rank of a group.
struct Traced {
    found: OpenPage,
    rank: usize,
    /// The number of the rank in the world, if the group has a name.
    world_rank: Option<usize>,
    world_size: usize,
    /// The number of the group; 0 until the ranks have shared their pages.
    group: u64,
    name: String,
    process: u64,
    calls: Vec<TimedCall>,
    next: u64,
}

/// One look of a tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Looked {
    /// The ranks that are traced.
    pub ranks: usize,
    /// The most new calls of a rank. A rank keeps 4096.
    pub new_calls: u64,
}

/// An event of Chrome's trace format, which Perfetto opens.
#[derive(Serialize)]
struct TraceEvent<'t> {
    name: &'t str,
    ph: &'static str,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: serde_json::Value,
}

impl Tracer {
    /// A tracer that knows no rank yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for ranks of process `of` and of the processes that it started. Reads the list of all processes, which takes
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::System`] if `/proc` cannot be read.
    pub fn find(&mut self, of: u32) -> Result<()> {
        let host = HostPages::look().map_err(|error| Error::system("read /proc", &error))?;
        for (number, found) in host.pages {
            if !self.pages.contains_key(&number) && found.holders.iter().any(|holder| holder.descends_from(of)) {
                self.pages.entry(number).or_insert(Traced::new(found));
            }
        }
        Ok(())
    }

    /// Reads the new calls of all known ranks.
    pub fn look(&mut self) -> Looked {
        let mut looked = Looked { ranks: 0, new_calls: 0 };
        for page in self.pages.values_mut() {
            let [new_calls, lost] = page.look();
            self.lost += lost;
            looked.new_calls = looked.new_calls.max(new_calls);
            looked.ranks += usize::from(page.world_size > 0);
        }
        looked
    }

    /// The number of calls of all ranks that are known, and of calls that were overwritten before a look.
    #[must_use]
    pub fn calls(&self) -> [u64; 2] {
        [self.pages.values().map(|page| page.calls.len() as u64).sum(), self.lost]
    }

    /// Writes all calls in Chrome's trace format as JSON: a process for each rank of each process, a thread for each group, and
    /// in each call the part that was waiting for another rank. A rank of a named group has its number in the world, another
    /// rank its number in its group. Times are in microseconds from the first call on. The clocks of the devices are set to
    /// each other by the ends of the calls that their ranks share.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write(&self, mut to: impl std::io::Write) -> std::io::Result<()> {
        let groups = self.groups();
        let clocks: Vec<Vec<i64>> = groups.iter().map(|group| offsets(&group.calls())).collect();
        let at = |group: usize, rank: usize, ns: u64| ns as i64 - clocks[group].get(rank).copied().unwrap_or(0);
        let all: Vec<Vec<Span>> = groups.iter().map(|group| spans(&group.calls())).collect();
        let begins = all
            .iter()
            .enumerate()
            .flat_map(|(group, spans)| spans.iter().map(move |span| (group, span.rank, span.call.begin_ns)));
        let start_ns = begins.map(|(group, rank, ns)| at(group, rank, ns)).min().unwrap_or(0);
        let us = |group: usize, rank: usize, ns: u64| (at(group, rank, ns) - start_ns) as f64 / 1e3;
        to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut first = true;
        let mut put = |event: &TraceEvent<'_>| -> std::io::Result<()> {
            to.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut to, event).map_err(std::io::Error::from)
        };
        let tracks: BTreeSet<(usize, u64)> =
            groups.iter().flat_map(|group| group.ranks.iter().flatten()).map(|page| page.track()).collect();
        for (tid, (group, spans)) in groups.iter().zip(&all).enumerate() {
            let number = |page: &Traced| tracks.range(..page.track()).count();
            let pids: Vec<usize> = group.ranks.iter().map(|page| page.map_or(0, number)).collect();
            for (page, pid) in group.ranks.iter().zip(&pids).filter_map(|(page, pid)| Some((page.as_ref()?, *pid))) {
                let named = |name: &'static str, text: String| TraceEvent {
                    name,
                    ph: "M",
                    pid,
                    tid,
                    ts: None,
                    dur: None,
                    args: serde_json::json!({ "name": text }),
                };
                let (rank, process) = page.track();
                put(&named("process_name", format!("rank {rank} (process {process})")))?;
                put(&named("thread_name", group.title(tid)))?;
            }
            for span in spans {
                let call = span.call.call.map_or_else(|| "a call without a label".to_owned(), |call| call.to_string());
                let begin = us(tid, span.rank, span.call.begin_ns);
                let mut event = TraceEvent {
                    name: &call,
                    ph: "X",
                    pid: pids[span.rank],
                    tid,
                    ts: Some(begin),
                    dur: Some(span.ns() as f64 / 1e3),
                    args: serde_json::json!({ "number": span.call.number }),
                };
                put(&event)?;
                if let Some((waited_ns, last)) = span.waited.filter(|(waited_ns, _)| *waited_ns > 0) {
                    let name = format!("waits for rank {last}");
                    event = TraceEvent { name: &name, dur: Some(waited_ns as f64 / 1e3), ..event };
                    put(&event)?;
                }
            }
        }
        to.write_all(b"\n]}\n")?;
        to.flush()
    }

    /// The groups, in the order of their numbers.
    fn groups(&self) -> Vec<TracedGroup<'_>> {
        let mut groups: BTreeMap<u64, TracedGroup<'_>> = BTreeMap::new();
        for page in self.pages.values().filter(|page| page.group > 0 && !page.calls.is_empty()) {
            let group = groups.entry(page.group).or_insert_with(|| TracedGroup { ranks: vec![None; page.world_size] });
            if let Some(rank) = group.ranks.get_mut(page.rank) {
                *rank = Some(page);
            }
        }
        groups.into_values().collect()
    }
}

/// The ranks of a group that are traced.
struct TracedGroup<'t> {
    ranks: Vec<Option<&'t Traced>>,
}

impl TracedGroup<'_> {
    fn calls(&self) -> Vec<Vec<TimedCall>> {
        self.ranks.iter().map(|page| page.map_or_else(Vec::new, |page| page.calls.clone())).collect()
    }

    fn title(&self, number: usize) -> String {
        let name = self.ranks.iter().flatten().map(|page| page.name.as_str()).find(|name| !name.is_empty());
        name.map_or_else(|| format!("group {number}"), |name| format!("group `{name}`"))
    }
}

impl Traced {
    fn new(found: OpenPage) -> Self {
        let (rank, world_rank, world_size, group, name) = (0, None, 0, 0, String::new());
        Self { found, rank, world_rank, world_size, group, name, process: 0, calls: Vec::new(), next: 0 }
    }

    /// The row of the rank in the trace, which all its groups share: its number in the world, as far as known, and its process.
    fn track(&self) -> (usize, u64) {
        (self.world_rank.unwrap_or(self.rank), self.process)
    }

    /// Reads the new calls. Returns their number, and the number of calls that were overwritten.
    fn look(&mut self) -> [u64; 2] {
        let Ok(page) = Seen::copy(&self.found.file) else { return [0; 2] };
        if let (Some([rank, world_size]), Some(group)) = (page.place(), page.group()) {
            let (namespace, inner) = page.owner();
            self.process = self.found.process([namespace, inner.into()]);
            (self.rank, self.world_size, self.group, self.name) = (rank, world_size, group, page.name());
            self.world_rank = page.world_rank();
        }
        let new = page.times(self.next);
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return [0; 2] };
        let lost = first.number - self.next;
        self.next = last.number + 1;
        self.calls.extend(&new);
        [new.len() as u64 + lost, lost]
    }
}

/// For each rank, the time of its device's clock after that of the first rank: the median of the differences between the ends
/// of the calls that both ranks share.
fn offsets(ranks: &[Vec<TimedCall>]) -> Vec<i64> {
    let ends =
        |calls: &[TimedCall]| -> BTreeMap<u32, u64> { calls.iter().map(|call| (call.finished, call.end_ns)).collect() };
    let Some(first) = ranks.iter().find(|calls| !calls.is_empty()).map(|calls| ends(calls)) else { return Vec::new() };
    let offset = |calls: &Vec<TimedCall>| {
        let mut differences: Vec<i64> = ends(calls)
            .iter()
            .filter_map(|(number, end_ns)| Some(end_ns.wrapping_sub(*first.get(number)?) as i64))
            .collect();
        differences.sort_unstable();
        differences.get(differences.len() / 2).copied().unwrap_or(0)
    };
    ranks.iter().map(offset).collect()
}

#[cfg(test)]
#[path = "../../tests/unit/observe/tracer.rs"]
mod tests;
