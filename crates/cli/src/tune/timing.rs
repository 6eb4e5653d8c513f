//! Times graphs in turn; the ranks agree on the results.

use std::collections::BTreeMap;

use symmetra::{Communicator, DeviceKind, Graph};

use harness::comparison::repeats::Repeats;
use harness::comparison::stopwatch::Stopwatch;
use harness::failure::Failure;
use harness::statistics::{median, slowest};

pub(super) struct Timing<'t, 'w> {
    pub(super) communicator: &'t Communicator,
    pub(super) stopwatch: &'t Stopwatch<'w>,
    /// Operations of one launch; `None`: by the size of the message.
    pub(super) operations: Option<u32>,
    /// Launches of each graph.
    pub(super) launches: Repeats,
}

impl Timing<'_, '_> {
    /// Operations of one launch: 40, and fewer where operations take long.
    pub(super) fn operations(&self, bytes: u64) -> u32 {
        let (budget_bytes, least) = match self.communicator.device().kind() {
            DeviceKind::Host => (32 << 20, 2),
            _ => (512 << 20, 4),
        };
        self.operations.unwrap_or_else(|| u64::clamp(budget_bytes / bytes.max(1), least, 40) as u32)
    }

    /// This rank's time of one operation, for every graph of `operations` operations and every launch.
    pub(super) fn time(&self, graphs: &[Graph<'_>], operations: u32) -> Result<Vec<Vec<f64>>, Failure> {
        self.time_ways(graphs.len(), operations, |way| graphs[way].launch(self.stopwatch.stream()))
    }

    /// This rank's time of one operation, for each of `ways` candidates and every launch. `enqueue` enqueues
    /// `operations` operations of a candidate. The candidates take turns, so that drift affects all alike.
    pub(super) fn time_ways(
        &self,
        ways: usize,
        operations: u32,
        enqueue: impl Fn(usize) -> symmetra::Result<()>,
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let mut times_us = vec![Vec::new(); ways];
        for timed in self.launches.runs() {
            for (way, times_us) in times_us.iter_mut().enumerate() {
                let time = self.stopwatch.time(|| enqueue(way))?;
                times_us.extend(timed.then_some(time.device_us / f64::from(operations)));
            }
        }
        Ok(times_us)
    }

    /// The median over the launches of the slowest rank's time, by name. All ranks get the same values.
    pub(super) fn agree(&self, names: &[String], times_us: &[Vec<f64>]) -> Result<BTreeMap<String, u64>, Failure> {
        let own = serde_json::to_vec(times_us).map_err(Failure::doing("write times"))?;
        let all = self.communicator.group().all_gather_bytes(&own)?;
        let all: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|bytes| serde_json::from_slice(bytes))
            .collect::<Result<_, _>>()
            .map_err(Failure::doing("read times"))?;
        let time_ns = |(number, name): (usize, &String)| {
            let times = slowest(all.iter().filter_map(|times| times.get(number)).map(Vec::as_slice));
            (name.clone(), (median(times) * 1e3).round() as u64)
        };
        Ok(names.iter().enumerate().map(time_ns).collect())
    }
}
