//! The result of a race of norms: a row for each number of tokens and mode once every rank has run it.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;

use super::rank::Lap;
use super::{NormRace, UNQUANTISED};
use crate::bench::gathered::Gathered;
use crate::contest::turns::{Mode, SideLap};
use crate::devices::RankDevice;
use crate::failure::Failure;
use crate::norm::form::Form;
use crate::ranks::RanksAs;
use crate::statistics::{median, ratio, slowest};
use crate::table::Table;

/// One number of tokens in one mode.
#[derive(Debug, Serialize)]
struct Row {
    tokens: usize,
    /// Of a rank's input.
    bytes: u64,
    mode: Mode,
    operations: u32,
    /// Which algorithm sums, by side of ours.
    algorithm: BTreeMap<&'static str, String>,
    /// By side.
    time_us: BTreeMap<&'static str, f64>,
    /// The host's time for one operation: of a graph's launch, its share.
    host_us: BTreeMap<&'static str, f64>,
    /// The time of our first way, unquantised, beyond that of the operation without its norm.
    norm_us: f64,
    /// The time of our first way beyond its time unquantised.
    quantise_us: Option<f64>,
    /// The best peer's time by that of our first way.
    ratio: Option<f64>,
    wrong: BTreeMap<&'static str, u64>,
}

/// The result, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    op: Form,
    dtype: &'static str,
    hidden: usize,
    quantise: Option<String>,
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
    race: &'a NormRace,
    laps: Gathered<Lap>,
    report: Report,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(
        devices: &[RankDevice],
        ranks_as: RanksAs,
        race: &'a NormRace,
        about_peers: Option<String>,
    ) -> Self {
        let report = Report {
            ranks: devices.len(),
            device: devices.first().map_or("host", |device| device.kind().name()),
            ranks_as: ranks_as.name(),
            op: race.op,
            dtype: race.dtype.name(),
            hidden: race.hidden,
            quantise: race.quantise.map(|format| format.to_string()),
            seed: race.seed,
            launches: race.launches,
            sides: race.side_names(),
            own_sides: race.own_sides().len(),
            about_peers,
            rows: Vec::new(),
        };
        Self { race, laps: Gathered::new(report.ranks), report }
    }

    pub(super) fn hear(&mut self, rank: usize, lap: Lap) -> Result<(), Failure> {
        if lap.size >= self.race.tokens.len() || lap.sides.len() != self.report.sides.len() {
            return Err(Failure::failed(format!("rank {rank} ran another race: size {}", lap.size)));
        }
        if let Some(laps) = self.laps.add(lap.size, lap.mode, lap) {
            self.report.rows.push(self.row(&laps));
        }
        Ok(())
    }

    /// From the laps of all ranks, of which there is at least one.
    fn row(&self, laps: &[Lap]) -> Row {
        let names = &self.report.sides;
        let tokens = self.race.tokens[laps[0].size];
        let of_side = |side: usize, times: fn(&SideLap) -> &[f64]| {
            median(slowest(laps.iter().filter_map(|lap| lap.sides.get(side)).map(times)))
        };
        let by_side = |times: fn(&SideLap) -> &[f64]| -> BTreeMap<&'static str, f64> {
            names.iter().enumerate().map(|(side, name)| (*name, of_side(side, times))).collect()
        };
        let wrong = |side: usize| laps.iter().filter_map(|lap| lap.sides.get(side)).map(|lap| lap.wrong).sum();
        let time_us = by_side(|lap| &lap.times_us);
        let (ours, unquantised) = (time_us[names[0]], time_us.get(UNQUANTISED).copied());
        let peers_us: Vec<f64> = names[self.report.own_sides..].iter().map(|name| time_us[name]).collect();
        Row {
            tokens,
            bytes: self.race.bytes(tokens),
            mode: laps[0].mode,
            operations: laps[0].operations,
            algorithm: names.iter().copied().zip(laps[0].algorithms.iter().cloned()).collect(),
            host_us: by_side(|lap| &lap.host_us),
            norm_us: unquantised.unwrap_or(ours) - time_us[self.race.op.name()],
            quantise_us: unquantised.map(|unquantised| ours - unquantised),
            ratio: ratio(ours, &peers_us),
            wrong: names.iter().enumerate().map(|(side, name)| (*name, wrong(side))).collect(),
            time_us,
        }
    }

    pub(super) fn finish(self) -> Report {
        self.report
    }
}

impl Report {
    /// The rows for people.
    pub(super) fn table(&self) -> impl Display {
        let mut headings: Vec<String> = ["tokens", "bytes", "mode", "algorithm"].map(str::to_owned).into();
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.push("norm us".to_owned());
        headings.extend(self.quantise.as_ref().map(|_| "quantise us".to_owned()));
        headings.extend(["ratio", "wrong"].map(str::to_owned));
        let right = (0..headings.len()).filter(|column| ![2, 3].contains(column));
        let mut table = Table::new(headings, right);
        for row in &self.rows {
            let algorithm = row.algorithm[self.sides[0]].clone();
            let mut cells = vec![row.tokens.to_string(), row.bytes.to_string(), row.mode.name().to_owned(), algorithm];
            cells.extend(self.sides.iter().map(|side| format!("{:.2}", row.time_us[side])));
            cells.extend([Some(row.norm_us), row.quantise_us].into_iter().flatten().map(|us| format!("{us:.2}")));
            cells.push(row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
            cells.push(row.wrong.values().sum::<u64>().to_string());
            table.add_row(cells);
        }
        table
    }

    /// Fails if anything was wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        for side in &self.sides {
            let wrong: u64 = self.rows.iter().map(|row| row.wrong[side]).sum();
            if wrong > 0 {
                return Err(Failure::failed(format!("{side}: {wrong} elements are wrong (seed {})", self.seed)));
            }
        }
        Ok(())
    }
}
