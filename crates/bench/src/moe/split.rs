//! `symmetra-bench moe --split`: dispatch and combine in two halves, without and with other work between the halves.

use serde::{Deserialize, Serialize};
use symmetra::experts::{Combine, Experts, Routed};
use symmetra::half::bf16;
use symmetra::{Communicator, Event};

use super::memory::Home;
use super::operands::{Lines, MoeInputs, MoeOperands};
use super::oracle::{MoeOracle, RowPool};
use super::{Args, MoeRace};
use crate::race::Race;
use crate::report::{RaceReport, RunSite, verdict};
use crate::squares::{Squares, usual_size};
use harness::columns::Column;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Turns;
use harness::experts::RowOrder;
use harness::failure::CommandFailure;
use harness::ranks::{Say, Task};
use harness::statistics::{median, slowest};
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
pub(crate) struct HalfTimes {
    begin_us: Vec<f64>,
    /// The receive directly after the begin.
    receive_us: Vec<f64>,
    work_us: Vec<f64>,
    /// The receive after the work.
    receive_after_us: Vec<f64>,
    wrong: u64,
}

/// One rank's times of every number of tokens: of dispatches, and of combines.
pub(crate) type SplitTimes = Vec<[HalfTimes; 2]>;

impl Task for MoeSplit {
    const NAME: &'static str = "experts in halves";
    type Found = SplitTimes;

    fn heap_bytes(&self) -> u64 {
        self.race.heap_bytes
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, SplitTimes>) -> Result<(), CommandFailure> {
        say(Turns::open(communicator, communicator, self.race.pace.launches, |turns| self.times(communicator, turns))?)
    }
}

impl MoeSplit {
    fn times(&self, communicator: &Communicator, turns: &Turns<'_>) -> Result<SplitTimes, CommandFailure> {
        let Self { race, size } = self;
        let (stream, rank) = (turns.stream(), communicator.rank());
        let work = Squares::new(*size as usize, 1, race.pace.seed, stream)?;
        let rows = RowPool::new(race.pace.seed, race.shape.hidden);
        let mut found = SplitTimes::new();
        for tokens in race.tokens.iter().copied() {
            let (layout, routes) = (race.layout(tokens), race.routes(tokens));
            let oracle = MoeOracle::new(race.shape, layout, &routes);
            let (home, form) = (Home::Own(communicator.device()), (race.shape, race.wire, layout));
            let operands = MoeOperands::new(home, form, &oracle, [rank, tokens])?;
            let config = race.configs(&oracle, tokens).swap_remove(0);
            let event = || Event::new(communicator.device());
            let halves = Halves {
                experts: communicator.experts(config)?,
                operands: &operands,
                work: &work,
                turns,
                points: [event()?, event()?, event()?, event()?],
            };
            operands.write(&MoeInputs::new((&rows, race.wire), &routes, rank, [tokens, oracle.rows(rank)]), stream)?;
            communicator.group().barrier()?;
            let wrong = halves.wrong(communicator, &oracle.expected(rank, &rows, race.wire))?;
            communicator.group().barrier()?;
            found.push(halves.time(race.pace.launches, wrong)?);
        }
        Ok(found)
    }
}

/// Dispatches and combines of one number of tokens.
struct Halves<'a, 'w> {
    experts: Experts,
    operands: &'a MoeOperands,
    work: &'a Squares,
    turns: &'a Turns<'w>,
    /// Before the begin, after the begin, before the receive, and after the receive.
    points: [Event; 4],
}

impl Halves<'_, '_> {
    /// Runs both halves of both calls, and counts wrong elements after each.
    fn wrong(&self, communicator: &Communicator, expected: &RoutedOutputs<bf16>) -> symmetra::Result<[u64; 2]> {
        let stream = self.turns.stream();
        let routed = self.dispatch(true)?;
        self.combine(&routed, true)?;
        communicator.synchronize(stream)?;
        let dispatched = self.operands.wrong_rows(expected, stream)? + self.operands.wrong_numbers(expected, stream)?;
        Ok([dispatched, self.operands.wrong_sums(expected, stream)?])
    }

    fn time(&self, launches: Repeats, wrong: [u64; 2]) -> symmetra::Result<[HalfTimes; 2]> {
        let [mut dispatches, mut combines] = wrong.map(|wrong| HalfTimes { wrong, ..HalfTimes::default() });
        let mut warmed_up = [HalfTimes::default(), HalfTimes::default()];
        for timed in launches.runs() {
            let [dispatches, combines] = if timed { [&mut dispatches, &mut combines] } else { warmed_up.each_mut() };
            for works in [false, true] {
                self.trial(dispatches, works, || self.dispatch(works).map(drop))?;
            }
            let routed = self.dispatch(false)?;
            for works in [false, true] {
                self.trial(combines, works, || self.combine(&routed, works))?;
            }
        }
        Ok([dispatches, combines])
    }

    /// Times one call.
    fn trial(
        &self,
        times: &mut HalfTimes,
        works: bool,
        call: impl FnOnce() -> symmetra::Result<()>,
    ) -> symmetra::Result<()> {
        self.turns.time(call)?;
        let between = |point: usize| self.points[point + 1].elapsed_us(&self.points[point]);
        if works {
            times.work_us.push(between(1)?);
            times.receive_after_us.push(between(2)?);
        } else {
            times.begin_us.push(between(0)?);
            times.receive_us.push(between(2)?);
        }
        Ok(())
    }

    fn dispatch(&self, works: bool) -> symmetra::Result<Routed<'_>> {
        let routing = self.operands.routing();
        let stream = self.turns.stream();
        stream.record(&self.points[0])?;
        let arriving = match &self.operands.rows {
            Lines::Same(rows) => self.experts.dispatch_begin(&routing, rows.borrow(), stream)?,
            Lines::F8 { codes, scales } => {
                self.experts.dispatch_f8_begin(&routing, codes.borrow(), scales.borrow(), stream)?
            }
        };
        self.between(works)?;
        let routed = arriving.receive(&self.operands.into(), stream)?;
        stream.record(&self.points[3])?;
        Ok(routed)
    }

    fn combine(&self, routed: &Routed<'_>, works: bool) -> symmetra::Result<()> {
        let MoeOperands { results, output, .. } = self.operands;
        let stream = self.turns.stream();
        stream.record(&self.points[0])?;
        let returning = routed.combine_begin(results.borrow(), stream)?;
        self.between(works)?;
        returning.receive(output.borrow(), Combine::default(), stream)?;
        stream.record(&self.points[3])
    }

    /// Enqueues the work between the halves.
    fn between(&self, works: bool) -> symmetra::Result<()> {
        let stream = self.turns.stream();
        stream.record(&self.points[1])?;
        if works {
            self.work.enqueue(stream)?;
        }
        stream.record(&self.points[2])
    }
}

/// One call at one number of tokens.
#[derive(Debug, Serialize)]
struct CallRow {
    tokens: usize,
    layout: RowOrder,
    call: &'static str,
    begin_us: f64,
    receive_us: f64,
    work_us: f64,
    receive_after_us: f64,
    /// The share of the receive's time that the work hid; less than 0 where the receive took longer after the work.
    hidden: f64,
    wrong: u64,
}

/// The calls, in the order of [`SplitTimes`].
const CALLS: [&str; 2] = ["dispatch", "combine"];

impl CallRow {
    /// `ranks`: the times of every rank.
    fn new((tokens, layout): (usize, RowOrder), call: &'static str, ranks: &[&HalfTimes]) -> Self {
        let of = |times: fn(&HalfTimes) -> &[f64]| median(slowest(ranks.iter().map(|rank| times(rank))));
        let [receive_us, receive_after_us] = [of(|times| &times.receive_us), of(|times| &times.receive_after_us)];
        Self {
            tokens,
            layout,
            call,
            begin_us: of(|times| &times.begin_us),
            receive_us,
            work_us: of(|times| &times.work_us),
            receive_after_us,
            hidden: if receive_us > 0.0 { 1.0 - receive_after_us / receive_us } else { 0.0 },
            wrong: ranks.iter().map(|times| times.wrong).sum(),
        }
    }
}

/// The experts, and the matrices.
#[derive(Serialize)]
struct SplitSettings {
    #[serde(flatten)]
    experts: super::report::MoeSettings,
    size: u32,
}

fn columns() -> Vec<Column<CallRow>> {
    vec![
        Column::count("tokens", |row: &CallRow| row.tokens as u64),
        Column::text("layout", |row: &CallRow| row.layout.name().to_owned()),
        Column::text("call", |row: &CallRow| row.call.to_owned()),
        Column::number("begin us", 1, |row: &CallRow| Some(row.begin_us)),
        Column::number("receive us", 1, |row: &CallRow| Some(row.receive_us)),
        Column::number("work us", 1, |row: &CallRow| Some(row.work_us)),
        Column::number("receive after us", 1, |row: &CallRow| Some(row.receive_after_us)),
        Column::number("hidden %", 1, |row: &CallRow| Some(100.0 * row.hidden)),
        Column::count("wrong", |row: &CallRow| row.wrong),
    ]
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let output = &args.race.output;
    output.check()?;
    let place = RunSite::new(&args.race.ranks)?;
    let race = MoeRace::new(args, place.kind, args.race.pace(place.kind, true)?)?;
    let (title, seed) = (race.about(), race.pace.seed);
    place.note(&title, seed)?;
    let size = args.size.unwrap_or_else(|| usual_size(place.kind));
    let found = place.collect(MoeSplit { race: race.clone(), size })?;
    let mut rows = Vec::new();
    for (number, tokens) in race.tokens.iter().copied().enumerate() {
        for (call, name) in CALLS.into_iter().enumerate() {
            let ranks: Vec<&HalfTimes> =
                found.iter().filter_map(|rank| rank.get(number)).map(|calls| &calls[call]).collect();
            rows.push(CallRow::new((tokens, race.layout(tokens)), name, &ranks));
        }
    }
    let report = RaceReport {
        ran: place.ran(),
        settings: SplitSettings { experts: race.settings(), size },
        seed,
        launches: race.pace.launches.timed,
        sides: Vec::new(),
        about_peers: None,
        floor: Vec::new(),
        rows,
    };
    place.write(output, &title, &columns(), &report.rows, ("", &report))?;
    verdict(&report.rows, seed, |row| (format!("{} of {} tokens", row.call, row.tokens), row.wrong))
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_split.rs"]
mod tests;
