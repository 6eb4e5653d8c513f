//! Times candidates in turn; the ranks agree on the results.

use std::collections::BTreeMap;

use symmetra::{Communicator, DeviceKind, Graph};

use super::calls::{AgreedSize, TunedCalls};
use harness::comparison::repeats::Repeats;
use harness::comparison::stopwatch::Stopwatch;
use harness::comparison::work::Work;
use harness::failure::CommandFailure;
use harness::ranks::Say;
use harness::statistics::{median, slowest};
use reference::element::Summand;

pub(super) struct Timing<'t, 'w> {
    pub(super) communicator: &'t Communicator,
    pub(super) stopwatch: &'t Stopwatch<'w>,
    /// Operations of one launch; `None`: by the size of the message.
    pub(super) operations: Option<u32>,
    /// Launches of each candidate.
    pub(super) launches: Repeats,
}

/// Calls of one size.
#[derive(Clone, Copy)]
pub(super) struct TimedSize<'c> {
    pub(super) calls: &'c TunedCalls,
    /// Bytes of the message of a rank.
    pub(super) bytes: u64,
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

    /// A graph of a number of operations, each of which is the work of a candidate.
    pub(super) fn graph<'o>(&self, work: &Work<'o>, operations: u32) -> symmetra::Result<Graph<'o>> {
        let stream = self.stopwatch.stream();
        // The first call waits for all ranks, and must not be in a graph.
        work(stream.into())?;
        self.communicator.synchronize(stream)?;
        let graph = stream.capture(|capture| (0..operations).try_for_each(|_| work(capture.into())))?;
        graph.register()?;
        Ok(graph)
    }

    /// Times the candidates of one size from graphs. `capture` makes the graph of a candidate, of a number of operations.
    /// Rank 0 reports the trial.
    pub(super) fn trial<'o, C>(
        &self,
        size: TimedSize<'_>,
        candidates: &[(String, C)],
        capture: impl Fn(&C, u32) -> symmetra::Result<Graph<'o>>,
        say: Say<'_, AgreedSize>,
    ) -> Result<BTreeMap<String, u64>, CommandFailure> {
        let operations = self.operations(size.bytes);
        let graphs = candidates.iter().map(|(_, candidate)| capture(candidate, operations));
        let graphs: Vec<Graph<'_>> = graphs.collect::<symmetra::Result<_>>()?;
        let times_us = self.time(&graphs, operations)?;
        self.report(size, candidates.iter().map(|(name, _)| name.as_str()), &times_us, say)
    }

    /// Agrees on the times of the candidates of one size. Rank 0 reports the trial.
    pub(super) fn report<'n>(
        &self,
        size: TimedSize<'_>,
        names: impl Iterator<Item = &'n str>,
        times_us: &[Vec<f64>],
        say: Say<'_, AgreedSize>,
    ) -> Result<BTreeMap<String, u64>, CommandFailure> {
        let times_ns = self.agree(names, times_us)?;
        if self.communicator.rank() == 0 {
            say(AgreedSize { calls: size.calls.clone(), bytes: size.bytes, times_ns: times_ns.clone() })?;
        }
        Ok(times_ns)
    }

    /// This rank's time of one operation, for every graph of `operations` operations and every launch.
    pub(super) fn time(&self, graphs: &[Graph<'_>], operations: u32) -> Result<Vec<Vec<f64>>, CommandFailure> {
        self.time_each(graphs.len(), operations, |number| graphs[number].launch(self.stopwatch.stream()))
    }

    /// This rank's time of one operation, for each of `candidates` candidates and every launch. `enqueue` enqueues
    /// `operations` operations of a candidate. The candidates take turns, so that drift affects all alike.
    pub(super) fn time_each(
        &self,
        candidates: usize,
        operations: u32,
        enqueue: impl Fn(usize) -> symmetra::Result<()>,
    ) -> Result<Vec<Vec<f64>>, CommandFailure> {
        let mut times_us = vec![Vec::new(); candidates];
        for timed in self.launches.runs() {
            for (number, times_us) in times_us.iter_mut().enumerate() {
                let time = self.stopwatch.time(|| enqueue(number))?;
                times_us.extend(timed.then_some(time.device_us / f64::from(operations)));
            }
        }
        Ok(times_us)
    }

    /// The median over the launches of the slowest rank's time, by name. All ranks get the same values.
    fn agree<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        times_us: &[Vec<f64>],
    ) -> Result<BTreeMap<String, u64>, CommandFailure> {
        let own = serde_json::to_vec(times_us).map_err(CommandFailure::doing("write times"))?;
        let all = self.communicator.group().all_gather_bytes(&own)?;
        let all: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|bytes| serde_json::from_slice(bytes))
            .collect::<Result<_, _>>()
            .map_err(CommandFailure::doing("read times"))?;
        let time_ns = |(number, name): (usize, &str)| {
            let times = slowest(all.iter().filter_map(|times| times.get(number)).map(Vec::as_slice));
            (name.to_owned(), (median(times) * 1e3).round() as u64)
        };
        Ok(names.enumerate().map(time_ns).collect())
    }
}

/// Ordinary numbers: some hardware is slower with denormals and NaNs.
pub(super) fn ordinary<T: Summand>(rank: usize, elems: usize) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(rank as u64);
    let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
    values.iter().copied().cycle().take(elems).collect()
}
