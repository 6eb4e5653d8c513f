//! The result of a comparison of GEMMs: a row for each layer and mode once every rank has run it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::MatmulRace;
use super::layers::Fusion;
use super::numbers::{Precision, Scales};
use super::rank::{COLLECTIVE, Explained, Lap, PRODUCT};
use crate::hearing::{Heard, Report, Sides};
use harness::contest::turns::Mode;
use harness::failure::Failure;
use harness::statistics::ratio;
use harness::table::Table;

/// One layer in one mode. Candidates by name.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// The name of the layer.
    shape: String,
    /// M: rows of the whole left factor.
    tokens: usize,
    /// K of a rank's GEMM.
    inner: usize,
    /// N of a rank's GEMM.
    columns: usize,
    mode: Mode,
    operations: u32,
    /// The schedule of our first plan.
    way: &'static str,
    /// The descriptions of our plans.
    plans: BTreeMap<String, Explained>,
    /// Why a candidate did not run.
    missing: BTreeMap<String, String>,
    time_us: BTreeMap<String, f64>,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    host_us: BTreeMap<String, f64>,
    /// The longer of the GEMM alone and of the collective alone, in this run.
    bound_us: Option<f64>,
    /// The bound divided by the time of our first plan.
    share: Option<f64>,
    /// The best peer's time divided by the time of our first plan.
    ratio: Option<f64>,
    wrong: BTreeMap<String, u64>,
}

/// The GEMMs.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    collective: Fusion,
    dtype: Precision,
    scaling: Scales,
}

impl Heard for MatmulRace {
    type Settings = Settings;
    type Row = Row;

    fn table(report: &Report<Settings, Row>) -> Table {
        report.for_people()
    }

    fn settings(&self) -> Settings {
        Settings { collective: self.fusion, dtype: self.precision, scaling: self.scales }
    }

    fn repeats(&self) -> (u64, u32) {
        (self.seed, self.launches.timed)
    }

    fn columns(&self) -> Vec<&'static str> {
        self.side_names()
    }

    fn sizes(&self) -> Vec<String> {
        self.layers.iter().map(|layer| format!("{} of {} tokens", layer.name, layer.tokens)).collect()
    }

    fn modes(&self) -> usize {
        self.modes.len()
    }

    fn place(lap: &Lap) -> (usize, Mode) {
        (lap.layer, lap.mode)
    }

    fn rows(&self, number: usize, mut laps: Vec<Lap>) -> Vec<Row> {
        let (names, layer): (Vec<String>, _) = (laps[0].sides.keys().cloned().collect(), &self.layers[number]);
        let of_side = |_, name: &String| laps.iter().filter_map(|lap| lap.sides.get(name)).collect();
        let Sides { time_us, host_us, wrong } = Sides::new(&names, of_side);
        let peers: Vec<f64> = self.competitors.iter().filter_map(|peer| time_us.get(peer.name())).copied().collect();
        let first = self.side_names()[0];
        let alone = |side: &str| time_us.get(side).copied();
        let bound_us = alone(PRODUCT).zip(alone(COLLECTIVE)).map(|(product, collective)| product.max(collective));
        let lap = laps.swap_remove(0);
        vec![Row {
            shape: layer.name.clone(),
            tokens: layer.tokens,
            inner: layer.inner,
            columns: layer.columns,
            mode: lap.mode,
            operations: lap.operations,
            way: lap.plans.get(first).map_or("-", |plan| plan.way.name()),
            bound_us,
            share: bound_us.zip(alone(first)).map(|(bound, ours)| bound / ours),
            ratio: time_us.get(first).and_then(|ours| ratio(*ours, &peers)),
            plans: lap.plans,
            missing: lap.missing,
            time_us,
            host_us,
            wrong,
        }]
    }
}

impl Report<Settings, Row> {
    /// The table of the text output.
    fn for_people(&self) -> Table {
        let mut headings: Vec<String> = ["layer", "M", "K", "N", "mode", "way"].map(str::to_owned).into();
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.extend(["predicted us", "bound us", "bound / way", "ratio", "wrong"].map(str::to_owned));
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
            cells.extend([row.bound_us, row.share, row.ratio].map(number));
            cells.push(row.wrong.values().sum::<u64>().to_string());
            table.add_row(cells);
        }
        table
    }

    /// Fails if any element was wrong.
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
