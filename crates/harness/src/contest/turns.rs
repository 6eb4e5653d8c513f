//! The turns of a benchmark: every candidate is verified, then the candidates are timed in turn, again and again.

use serde::{Deserialize, Serialize};
use symmetra::{Capture, DeviceKind, Graph, Stream};

use super::repeats::Repeats;
use super::stopwatch::{Stopwatch, Time};
use super::team::Team;
use crate::failure::Failure;

/// How operations are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// From a captured graph.
    Graph,
    /// One call after the other.
    Eager,
}

impl Mode {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Eager => "eager",
        }
    }
}

/// The result of a candidate after its operations.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Elements that are wrong.
    pub wrong: u64,
    /// Checksum of the result.
    pub checksum: u64,
}

/// An operation on operands of its own, and the expected result of a number of these operations.
pub trait Contender<'a> {
    /// Enqueues operations that run.
    fn enqueue(&self, operations: u32, stream: &Stream) -> symmetra::Result<()>;
    /// Enqueues operations that a graph holds.
    fn record(&self, operations: u32, capture: &Capture<'_, 'a>) -> symmetra::Result<()>;
    /// Writes the operands. Blocks until they are written.
    fn prepare(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Compares the result of `operations` operations with the expected result. Blocks.
    fn verify(&self, operations: u32, stream: &Stream) -> symmetra::Result<Verdict>;
    /// The elements that are wrong after the last launch, for operations whose result does not depend on how often they
    /// run. Blocks.
    fn recheck(&self, _: &Stream) -> symmetra::Result<u64> {
        Ok(0)
    }
    /// Fails if memory next to the operands was overwritten. Blocks until every rank of the host has called it.
    fn check_beside(&self, _: &Stream) -> symmetra::Result<()> {
        Ok(())
    }
}

/// The times of one candidate in one mode on one rank.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SideLap {
    /// Time of one operation in every launch.
    pub times_us: Vec<f64>,
    /// The host's share of it.
    pub host_us: Vec<f64>,
    pub wrong: u64,
    /// Checksum of the result that was verified.
    pub checksum: u64,
}

/// How candidates take turns.
pub struct Turns<'h, 'w> {
    pub team: &'h dyn Team,
    /// Times graphs.
    pub graphs: &'h Stopwatch<'w>,
    /// Times calls.
    pub calls: &'h Stopwatch<'w>,
    /// Launches of each candidate.
    pub launches: Repeats,
}

impl Turns<'_, '_> {
    /// Verifies all candidates, then times launches of `operations` operations of each.
    pub fn laps<'a, C: Contender<'a>>(
        &self,
        mode: Mode,
        operations: u32,
        contenders: &[C],
    ) -> Result<Vec<SideLap>, Failure> {
        match mode {
            Mode::Eager => self.time(self.calls, operations, contenders, |number| {
                contenders[number].enqueue(operations, self.calls.stream())
            }),
            Mode::Graph => {
                let stream = self.graphs.stream();
                let capture = |contender: &C| {
                    // Not first in a graph: other libraries make their connections in the first call.
                    contender.enqueue(1, stream)?;
                    self.team.synchronize(stream)?;
                    stream.capture(|capture| contender.record(operations, capture))
                };
                let graphs: Vec<Graph<'a>> = contenders.iter().map(capture).collect::<symmetra::Result<_>>()?;
                graphs.iter().try_for_each(Graph::register)?;
                self.time(self.graphs, operations, contenders, |number| graphs[number].launch(stream))
            }
        }
    }

    /// `launch` enqueues all operations of a candidate. The candidates take turns, so that drift affects all alike.
    fn time<'a, C: Contender<'a>>(
        &self,
        stopwatch: &Stopwatch<'_>,
        operations: u32,
        contenders: &[C],
        launch: impl Fn(usize) -> symmetra::Result<()>,
    ) -> Result<Vec<SideLap>, Failure> {
        let stream = stopwatch.stream();
        let mut laps = Vec::new();
        for (number, contender) in contenders.iter().enumerate() {
            contender.prepare(stream)?;
            // No rank may read before all have written.
            self.team.barrier()?;
            launch(number)?;
            self.team.synchronize(stream)?;
            let Verdict { wrong, checksum } = contender.verify(operations, stream)?;
            // Before the timed trials: the memory in which the ranks meet may have been overwritten too.
            contender.check_beside(stream)?;
            laps.push(SideLap { wrong, checksum, ..SideLap::default() });
        }
        // All ranks have read their results before the next operation.
        self.team.barrier()?;
        for timed in self.launches.runs() {
            for (number, lap) in laps.iter_mut().enumerate() {
                let Time { device_us, host_us } = stopwatch.time(|| launch(number))?;
                if timed {
                    lap.times_us.push(device_us / f64::from(operations));
                    lap.host_us.push(host_us / f64::from(operations));
                }
                if lap.times_us.len() == self.launches.timed as usize {
                    lap.wrong += contenders[number].recheck(stream)?;
                }
            }
        }
        contenders.iter().try_for_each(|contender| contender.check_beside(stream))?;
        Ok(laps)
    }
}

/// Operations of one launch: 40, and fewer on the CPU, where operations of many bytes take long.
pub fn usual_operations(kind: DeviceKind, bytes: u64) -> u32 {
    match kind {
        DeviceKind::Cuda => 40,
        _ => ((32 << 20) / bytes.max(1)).clamp(2, 40) as u32,
    }
}
