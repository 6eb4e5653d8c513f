//! The result of a tuning: the file, and tables for people that show what it was made from.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use symmetra::{Algorithm, Device, DeviceKind, TunedRow, TunedTable, TunedTiming, Tuning};

use super::crossovers::{Choice, Size, crossovers};
use super::lap::Lap;
use crate::all_reduce::RanksAs;
use crate::bytes;
use crate::failure::Failure;

/// All laps of one number of ranks.
pub(super) struct World {
    pub(super) ranks: usize,
    pub(super) laps: Vec<Lap>,
}

/// All of it, as `--json` writes it.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(skip)]
    pub(super) kind: DeviceKind,
    ranks_as: &'static str,
    launches: u32,
    sections: Vec<Section>,
    /// What the file holds.
    pub(super) tuning: Tuning,
}

/// One number of ranks, type and kind of memory.
#[derive(Serialize)]
struct Section {
    ranks: usize,
    dtype: &'static str,
    memory: &'static str,
    rows: Vec<Row>,
}

/// One size.
#[derive(Serialize)]
struct Row {
    bytes: u64,
    /// By algorithm; what was not timed is not there.
    times_us: Vec<(String, f64)>,
    fastest: String,
    /// What the new table takes, and the one in force took.
    chosen: String,
    before: &'static str,
}

impl Report {
    pub(super) fn new(device: &Device, ranks_as: RanksAs, launches: u32, worlds: &[World]) -> Result<Self, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut tuning = Tuning {
            version: Tuning::VERSION,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            measured_unix_s: now,
            device: device.name(),
            driver: device.versions(),
            kind: device.kind().name().to_owned(),
            tables: Vec::new(),
            timings: Vec::new(),
        };
        let mut sections = Vec::new();
        for world in worlds {
            // Laps of one type and kind of memory follow each other.
            for laps in world.laps.chunk_by(|one, other| (one.dtype, one.direct) == (other.dtype, other.direct)) {
                sections.push(section(world.ranks, laps, &mut tuning)?);
            }
        }
        Ok(Self { kind: device.kind(), ranks_as: ranks_as.name(), launches, sections, tuning })
    }

    /// For people.
    pub(super) fn tables(&self) -> impl Display {
        let mut text = String::new();
        for section in &self.sections {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{section}\n");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Adds what was found of one kind of call to the tuning.
fn section(ranks: usize, laps: &[Lap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let Some(Lap { dtype, direct, .. }) = laps.first() else {
        return Err(Failure::failed("nothing was measured"));
    };
    let (dtype, direct) = (*dtype, *direct);
    let key = |exact: bool, choices: &[Choice]| TunedTable {
        world_size: ranks,
        floating: dtype.is_float(),
        direct,
        exact,
        rows: choices
            .iter()
            .map(|choice| TunedRow { up_to_bytes: choice.up_to_bytes, algorithm: choice.algorithm.clone() })
            .collect(),
    };
    let choices = crossovers(&sizes(laps, |_| true));
    let exact = crossovers(&sizes(laps, |algorithm| algorithm.is_exact(dtype, ranks)));
    tuning.tables.extend([key(false, &choices), key(true, &exact)]);
    tuning.timings.extend(laps.iter().map(|lap| TunedTiming {
        world_size: ranks,
        floating: dtype.is_float(),
        direct,
        bytes: lap.bytes,
        times_ns: lap.times_ns.clone(),
    }));
    let memory = if direct { "symmetric" } else { "plain" };
    let rows = laps.iter().map(|lap| row(lap, &choices)).collect();
    Ok(Section { ranks, dtype: dtype.name(), memory, rows })
}

fn sizes(laps: &[Lap], serves: impl Fn(Algorithm) -> bool) -> Vec<Size> {
    let able = |name: &String| name.parse::<Algorithm>().is_ok_and(&serves);
    let size = |lap: &Lap| {
        let times = lap.times_ns.iter().filter(|(name, _)| able(name));
        Size { bytes: lap.bytes, times_ns: times.map(|(name, time)| (name.clone(), *time)).collect() }
    };
    laps.iter().map(size).collect()
}

fn row(lap: &Lap, choices: &[Choice]) -> Row {
    let fastest = lap.times_ns.iter().min_by_key(|(_, time)| **time);
    let chosen = choices.iter().find(|choice| choice.up_to_bytes.is_none_or(|limit| lap.bytes <= limit));
    Row {
        bytes: lap.bytes,
        times_us: lap.times_ns.iter().map(|(name, time)| (name.clone(), *time as f64 / 1e3)).collect(),
        fastest: fastest.map_or_else(String::new, |(name, _)| name.clone()),
        chosen: chosen.map_or_else(String::new, |choice| choice.algorithm.clone()),
        before: lap.before.name(),
    }
}

impl Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, dtype, memory, .. } = self;
        writeln!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one all-reduce")?;
        // In the order of their numbers, those that were timed at all.
        let timed = |name: &str| self.rows.iter().any(|row| row.time_us(name).is_some());
        let names: Vec<&str> = Algorithm::ALL.map(Algorithm::name).into_iter().filter(|name| timed(name)).collect();
        let mut table = Table::new();
        let headings = ["bytes"].into_iter().chain(names.iter().copied()).chain(["fastest", "chosen", "before"]);
        table.load_style(NOTHING).set_header(headings);
        for row in &self.rows {
            let time = |name: &&str| row.time_us(name).map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
            let size = bytes::format(row.bytes);
            let ends = [row.fastest.clone(), row.chosen.clone(), row.before.to_owned()];
            table.add_row([size].into_iter().chain(names.iter().map(time)).chain(ends));
        }
        for column in 0..=names.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        write!(out, "{table}")
    }
}

impl Row {
    fn time_us(&self, algorithm: &str) -> Option<f64> {
        self.times_us.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
    }
}
