//! The result of a race of layers: a row for each number of tokens and mode once every rank has run it.

use std::collections::BTreeMap;
use std::fmt::Display;

use indicatif::ProgressBar;
use serde::Serialize;

use super::LayerRace;
use super::rank::Lap;
use super::shape::Shape;
use crate::bench::gathered::Gathered;
use crate::contest::turns::{Mode, SideLap};
use crate::devices::RankDevice;
use crate::failure::Failure;
use crate::output;
use crate::ranks::RanksAs;
use crate::statistics::{median, ratio, slowest};
use crate::table::Table;

/// One number of tokens in one mode. Sides by name; times are those of one layer.
#[derive(Debug, Serialize)]
struct Row {
    tokens: usize,
    mode: Mode,
    /// Our fastest way.
    best: String,
    time_us: BTreeMap<String, f64>,
    /// The host's time for one layer: of a graph's launch, its share.
    host_us: BTreeMap<String, f64>,
    /// Tokens a second through one layer.
    tokens_per_s: BTreeMap<String, f64>,
    /// The best peer's time by that of our fastest way.
    ratio: Option<f64>,
    /// How each plan of a side runs, by product.
    plans: BTreeMap<String, BTreeMap<String, String>>,
    /// Why a side did not run.
    missing: BTreeMap<String, String>,
    /// Elements of samples that are not what their definition says, and elements and rows that are too far from those of the
    /// first side.
    wrong: BTreeMap<String, u64>,
}

/// The result, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    #[serde(flatten)]
    shape: Shape,
    dtype: &'static str,
    layers: u32,
    seed: u64,
    launches: u32,
    sides: Vec<&'static str>,
    /// How many of them are ours.
    #[serde(skip)]
    own_sides: usize,
    /// Versions and settings.
    about_peers: Option<String>,
    rows: Vec<Row>,
}

/// Gathers the laps of all ranks.
pub(super) struct Hearing<'a> {
    race: &'a LayerRace,
    laps: Gathered<Lap>,
    progress: ProgressBar,
    report: Report,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(
        devices: &[RankDevice],
        ranks_as: RanksAs,
        race: &'a LayerRace,
        about_peers: Option<String>,
    ) -> Self {
        let report = Report {
            ranks: devices.len(),
            device: devices.first().map_or("host", |device| device.kind().name()),
            ranks_as: ranks_as.name(),
            shape: race.shape,
            dtype: "bf16",
            layers: race.layers,
            seed: race.seed,
            launches: race.launches,
            sides: race.side_names(),
            own_sides: race.ways.len(),
            about_peers,
            rows: Vec::new(),
        };
        let progress = output::progress((race.tokens.len() * race.modes.len()) as u64);
        Self { race, laps: Gathered::new(report.ranks), progress, report }
    }

    pub(super) fn hear(&mut self, rank: usize, lap: Lap) -> Result<(), Failure> {
        let Some(tokens) = self.race.tokens.get(lap.size).copied() else {
            return Err(Failure::failed(format!("rank {rank} ran another race: size {}", lap.size)));
        };
        if let Some(laps) = self.laps.add(lap.size, lap.mode, lap) {
            self.report.rows.push(self.row(tokens, laps));
            self.progress.set_message(format!("{tokens} tokens"));
            self.progress.inc(1);
        }
        Ok(())
    }

    /// From the laps of all ranks, of which there is at least one.
    fn row(&self, tokens: usize, mut laps: Vec<Lap>) -> Row {
        let names: Vec<String> = laps[0].sides.keys().cloned().collect();
        let of_side = |name: &str, times: fn(&SideLap) -> &[f64]| {
            median(slowest(laps.iter().filter_map(|lap| lap.sides.get(name)).map(times)))
        };
        let by_side = |times: fn(&SideLap) -> &[f64]| -> BTreeMap<String, f64> {
            names.iter().map(|name| (name.clone(), of_side(name, times))).collect()
        };
        let wrong = |name: &String| {
            let wrong = laps.iter().filter_map(|lap| lap.sides.get(name)).map(|lap| lap.wrong).sum();
            (name.clone(), wrong)
        };
        let (time_us, host_us) = (by_side(|lap| &lap.times_us), by_side(|lap| &lap.host_us));
        let wrong = names.iter().map(wrong).collect();
        let (ours, peers) = self.report.sides.split_at(self.report.own_sides);
        let time = |name: &&'static str| Some((*name, *time_us.get(*name)?));
        let best = ours.iter().filter_map(time).min_by(|(_, one), (_, other)| one.total_cmp(other));
        let peers: Vec<f64> = peers.iter().filter_map(time).map(|(_, us)| us).collect();
        let lap = laps.swap_remove(0);
        Row {
            tokens,
            mode: lap.mode,
            best: best.map_or_else(String::new, |(name, _)| name.to_owned()),
            tokens_per_s: time_us.iter().map(|(name, us)| (name.clone(), tokens as f64 / us * 1e6)).collect(),
            ratio: best.and_then(|(_, us)| ratio(us, &peers)),
            plans: lap.plans,
            missing: lap.missing,
            time_us,
            host_us,
            wrong,
        }
    }

    pub(super) fn finish(self) -> Report {
        self.progress.finish_and_clear();
        self.report
    }
}

impl Report {
    /// The rows for people.
    pub(super) fn table(&self) -> impl Display {
        let mut headings: Vec<String> = ["tokens", "mode", "best"].map(str::to_owned).into();
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.push("ratio".to_owned());
        headings.extend(self.sides.iter().map(|side| format!("{side} tokens/s")));
        headings.push("wrong".to_owned());
        let right = (0..headings.len()).filter(|column| ![1, 2].contains(column));
        let mut table = Table::new(headings, right);
        for row in &self.rows {
            let mut cells = vec![row.tokens.to_string(), row.mode.name().to_owned(), row.best.clone()];
            let number = |value: Option<&f64>, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            cells.extend(self.sides.iter().map(|side| number(row.time_us.get(*side), 2)));
            cells.push(number(row.ratio.as_ref(), 2));
            cells.extend(self.sides.iter().map(|side| number(row.tokens_per_s.get(*side), 0)));
            cells.push(row.wrong.values().sum::<u64>().to_string());
            table.add_row(cells);
        }
        table
    }

    /// Fails if anything was wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        for row in &self.rows {
            if let Some((side, wrong)) = row.wrong.iter().find(|(_, wrong)| **wrong > 0) {
                let (tokens, seed) = (row.tokens, self.seed);
                let message = format!("{side}: {wrong} elements are wrong at {tokens} tokens (seed {seed})");
                return Err(Failure::failed(message));
            }
        }
        Ok(())
    }
}
