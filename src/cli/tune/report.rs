//! The result of a tuning: the file, and tables for people that show what it was made from.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use symmetra::{Algorithm, Device, DeviceKind, Dtype, Range, TunedRow, TunedTable, TunedTiming, Tuning, explain};

use super::crossovers::{Choice, Size, crossovers};
use super::lap::{Lap, sends_all};
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
            let built_in = explain(device.kind(), Some(device), world.ranks, None)?;
            // Laps of one type and kind of memory follow each other.
            for laps in world.laps.chunk_by(|one, other| (one.dtype, one.direct) == (other.dtype, other.direct)) {
                sections.push(section(world.ranks, laps, &built_in, &mut tuning)?);
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
fn section(
    ranks: usize,
    laps: &[Lap],
    built_in: &impl Fn(Dtype, bool) -> Vec<Range>,
    tuning: &mut Tuning,
) -> Result<Section, Failure> {
    let Some(Lap { dtype, direct, .. }) = laps.first() else {
        return Err(Failure::failed("nothing was measured"));
    };
    let (dtype, direct) = (*dtype, *direct);
    let choices = |exact: bool| {
        let serves = |algorithm: Algorithm| !exact || algorithm.is_exact(dtype, ranks);
        let mut larger = built_in(dtype, direct);
        larger.retain(|range| serves(range.algorithm));
        let choices = crossovers(&sizes(laps, serves));
        let (world_size, floating, rows) = (ranks, dtype.is_float(), rows(&choices, &larger));
        (TunedTable { world_size, floating, direct, exact, rows }, choices)
    };
    let ((table, choices), (exact_table, _)) = (choices(false), choices(true));
    tuning.tables.extend([table, exact_table]);
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

/// What was found, and for messages larger than any measured what is likely: the choice of the largest in the rest
/// of the built-in range it lies in, whose algorithm was no faster there; then the built-in ranges.
fn rows(choices: &[Choice], built_in: &[Range]) -> Vec<TunedRow> {
    let Some(largest) = choices.last() else { return Vec::new() };
    let found = choices.iter().map(|choice| (choice.up_to_bytes, choice.algorithm.as_str()));
    // The larger the message, the worse such an algorithm is.
    let ends = largest.algorithm.parse().is_ok_and(sends_all);
    let of_largest = built_in.iter().find(|range| largest.up_to_bytes <= range.up_to_bytes);
    let larger = built_in.iter().filter(|range| range.up_to_bytes > largest.up_to_bytes);
    let larger = larger.map(|range| match !ends && of_largest == Some(range) {
        true => (range.up_to_bytes, largest.algorithm.as_str()),
        false => (range.up_to_bytes, range.algorithm.name()),
    });
    let mut rows: Vec<TunedRow> = Vec::new();
    for (up_to_bytes, algorithm) in found.chain(larger) {
        match rows.last_mut() {
            Some(last) if last.algorithm == algorithm => last.up_to_bytes = Some(up_to_bytes),
            _ => rows.push(TunedRow { up_to_bytes: Some(up_to_bytes), algorithm: algorithm.to_owned() }),
        }
    }
    if let Some(last) = rows.last_mut() {
        last.up_to_bytes = None;
    }
    rows
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
    let chosen = choices.iter().find(|choice| lap.bytes <= choice.up_to_bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &[TunedRow]) -> Vec<(Option<u64>, &str)> {
        rows.iter().map(|row| (row.up_to_bytes, row.algorithm.as_str())).collect()
    }

    #[test]
    fn larger_messages_than_measured_go_as_is_likely() {
        let choice = |up_to_bytes, algorithm: Algorithm| Choice { up_to_bytes, algorithm: algorithm.to_string() };
        let range = |up_to_bytes, algorithm| Range { up_to_bytes, algorithm, reason: "" };
        let (ll, two, ring) = (Algorithm::OneShotLL, Algorithm::TwoShotZeroCopy, Algorithm::Ring);
        let built_in = [range(10, ll), range(30, two), range(u64::MAX, ring)];
        let rows_of = |choices: &[Choice]| rows(choices, &built_in);
        let expected = [(Some(16), ll.name()), (Some(30), two.name()), (None, ring.name())];
        assert_eq!(found(&rows_of(&[choice(16, ll)])), expected);
        assert_eq!(
            found(&rows_of(&[choice(8, ll), choice(16, two)])),
            [(Some(8), ll.name()), expected[1], expected[2]]
        );
        assert_eq!(found(&rows_of(&[choice(64, ring)])), [(None, ring.name())]);
        // Where the table has nothing else to say, the largest that was measured does.
        assert_eq!(found(&rows_of(&[choice(64, two)])), [(None, two.name())]);
        assert_eq!(found(&rows_of(&[choice(20, ring)])), [(None, ring.name())]);
        assert_eq!(found(&rows_of(&[choice(10, ring)])), [(Some(10), ring.name()), expected[1], expected[2]]);
        assert_eq!(found(&rows_of(&[choice(64, ll)])), [(Some(64), ll.name()), (None, ring.name())]);
    }
}
