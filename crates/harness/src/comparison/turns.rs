//! The turns of a benchmark: every candidate is verified, then the candidates are timed in turn, again and again.

use serde::{Deserialize, Serialize};
use symmetra::{Communicator, DeviceKind, Graph, Stream};

use super::candidate::{Candidate, CandidateVerdict, Trial};
use super::lockstep::Lockstep;
use super::repeats::Repeats;
use super::stopwatch::{Stopwatch, Time};
use crate::failure::CommandFailure;

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

/// How candidates take turns, on one stream.
pub struct Turns<'w> {
    ranks: &'w dyn Lockstep,
    stream: &'w Stream,
    /// Times graphs.
    graphs: Stopwatch<'w>,
    /// Times calls.
    calls: Stopwatch<'w>,
    /// Launches of each candidate.
    launches: Repeats,
}

/// The graphs of a candidate: all operations of a launch, and the operations that are verified if these are others.
type Captured<'a> = (Graph<'a>, Option<Graph<'a>>);

impl Turns<'_> {
    /// Runs `body` with turns of the ranks, which meet in memory of `local`. Collective.
    pub fn open<R>(
        ranks: &dyn Lockstep,
        local: &Communicator,
        launches: Repeats,
        body: impl FnOnce(&Turns<'_>) -> Result<R, CommandFailure>,
    ) -> Result<R, CommandFailure> {
        let stream = Stream::new(local.device())?;
        let meeting = local.symmetric::<f32>(1)?;
        let graphs = Stopwatch::new(ranks, &meeting, &stream)?;
        let calls = Stopwatch::after(1, ranks, &meeting, &stream)?;
        body(&Turns { ranks, stream: &stream, graphs, calls, launches })
    }

    pub fn stream(&self) -> &Stream {
        self.stream
    }

    pub fn launches(&self) -> Repeats {
        self.launches
    }

    /// Times one piece of work of all ranks. Blocks until all is done.
    pub fn time(&self, enqueue: impl FnOnce() -> symmetra::Result<()>) -> symmetra::Result<Time> {
        self.graphs.time(enqueue)
    }

    /// The time on the device of one of `parts` equal parts of the work, in every timed launch.
    pub fn times_us(&self, parts: f64, enqueue: impl Fn() -> symmetra::Result<()>) -> symmetra::Result<Vec<f64>> {
        let mut times_us = Vec::new();
        for timed in self.launches.runs() {
            let time = self.time(&enqueue)?;
            times_us.extend(timed.then_some(time.device_us / parts));
        }
        Ok(times_us)
    }

    /// Verifies all candidates, then times launches of `operations` operations of each.
    pub fn trials<'a, C: Candidate<'a>>(
        &self,
        mode: Mode,
        operations: u32,
        candidates: &[C],
    ) -> Result<Vec<Trial>, CommandFailure> {
        if mode == Mode::Eager {
            let call = |number: usize, operations| candidates[number].enqueue(operations, self.stream.into());
            return self.alternate(&self.calls, operations, candidates, call);
        }
        let graphs = candidates.iter().map(|candidate| self.capture(operations, candidate));
        let graphs: Vec<Captured<'a>> = graphs.collect::<symmetra::Result<_>>()?;
        for (all, verified) in &graphs {
            [Some(all), verified.as_ref()].into_iter().flatten().try_for_each(Graph::register)?;
        }
        self.alternate(&self.graphs, operations, candidates, |number, asked| {
            let (all, verified) = &graphs[number];
            verified.as_ref().filter(|_| asked != operations).unwrap_or(all).launch(self.stream)
        })
    }

    fn capture<'a, C: Candidate<'a>>(&self, operations: u32, candidate: &C) -> symmetra::Result<Captured<'a>> {
        if candidate.connects() {
            candidate.enqueue(1, self.stream.into())?;
            self.ranks.synchronize(self.stream)?;
        }
        let capture = |operations| self.stream.capture(|capture| candidate.enqueue(operations, capture.into()));
        let verified = candidate.verified(operations);
        let verified = (verified != operations).then(|| capture(verified)).transpose()?;
        Ok((capture(operations)?, verified))
    }

    /// `launch` enqueues a number of operations of a candidate. The candidates take turns, so that drift affects all
    /// alike.
    fn alternate<'a, C: Candidate<'a>>(
        &self,
        stopwatch: &Stopwatch<'_>,
        operations: u32,
        candidates: &[C],
        launch: impl Fn(usize, u32) -> symmetra::Result<()>,
    ) -> Result<Vec<Trial>, CommandFailure> {
        let stream = self.stream;
        let mut trials = Vec::new();
        for (number, candidate) in candidates.iter().enumerate() {
            candidate.prepare(stream)?;
            // No rank may read before all have written.
            self.ranks.barrier()?;
            let verified = candidate.verified(operations);
            launch(number, verified)?;
            self.ranks.synchronize(stream)?;
            let CandidateVerdict { wrong, checksum } = candidate.verify(verified, stream)?;
            // Before the timed trials: the memory in which the ranks meet may have been overwritten too.
            candidate.check_guards(stream)?;
            trials.push(Trial { wrong, checksum, ..Trial::default() });
        }
        // All ranks have read their results before the next operation.
        self.ranks.barrier()?;
        for timed in self.launches.runs() {
            for (number, trial) in trials.iter_mut().enumerate() {
                let Time { device_us, host_us } = stopwatch.time(|| launch(number, operations))?;
                if timed {
                    trial.times_us.push(device_us / f64::from(operations));
                    trial.host_us.push(host_us / f64::from(operations));
                }
                if trial.times_us.len() == self.launches.timed as usize {
                    trial.wrong += candidates[number].recheck(stream)?;
                }
            }
        }
        candidates.iter().try_for_each(|candidate| candidate.check_guards(stream))?;
        subtract_leads(&mut trials, operations, candidates);
        Ok(trials)
    }
}

/// Subtracts from each trial the lead of its candidate.
fn subtract_leads<'a, C: Candidate<'a>>(trials: &mut [Trial], operations: u32, candidates: &[C]) {
    for (number, candidate) in candidates.iter().enumerate() {
        let Some(lead) = candidate.lead() else { continue };
        let (before, rest) = trials.split_at_mut(number);
        if let Some(at) = candidates[..number].iter().position(|candidate| candidate.name() == lead) {
            rest[0].subtract(&before[at], operations);
        }
    }
}

/// Operations of one launch: 40, and fewer on the CPU, where operations of many bytes take long.
pub fn usual_operations(kind: DeviceKind, bytes: u64) -> u32 {
    match kind {
        DeviceKind::Cuda | DeviceKind::Hip => 40,
        _ => ((32 << 20) / bytes.max(1)).clamp(2, 40) as u32,
    }
}
