//! The result of a comparison of norms: a row for each number of tokens and mode once every rank has run it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rank::Lap;
use super::{NormRace, UNQUANTISED};
use crate::hearing::{Heard, Report, Sides, of_tokens};
use harness::contest::turns::Mode;
use harness::failure::Failure;
use harness::form::Form;
use harness::statistics::ratio;
use harness::table::Table;

/// One number of tokens in one mode.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    tokens: usize,
    /// Bytes of a rank's input.
    bytes: u64,
    mode: Mode,
    operations: u32,
    /// The algorithm of the sum, by candidate of this library.
    algorithm: BTreeMap<&'static str, String>,
    /// Times by candidate.
    time_us: BTreeMap<&'static str, f64>,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    host_us: BTreeMap<&'static str, f64>,
    /// The time of our first candidate, unquantised, minus that of the operation without its norm.
    norm_us: f64,
    /// The time of our first candidate minus its time unquantised.
    quantise_us: Option<f64>,
    /// The best peer's time divided by the time of our first candidate.
    ratio: Option<f64>,
    wrong: BTreeMap<&'static str, u64>,
}

/// The norms.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    op: Form,
    dtype: &'static str,
    hidden: usize,
    quantise: Option<String>,
}

impl Heard for NormRace {
    type Settings = Settings;
    type Row = Row;

    fn table(report: &Report<Settings, Row>) -> Table {
        report.for_people()
    }

    fn settings(&self) -> Settings {
        let quantise = self.quantise.map(|format| format.to_string());
        Settings { op: self.op, dtype: self.dtype.name(), hidden: self.hidden, quantise }
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

    fn has_sides_of(&self, lap: &Lap) -> bool {
        lap.sides.len() == self.side_names().len()
    }

    fn rows(&self, size: usize, laps: Vec<Lap>) -> Vec<Row> {
        let (names, tokens) = (self.side_names(), self.tokens[size]);
        let of_side = |side, _: &&'static str| laps.iter().filter_map(|lap| lap.sides.get(side)).collect();
        let Sides { time_us, host_us, wrong } = Sides::new(&names, of_side);
        let (ours, unquantised) = (time_us[names[0]], time_us.get(UNQUANTISED).copied());
        let peers_us: Vec<f64> = names[self.own_sides().len()..].iter().map(|name| time_us[name]).collect();
        vec![Row {
            tokens,
            bytes: self.bytes(tokens),
            mode: laps[0].mode,
            operations: laps[0].operations,
            algorithm: names.iter().copied().zip(laps[0].algorithms.iter().cloned()).collect(),
            norm_us: unquantised.unwrap_or(ours) - time_us[self.op.name()],
            quantise_us: unquantised.map(|unquantised| ours - unquantised),
            ratio: ratio(ours, &peers_us),
            time_us,
            host_us,
            wrong,
        }]
    }
}

impl Report<Settings, Row> {
    /// The table of the text output.
    fn for_people(&self) -> Table {
        let mut headings: Vec<String> = ["tokens", "bytes", "mode", "algorithm"].map(str::to_owned).into();
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.push("norm us".to_owned());
        headings.extend(self.settings.quantise.as_ref().map(|_| "quantise us".to_owned()));
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

    /// Fails if any element was wrong.
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
