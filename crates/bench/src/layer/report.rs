//! The result of a comparison of layers: a row for each number of tokens and mode once every rank has run it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::LayerRace;
use super::rank::Lap;
use super::shape::Shape;
use crate::hearing::{Heard, Report, Sides, of_tokens};
use harness::contest::turns::Mode;
use harness::failure::Failure;
use harness::statistics::ratio;
use harness::table::Table;

/// One number of tokens in one mode. Candidates by name; times are for one layer.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    tokens: usize,
    mode: Mode,
    /// Our fastest strategy.
    best: String,
    time_us: BTreeMap<String, f64>,
    /// The host's time for one layer; for a graph, an equal share of the launch.
    host_us: BTreeMap<String, f64>,
    /// Tokens a second through one layer.
    tokens_per_s: BTreeMap<String, f64>,
    /// The best peer's time divided by the time of our fastest strategy.
    ratio: Option<f64>,
    /// How each plan of a candidate runs, by GEMM.
    plans: BTreeMap<String, BTreeMap<String, String>>,
    /// Why a candidate did not run.
    missing: BTreeMap<String, String>,
    /// Sampled elements that differ from their definition, and elements and rows that are too far from those of the
    /// first candidate.
    wrong: BTreeMap<String, u64>,
}

/// The layers.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    shape: Shape,
    dtype: &'static str,
    layers: u32,
}

impl Heard for LayerRace {
    type Settings = Settings;
    type Row = Row;

    fn table(report: &Report<Settings, Row>) -> Table {
        report.for_people()
    }

    fn settings(&self) -> Settings {
        Settings { shape: self.shape, dtype: "bf16", layers: self.layers }
    }

    fn repeats(&self) -> (u64, u32) {
        (self.seed, self.launches.timed)
    }

    fn columns(&self) -> Vec<&'static str> {
        self.side_names()
    }

    fn sizes(&self) -> Vec<String> {
        of_tokens(&self.tokens)
    }

    fn modes(&self) -> usize {
        self.modes.len()
    }

    fn place(lap: &Lap) -> (usize, Mode) {
        (lap.size, lap.mode)
    }

    fn rows(&self, size: usize, mut laps: Vec<Lap>) -> Vec<Row> {
        let (names, tokens): (Vec<String>, _) = (laps[0].sides.keys().cloned().collect(), self.tokens[size]);
        let of_side = |_, name: &String| laps.iter().filter_map(|lap| lap.sides.get(name)).collect();
        let Sides { time_us, host_us, wrong } = Sides::new(&names, of_side);
        let sides = self.side_names();
        let (ours, peers) = sides.split_at(self.ways.len());
        let time = |name: &&'static str| Some((*name, *time_us.get(*name)?));
        let best = ours.iter().filter_map(time).min_by(|(_, one), (_, other)| one.total_cmp(other));
        let peers: Vec<f64> = peers.iter().filter_map(time).map(|(_, us)| us).collect();
        let lap = laps.swap_remove(0);
        vec![Row {
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
        }]
    }
}

impl Report<Settings, Row> {
    /// The table of the text output.
    fn for_people(&self) -> Table {
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

    /// Fails if any element was wrong.
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
