//! `symmetra-bench moe --split`: dispatch and combine in two halves, without and with other work between the halves.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use symmetra::experts::{Combine, Experts, Routed};
use symmetra::half::bf16;
use symmetra::{Communicator, DeviceKind, Event, Stream, SymmetricBuffer};

use super::MoeRace;
use super::memory::Home;
use super::operands::{Inputs, Lines, Operands};
use super::oracle::{Oracle, Rows};
use crate::flags::OutputArgs;
use crate::squares::{Squares, usual_size};
use harness::contest::repeats::Repeats;
use harness::contest::stopwatch::Stopwatch;
use harness::devices::RankDevice;
use harness::experts::{Layout, Shape, Wire};
use harness::failure::Failure;
use harness::ranks::{RanksAs, Run, Say, Task};
use harness::statistics::{median, slowest};
use harness::table::Table;
use reference::experts::dispatch::RoutedOutputs;

/// The task: both halves of each call, for every number of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MoeSplit {
    race: MoeRace,
    /// Rows and columns of the matrices that are multiplied between the halves.
    size: u32,
}

/// One rank's times, for every launch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    begin_us: Vec<f64>,
    /// The receive directly after the begin.
    receive_us: Vec<f64>,
    work_us: Vec<f64>,
    /// The receive after the work.
    behind_us: Vec<f64>,
    wrong: u64,
}

/// One rank's times of every number of tokens: of dispatches, and of combines.
pub(crate) type Found = Vec<[Times; 2]>;

impl Task for MoeSplit {
    const NAME: &'static str = "experts in halves";
    type Found = Found;

    fn heap_bytes(&self) -> u64 {
        self.race.heap_bytes
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Found>) -> Result<(), Failure> {
        let Self { race, size } = self;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        let work = Squares::new(*size as usize, 1, race.seed, &stream)?;
        let rank = communicator.rank();
        let rows = Rows::new(race.seed, race.shape.hidden);
        let mut found = Found::new();
        for tokens in race.tokens.iter().copied() {
            let (layout, routes) = (race.layout(tokens), race.routes(tokens));
            let oracle = Oracle::new(race.shape, layout, &routes);
            let operands = Operands::new(
                Home::Own(communicator.device()),
                (race.shape, race.wire, layout),
                &oracle,
                [rank, tokens],
            )?;
            let config = race.settings(&oracle, tokens).swap_remove(0);
            let event = || Event::new(communicator.device());
            let halves = Halves {
                experts: communicator.experts(config)?,
                operands: &operands,
                work: &work,
                stopwatch: &stopwatch,
                points: [event()?, event()?, event()?, event()?],
            };
            operands.write(&Inputs::new((&rows, race.wire), &routes, rank, [tokens, oracle.rows(rank)]), &stream)?;
            communicator.group().barrier()?;
            let wrong = halves.wrong(communicator, &oracle.expected(rank, &rows, race.wire))?;
            communicator.group().barrier()?;
            found.push(halves.time(race.launches, wrong)?);
        }
        say(found)
    }
}

/// Dispatches and combines of one number of tokens.
struct Halves<'a> {
    experts: Experts,
    operands: &'a Operands,
    work: &'a Squares,
    stopwatch: &'a Stopwatch<'a>,
    /// Before the begin, after the begin, before the receive, and after the receive.
    points: [Event; 4],
}

impl Halves<'_> {
    /// Runs both halves of both calls, and counts wrong elements after each.
    fn wrong(&self, communicator: &Communicator, expected: &RoutedOutputs<bf16>) -> symmetra::Result<[u64; 2]> {
        let stream = self.stopwatch.stream();
        let routed = self.dispatch(true)?;
        self.combine(&routed, true)?;
        communicator.synchronize(stream)?;
        let dispatched = self.operands.wrong_rows(expected, stream)? + self.operands.wrong_numbers(expected, stream)?;
        Ok([dispatched, self.operands.wrong_sums(expected, stream)?])
    }

    fn time(&self, launches: Repeats, wrong: [u64; 2]) -> symmetra::Result<[Times; 2]> {
        let [mut dispatches, mut combines] = wrong.map(|wrong| Times { wrong, ..Times::default() });
        let mut warmed_up = [Times::default(), Times::default()];
        for timed in launches.runs() {
            let [dispatches, combines] = if timed { [&mut dispatches, &mut combines] } else { warmed_up.each_mut() };
            for works in [false, true] {
                self.lap(dispatches, works, || self.dispatch(works).map(drop))?;
            }
            let routed = self.dispatch(false)?;
            for works in [false, true] {
                self.lap(combines, works, || self.combine(&routed, works))?;
            }
        }
        Ok([dispatches, combines])
    }

    /// Times one call.
    fn lap(&self, times: &mut Times, works: bool, call: impl FnOnce() -> symmetra::Result<()>) -> symmetra::Result<()> {
        self.stopwatch.time(call)?;
        let between = |point: usize| self.points[point + 1].elapsed_us(&self.points[point]);
        if works {
            times.work_us.push(between(1)?);
            times.behind_us.push(between(2)?);
        } else {
            times.begin_us.push(between(0)?);
            times.receive_us.push(between(2)?);
        }
        Ok(())
    }

    fn dispatch(&self, works: bool) -> symmetra::Result<Routed<'_>> {
        let routing = self.operands.routing();
        let stream = self.stopwatch.stream();
        stream.record(&self.points[0])?;
        let arriving = match &self.operands.rows {
            Lines::Same(rows) => self.experts.dispatch_begin(&routing, rows.borrow(), stream)?,
            Lines::F8 { codes, scales } => {
                self.experts.dispatch_f8_begin(&routing, (codes.borrow(), scales.borrow()), stream)?
            }
        };
        self.between(works)?;
        let routed = arriving.receive(&self.operands.into(), stream)?;
        stream.record(&self.points[3])?;
        Ok(routed)
    }

    fn combine(&self, routed: &Routed<'_>, works: bool) -> symmetra::Result<()> {
        let Operands { results, output, .. } = self.operands;
        let stream = self.stopwatch.stream();
        stream.record(&self.points[0])?;
        let returning = routed.combine_begin(results.borrow(), stream)?;
        self.between(works)?;
        returning.receive(output.borrow(), Combine::default(), stream)?;
        stream.record(&self.points[3])
    }

    /// Enqueues the work between the halves.
    fn between(&self, works: bool) -> symmetra::Result<()> {
        let stream = self.stopwatch.stream();
        stream.record(&self.points[1])?;
        if works {
            self.work.enqueue(stream)?;
        }
        stream.record(&self.points[2])
    }
}

/// One call at one number of tokens.
#[derive(Debug, Serialize)]
struct Row {
    tokens: usize,
    layout: Layout,
    call: &'static str,
    begin_us: f64,
    receive_us: f64,
    work_us: f64,
    behind_us: f64,
    /// The share of the receive's time that the work hid; less than 0 where the receive took longer after the work.
    hidden: f64,
    wrong: u64,
}

/// The calls, in the order of [`Found`].
const CALLS: [&str; 2] = ["dispatch", "combine"];

impl Row {
    /// `ranks`: the times of every rank.
    fn new((tokens, layout): (usize, Layout), call: &'static str, ranks: &[&Times]) -> Self {
        let of = |times: fn(&Times) -> &[f64]| median(slowest(ranks.iter().map(|rank| times(rank))));
        let [receive_us, behind_us] = [of(|times| &times.receive_us), of(|times| &times.behind_us)];
        Self {
            tokens,
            layout,
            call,
            begin_us: of(|times| &times.begin_us),
            receive_us,
            work_us: of(|times| &times.work_us),
            behind_us,
            hidden: if receive_us > 0.0 { 1.0 - behind_us / receive_us } else { 0.0 },
            wrong: ranks.iter().map(|times| times.wrong).sum(),
        }
    }
}

/// The object that `--json` writes.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    shape: Shape,
    wire: Wire,
    routing: String,
    seed: u64,
    launches: u32,
    size: u32,
    rows: Vec<Row>,
}

impl Report {
    fn table(&self) -> impl Display {
        let headings =
            ["tokens", "layout", "call", "begin us", "receive us", "work us", "receive after us", "hidden %", "wrong"];
        let mut table = Table::new(headings, [0].into_iter().chain(3..headings.len()));
        for row in &self.rows {
            let times = [row.begin_us, row.receive_us, row.work_us, row.behind_us, 100.0 * row.hidden];
            let names = [row.tokens.to_string(), row.layout.name().to_owned(), row.call.to_owned()];
            let times = times.map(|number| format!("{number:.1}"));
            table.add_row(names.into_iter().chain(times).chain([row.wrong.to_string()]));
        }
        table
    }
}

/// Runs the command.
pub(super) fn run(
    (race, size): (MoeRace, Option<u32>),
    devices: &[RankDevice],
    ranks_as: RanksAs,
    output: &OutputArgs,
) -> Result<(), Failure> {
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let size = size.unwrap_or_else(|| usual_size(kind));
    let task = MoeSplit { race: race.clone(), size };
    let found = Run::new(devices, task).collect(ranks_as)?;
    let mut rows = Vec::new();
    for (size, tokens) in race.tokens.iter().copied().enumerate() {
        for (number, call) in CALLS.into_iter().enumerate() {
            let ranks: Vec<&Times> =
                found.iter().filter_map(|rank| rank.get(size)).map(|calls| &calls[number]).collect();
            rows.push(Row::new((tokens, race.layout(tokens)), call, &ranks));
        }
    }
    let report = Report {
        ranks: devices.len(),
        device: kind.name(),
        ranks_as: ranks_as.name(),
        shape: race.shape,
        wire: race.wire,
        routing: race.traffic.name().to_owned(),
        seed: race.seed,
        launches: race.launches.timed,
        size,
        rows,
    };
    output.write(report.table(), &report)?;
    match report.rows.iter().find(|row| row.wrong > 0) {
        None => Ok(()),
        Some(Row { tokens, call, wrong, .. }) => {
            let seed = report.seed;
            Err(Failure::failed(format!("{call}: {wrong} elements are wrong at {tokens} tokens (seed {seed})")))
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_split.rs"]
mod tests;
