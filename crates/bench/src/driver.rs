//! Runs races: starts the ranks, gathers their trials, prints and draws.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use symmetra::DeviceKind;

use super::flags::RaceArgs;
use super::limits::{self, LimitTimes};
use super::pace::Pace;
use super::plot;
use super::race::{Combined, Race, Raced, RankResult, Trials};
use super::report::{RaceReport, Ran, RunSite};
use super::results;
use harness::columns::{Column, table};
use harness::comparison::nccl;
use harness::failure::CommandFailure;
use harness::live::Live;
use harness::output::{self, ProgressBar};
use harness::ranks::Run;

/// Ranks, and their trials of one size in one mode.
type OfRanks<N> = Vec<(usize, Trials<N>)>;

/// Gathers the trials of all ranks of a race.
pub(super) struct Gathered<'a, R: Race> {
    race: &'a R,
    sizes: Vec<String>,
    floors: Vec<LimitTimes>,
    /// By number of the size, and mode: the trials of each rank.
    trials: BTreeMap<(usize, &'static str), OfRanks<R::Notes>>,
    pub(super) report: RaceReport<R::Settings, R::Row>,
    /// The first candidate with wrong elements.
    wrong: Option<CommandFailure>,
}

impl<'a, R: Race> Gathered<'a, R> {
    pub(super) fn new(race: &'a R, ran: Ran, about_peers: Option<String>) -> Self {
        let Pace { seed, launches, .. } = race.pace();
        let report = RaceReport {
            ran,
            settings: race.settings(),
            seed: *seed,
            launches: launches.timed,
            sides: race.candidates(),
            about_peers,
            floor: Vec::new(),
            rows: Vec::new(),
        };
        Self { race, sizes: race.sizes(), floors: Vec::new(), trials: BTreeMap::new(), report, wrong: None }
    }

    /// The name of the size whose rows are complete with these trials.
    pub(super) fn add(&mut self, rank: usize, found: RankResult<R::Notes>) -> Result<Option<&str>, CommandFailure> {
        let trials = match found {
            RankResult::Trials(trials) => trials,
            RankResult::Floor(floor) => {
                self.floors.push(floor);
                self.report.floor = limits::lines(&self.floors.iter().collect::<Vec<_>>());
                return Ok(None);
            }
        };
        let (size, mode) = (trials.size, trials.mode);
        let Some(name) = self.sizes.get(size) else {
            return Err(CommandFailure::failed(format!("rank {rank} ran another race: size {size}")));
        };
        let of_ranks = self.trials.entry((size, mode.name())).or_default();
        of_ranks.push((rank, trials));
        if of_ranks.len() < self.report.ran.ranks {
            return Ok(None);
        }
        let of_ranks = std::mem::take(of_ranks);
        let seed = self.report.seed;
        check_equal(&self.race.equal_bits(), &of_ranks, name, seed)?;
        if let Some(combined) = Combined::new(of_ranks.into_iter().map(|(_, trials)| trials).collect()) {
            if let Some((side, wrong)) = combined.wrong.iter().find(|(_, wrong)| **wrong > 0) {
                let failure = format!("{side}: {wrong} elements are wrong at {name} (seed {seed})");
                self.wrong.get_or_insert(CommandFailure::failed(failure));
            }
            self.report.rows.extend(self.race.rows(size, combined));
        }
        Ok(Some(name.as_str()))
    }
}

/// Refuses ranks that ended with different bits for a candidate whose results have equal bits.
fn check_equal<N>(names: &[&str], ranks: &[(usize, Trials<N>)], size: &str, seed: u64) -> Result<(), CommandFailure> {
    let Some(((first, trials), others)) = ranks.split_first() else { return Ok(()) };
    for name in names {
        let checksum = |trials: &Trials<N>| trials.trials.get(*name).map(|trial| trial.checksum);
        if let Some((rank, _)) = others.iter().find(|(_, other)| checksum(other) != checksum(trials)) {
            return Err(CommandFailure::failed(format!(
                "{name}: the results of ranks {first} and {rank} differ in their bits at {size} (seed {seed})"
            )));
        }
    }
    Ok(())
}

/// Runs a race. Rows are printed as they come.
pub(super) fn run<R: Race, const LEAST: u64>(
    args: &RaceArgs<LEAST>,
    plot: Option<&Path>,
    make: impl FnOnce(DeviceKind, Pace) -> Result<R, CommandFailure>,
) -> Result<(), CommandFailure> {
    args.output.check()?;
    plot.map_or(Ok(()), plot::check)?;
    if !args.against.is_empty() {
        nccl::keep_multicast_off();
    }
    let place = RunSite::new(&args.ranks)?;
    let race = make(place.kind, args.pace(place.kind, R::ON_OUR_BUFFERS)?)?;
    let (pace, columns) = (race.pace(), race.columns());
    let peers = (!pace.competitors.is_empty()).then(nccl::describe).transpose()?;
    place.note(&race.about(), pace.seed)?;
    let (about_peers, version) = peers.unzip();
    about_peers.as_ref().map_or(Ok(()), output::note)?;

    let mut gathered = Gathered::new(&race, place.ran(), about_peers);
    let progress = output::progress((race.sizes().len() * pace.modes.len()) as u64);
    let mut live = Live::new()?;
    Run::new(&place.devices, Raced(race.clone())).attend(place.ranks_as, |rank, found| {
        let Some(size) = gathered.add(rank, found)? else { return Ok(()) };
        progress.set_message(size.to_owned());
        progress.inc(1);
        show(&progress, &mut live, args.output.json, &columns, &gathered.report)
    })?;
    progress.finish_and_clear();

    let Gathered { report, wrong, .. } = gathered;
    if args.output.json {
        live.forget();
        output::json(&report)?;
    } else {
        live.finish()?;
        if R::WITH_FLOOR {
            output::line(format_args!("\n{}", limits::table(&report.floor)))?;
        }
    }
    if let Some(path) = &args.output.output {
        let versions = version.map(|version| ("NCCL", version)).into_iter().collect();
        results::save(path, &race.about(), &place.devices, &versions, (&columns, &report.rows))?;
    }
    if let (Some(path), Some(panels)) = (plot, R::panels(&report)) {
        plot::draw(&panels, path)?;
    }
    wrong.map_or(Ok(()), Err)
}

/// Prints the new rows. The object is printed at the end, or when a signal ends the command.
fn show<S: Serialize, R: Serialize>(
    progress: &ProgressBar,
    live: &mut Live,
    json: bool,
    columns: &[Column<R>],
    report: &RaceReport<S, R>,
) -> Result<(), CommandFailure> {
    progress.suspend(|| if json { live.keep_object(report) } else { live.show(&table(columns, &report.rows)) })
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/driver.rs"]
mod tests;
