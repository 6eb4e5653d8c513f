//! The result of a tuning: the file, and tables for people that show what it was made from.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use symmetra::{Algorithm, Device, DeviceKind, TunedRow, TunedTable, TunedTiming, Tuning};

use super::crossovers::{Choice, serves};
use super::kind::{Kind, noise};
use super::lap::{Lap, merged};
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
    /// Differences below this share of a time say nothing.
    noise: f64,
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
                sections.push(section(device, world.ranks, laps, &mut tuning)?);
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
fn section(device: &Device, ranks: usize, laps: &[Lap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let Some(Lap { dtype, direct, .. }) = laps.first() else {
        return Err(Failure::failed("nothing was measured"));
    };
    let (kind, laps) = (Kind { device, ranks, dtype: *dtype, direct: *direct }, merged(laps));
    let (floating, direct) = (dtype.is_float(), *direct);
    let table = kind.table(&laps, false)?;
    for (exact, choices) in [(false, &table), (true, &kind.table(&laps, true)?)] {
        tuning.tables.push(TunedTable { world_size: ranks, floating, direct, exact, rows: rows(choices) });
    }
    tuning.timings.extend(laps.iter().map(|lap| TunedTiming {
        world_size: ranks,
        floating,
        direct,
        bytes: lap.bytes,
        times_ns: lap.times_ns.clone(),
    }));
    let memory = if direct { "symmetric" } else { "plain" };
    let rows = laps.iter().map(|lap| row(lap, &table)).collect();
    Ok(Section { ranks, dtype: dtype.name(), memory, noise: noise(&laps), rows })
}

/// As the file has them.
fn rows(choices: &[Choice]) -> Vec<TunedRow> {
    let limit = |bytes: u64| (bytes < u64::MAX).then_some(bytes);
    let row =
        |choice: &Choice| TunedRow { up_to_bytes: limit(choice.up_to_bytes), algorithm: choice.algorithm.clone() };
    choices.iter().map(row).collect()
}

fn row(lap: &Lap, table: &[Choice]) -> Row {
    let fastest = lap.times_ns.iter().min_by_key(|(_, time)| **time);
    let chosen = serves(table, lap.bytes);
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
        let Self { ranks, dtype, memory, noise, .. } = self;
        let noise = 100.0 * noise;
        writeln!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one all-reduce, noise {noise:.1} %")?;
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
