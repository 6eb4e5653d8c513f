//! Runs a comparison and receives the reports of its ranks. The result has the rows of each size and mode once every
//! rank has run it.

use std::collections::BTreeMap;

use harness::output::ProgressBar;
use serde::Serialize;

use super::flags::OutputArgs;
use super::gathered::Gathered;
use harness::contest::turns::{Mode, SideLap};
use harness::devices::RankDevice;
use harness::failure::Failure;
use harness::live::Live;
use harness::output;
use harness::ranks::{RanksAs, Run, Task};
use harness::statistics::{median, slowest};
use harness::table::Table;

/// A comparison, and the contents of its report.
pub(crate) trait Heard: Task {
    /// The settings in the report, between the ranks and the seed.
    type Settings: Serialize;
    type Row: Serialize;

    fn settings(&self) -> Self::Settings;
    /// The seed, and the number of timed launches.
    fn repeats(&self) -> (u64, u32);
    /// The candidates of a row by name; empty where each candidate has rows of its own.
    fn columns(&self) -> Vec<&'static str>;
    /// The name of each size.
    fn sizes(&self) -> Vec<String>;
    fn modes(&self) -> usize;
    /// The number of the size, and the mode.
    fn place(lap: &Self::Found) -> (usize, Mode);
    /// Whether a trial has as many candidates as this comparison, where candidates have no names.
    fn has_sides_of(&self, _lap: &Self::Found) -> bool {
        true
    }
    /// The rows of the trials of all ranks. There is at least one trial.
    fn rows(&self, size: usize, laps: Vec<Self::Found>) -> Vec<Self::Row>;
    /// The table of the text output.
    fn table(report: &Report<Self::Settings, Self::Row>) -> Table;
}

/// The result, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(crate) struct Report<S, R> {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    #[serde(flatten)]
    pub(super) settings: S,
    pub(super) seed: u64,
    launches: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sides: Vec<&'static str>,
    /// Versions and settings.
    about_peers: Option<String>,
    pub(super) rows: Vec<R>,
}

impl<S, R> Report<S, R> {
    /// How many ranks, and on which kind of device.
    pub(super) fn place(&self) -> (usize, &'static str) {
        (self.ranks, self.device)
    }
}

/// Gathers the trials of all ranks.
struct Hearing<'a, T: Heard> {
    race: &'a T,
    sizes: Vec<String>,
    laps: Gathered<T::Found>,
    progress: ProgressBar,
    report: Report<T::Settings, T::Row>,
    output: &'a OutputArgs,
    live: Live,
}

impl<T: Heard> Hearing<'_, T> {
    fn hear(&mut self, rank: usize, lap: T::Found) -> Result<(), Failure> {
        let (size, mode) = T::place(&lap);
        let Some(name) = self.sizes.get(size).filter(|_| self.race.has_sides_of(&lap)) else {
            return Err(Failure::failed(format!("rank {rank} ran another race: size {size}")));
        };
        if let Some(laps) = self.laps.add(size, mode, lap) {
            self.report.rows.extend(self.race.rows(size, laps));
            self.progress.set_message(name.clone());
            self.progress.inc(1);
            let Self { progress, output, live, report, .. } = self;
            return progress.suspend(|| output.show(live, &T::table(report), report));
        }
        Ok(())
    }
}

/// Runs a comparison on these devices, and prints its rows as they come.
pub(super) fn run<T: Heard>(
    devices: &[RankDevice],
    ranks_as: RanksAs,
    race: &T,
    about_peers: Option<String>,
    output_args: &OutputArgs,
) -> Result<Report<T::Settings, T::Row>, Failure> {
    let ((seed, launches), sizes) = (race.repeats(), race.sizes());
    let report = Report {
        ranks: devices.len(),
        device: devices.first().map_or("host", |device| device.kind().name()),
        ranks_as: ranks_as.name(),
        settings: race.settings(),
        seed,
        launches,
        sides: race.columns(),
        about_peers,
        rows: Vec::new(),
    };
    let progress = output::progress((sizes.len() * race.modes()) as u64);
    let mut hearing = Hearing {
        race,
        sizes,
        laps: Gathered::new(report.ranks),
        progress,
        report,
        output: output_args,
        live: Live::new()?,
    };
    Run::new(devices, race.clone()).attend(ranks_as, |rank, lap| hearing.hear(rank, lap))?;
    hearing.progress.finish_and_clear();
    output_args.end(hearing.live, "", &hearing.report)?;
    Ok(hearing.report)
}

/// The combined trials of all ranks, by candidate.
pub(super) struct Sides<N> {
    pub(super) time_us: BTreeMap<N, f64>,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    pub(super) host_us: BTreeMap<N, f64>,
    pub(super) wrong: BTreeMap<N, u64>,
}

impl<N: Clone + Ord> Sides<N> {
    /// `laps(number, name)` returns the trials of a candidate.
    pub(super) fn new<'l>(names: &[N], laps: impl Fn(usize, &N) -> Vec<&'l SideLap>) -> Self {
        let mut sides = Self { time_us: BTreeMap::new(), host_us: BTreeMap::new(), wrong: BTreeMap::new() };
        for (number, name) in names.iter().enumerate() {
            let laps = laps(number, name);
            let of = |times: fn(&SideLap) -> &[f64]| median(slowest(laps.iter().copied().map(times)));
            sides.time_us.insert(name.clone(), of(|lap| &lap.times_us));
            sides.host_us.insert(name.clone(), of(|lap| &lap.host_us));
            sides.wrong.insert(name.clone(), laps.iter().map(|lap| lap.wrong).sum());
        }
        sides
    }
}

/// Tokens in words, for the progress of a race.
pub(super) fn of_tokens(tokens: &[usize]) -> Vec<String> {
    tokens.iter().map(|tokens| format!("{tokens} tokens")).collect()
}
