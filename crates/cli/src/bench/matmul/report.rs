//! The result of a race of products: a row for each layer and mode once every rank has run it.

use std::collections::BTreeMap;
use std::fmt::Display;

use indicatif::ProgressBar;
use serde::Serialize;

use super::MatmulRace;
use super::layers::{Fusion, Layer};
use super::numbers::{Precision, Scales};
use super::rank::{Explained, Lap};
use crate::bench::gathered::Gathered;
use crate::contest::turns::{Mode, SideLap};
use crate::devices::RankDevice;
use crate::failure::Failure;
use crate::output;
use crate::ranks::RanksAs;
use crate::statistics::{median, ratio, slowest};
use crate::table::Table;

/// One layer in one mode. Sides by name.
#[derive(Debug, Serialize)]
struct Row {
    /// The name of the layer.
    shape: String,
    /// M: rows of the whole left factor.
    tokens: usize,
    /// K of a rank's product.
    inner: usize,
    /// N of a rank's product.
    columns: usize,
    mode: Mode,
    operations: u32,
    /// The way of our first plan.
    way: &'static str,
    /// What our plans say of themselves.
    plans: BTreeMap<String, Explained>,
    /// Why a side did not run.
    missing: BTreeMap<String, String>,
    time_us: BTreeMap<String, f64>,
    /// The host's time for one operation: of a graph's launch, its share.
    host_us: BTreeMap<String, f64>,
    /// The best peer's time by that of our first plan.
    ratio: Option<f64>,
    wrong: BTreeMap<String, u64>,
}

/// The result, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    collective: Fusion,
    dtype: Precision,
    scaling: Scales,
    seed: u64,
    launches: u32,
    sides: Vec<&'static str>,
    /// Versions and settings.
    about_peers: Option<String>,
    rows: Vec<Row>,
}

/// Gathers the laps of all ranks.
pub(super) struct Hearing<'a> {
    race: &'a MatmulRace,
    laps: Gathered<Lap>,
    progress: ProgressBar,
    report: Report,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(
        devices: &[RankDevice],
        ranks_as: RanksAs,
        race: &'a MatmulRace,
        about_peers: Option<String>,
    ) -> Self {
        let report = Report {
            ranks: devices.len(),
            device: devices.first().map_or("host", |device| device.kind().name()),
            ranks_as: ranks_as.name(),
            collective: race.fusion,
            dtype: race.precision,
            scaling: race.scales,
            seed: race.seed,
            launches: race.launches,
            sides: race.side_names(),
            about_peers,
            rows: Vec::new(),
        };
        let progress = output::progress((race.layers.len() * race.modes.len()) as u64);
        Self { race, laps: Gathered::new(report.ranks), progress, report }
    }

    pub(super) fn hear(&mut self, rank: usize, lap: Lap) -> Result<(), Failure> {
        let Some(layer) = self.race.layers.get(lap.layer) else {
            return Err(Failure::failed(format!("rank {rank} ran another race: layer {}", lap.layer)));
        };
        if let Some(laps) = self.laps.add(lap.layer, lap.mode, lap) {
            self.report.rows.push(self.row(layer, laps));
            self.progress.set_message(format!("{} of {} tokens", layer.name, layer.tokens));
            self.progress.inc(1);
        }
        Ok(())
    }

    /// From the laps of all ranks, of which there is at least one.
    fn row(&self, layer: &Layer, mut laps: Vec<Lap>) -> Row {
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
        let peers: Vec<f64> =
            self.race.competitors.iter().filter_map(|peer| time_us.get(peer.name())).copied().collect();
        let first = self.report.sides[0];
        let lap = laps.swap_remove(0);
        Row {
            shape: layer.name.clone(),
            tokens: layer.tokens,
            inner: layer.inner,
            columns: layer.columns,
            mode: lap.mode,
            operations: lap.operations,
            way: lap.plans.get(first).map_or("-", |plan| plan.way.name()),
            ratio: time_us.get(first).and_then(|ours| ratio(*ours, &peers)),
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
        let mut headings: Vec<String> = ["layer", "M", "K", "N", "mode", "way"].map(str::to_owned).into();
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.extend(["predicted us", "bound us", "ratio", "wrong"].map(str::to_owned));
        let right = (0..headings.len()).filter(|column| ![0, 4, 5].contains(column));
        let mut table = Table::new(headings, right);
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        for row in &self.rows {
            let mut cells = vec![row.shape.clone()];
            cells.extend([row.tokens, row.inner, row.columns].map(|size| size.to_string()));
            cells.extend([row.mode.name().to_owned(), row.way.to_owned()]);
            cells.extend(self.sides.iter().map(|side| number(row.time_us.get(*side).copied())));
            let plan = row.plans.get(self.sides[0]);
            cells.push(number(plan.and_then(|plan| plan.predicted_us)));
            cells.push(number(plan.and_then(|plan| plan.bound_us)));
            cells.push(number(row.ratio));
            cells.push(row.wrong.values().sum::<u64>().to_string());
            table.add_row(cells);
        }
        table
    }

    /// Fails if anything was wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        for row in &self.rows {
            if let Some((side, wrong)) = row.wrong.iter().find(|(_, wrong)| **wrong > 0) {
                let (shape, tokens, seed) = (&row.shape, row.tokens, self.seed);
                let place = format!("{shape} of {tokens} tokens (seed {seed})");
                return Err(Failure::failed(format!("{side}: {wrong} elements are wrong in {place}")));
            }
        }
        Ok(())
    }
}
