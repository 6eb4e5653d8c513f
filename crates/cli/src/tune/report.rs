//! The result of a tuning: the file, and tables of the times.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use symmetra::experts::Method;
use symmetra::mixed::MixedMode;
use symmetra::{
    Algorithm, Codec, Device, DeviceKind, Dtype, TunedCodec, TunedExperts, TunedGrid, TunedNorm, TunedRow, TunedTable,
    TunedTiming, Tuning,
};

use super::crossovers::{Choice, MARGIN, serves};
use super::experts::ExpertLap;
use super::grids::GridLap;
use super::inputs::{codec, expert_table, grid_table, norm_table, table};
use super::measure::Lap;
use super::norms::{APART, NormLap};
use harness::bytes;
use harness::experts::Shape;
use harness::failure::Failure;
use harness::ranks::RanksAs;
use harness::table::Table;

/// All trials of one number of ranks.
pub(super) struct World {
    pub(super) ranks: usize,
    pub(super) laps: Vec<Lap>,
    pub(super) norms: Vec<NormLap>,
    pub(super) experts: Vec<ExpertLap>,
    pub(super) grids: Vec<GridLap>,
}

/// The result, as `--json` writes it.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(skip)]
    pub(super) kind: DeviceKind,
    ranks_as: &'static str,
    launches: u32,
    sections: Vec<Section>,
    /// The contents of the file.
    pub(super) tuning: Tuning,
}

/// One number of ranks, type and kind of memory.
#[derive(Serialize)]
struct Section {
    ranks: usize,
    dtype: &'static str,
    memory: &'static str,
    /// Elements of a row, for norms.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<usize>,
    /// The shape, for experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<Shape>,
    /// The operation and its mesh, for meshes.
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<Over>,
    /// A choice changes where the change saves more than this share of the time.
    margin: f64,
    rows: Vec<Row>,
}

/// An operation over a mesh.
#[derive(Serialize)]
struct Over {
    operation: &'static str,
    local_tensor: usize,
    local_data: usize,
    across_tensor: usize,
    across_data: usize,
}

/// One size.
#[derive(Serialize)]
struct Row {
    bytes: u64,
    /// Times by algorithm or codec. Algorithms that were not timed are omitted.
    times_us: Vec<(String, f64)>,
    /// The fastest algorithm.
    fastest: String,
    /// The choices of the new table and of the table that was in force.
    chosen: String,
    before: String,
}

impl Report {
    pub(super) fn new(device: &Device, ranks_as: RanksAs, launches: u32, worlds: &[World]) -> Result<Self, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut tuning = Tuning::default()
            .measured_unix_s(now)
            .device(device.name())
            .driver(device.versions())
            .kind(device.kind().name().to_owned());
        let mut sections = Vec::new();
        for world in worlds {
            // Trials of one type and kind of memory follow each other.
            for laps in world.laps.chunk_by(|one, other| (one.dtype, one.direct) == (other.dtype, other.direct)) {
                sections.push(section(device, world.ranks, laps, &mut tuning)?);
            }
            if !world.norms.is_empty() {
                sections.push(norm_section(device, world.ranks, &world.norms, &mut tuning)?);
            }
            if !world.experts.is_empty() {
                sections.push(expert_section(device, world.ranks, &world.experts, &mut tuning)?);
            }
            for laps in
                world.grids.chunk_by(|one, other| (one.operation, one.direct) == (other.operation, other.direct))
            {
                sections.push(grid_section(device, world.ranks, laps, &mut tuning)?);
            }
        }
        Ok(Self { kind: device.kind(), ranks_as: ranks_as.name(), launches, sections, tuning })
    }

    /// The text output.
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

/// Adds one kind of call to the tuning.
fn section(device: &Device, ranks: usize, laps: &[Lap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let Some(Lap { dtype, direct, .. }) = laps.first() else {
        return Err(Failure::failed("nothing was measured"));
    };
    let (floating, direct) = (dtype.is_float(), *direct);
    let (any, exact) = (table(device, ranks, laps, false)?, table(device, ranks, laps, true)?);
    for (exact, choices) in [(false, &any), (true, &exact)] {
        tuning.tables.push(
            TunedTable::default().world_size(ranks).floating(floating).direct(direct).exact(exact).rows(rows(choices)),
        );
    }
    tuning.timings.extend(laps.iter().map(|lap| {
        TunedTiming::default()
            .world_size(ranks)
            .floating(floating)
            .direct(direct)
            .bytes(lap.bytes)
            .times_ns(lap.times_ns.clone())
    }));
    if direct {
        // Values without a codec are fastest in symmetric memory.
        let tuned = |coded: &Codec| {
            let from_bytes = codec(laps, &any, *coded)?;
            Some(TunedCodec::default().world_size(ranks).codec(coded.to_string()).from_bytes(from_bytes))
        };
        tuning.codecs.extend(Codec::ALL.iter().filter_map(tuned));
    }
    let memory = if direct { "symmetric" } else { "plain" };
    let rows = laps.iter().map(|lap| row(lap.bytes, &lap.times_ns, &any, lap.before.name())).collect();
    Ok(Section { ranks, dtype: dtype.name(), memory, hidden: None, layer: None, grid: None, margin: MARGIN, rows })
}

/// Adds the norms of one world to the tuning.
fn norm_section(device: &Device, ranks: usize, laps: &[NormLap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let choices = norm_table(device, ranks, laps)?;
    let NormLap { dtype, hidden, .. } = laps[0];
    tuning.norms.push(TunedNorm::default().world_size(ranks).hidden(hidden).rows(rows(&choices)));
    let rows = laps.iter().map(|lap| row(lap.bytes, &lap.times_ns, &choices, &lap.before)).collect();
    let memory = "symmetric";
    Ok(Section {
        ranks,
        dtype: dtype.name(),
        memory,
        hidden: Some(hidden),
        layer: None,
        grid: None,
        margin: MARGIN,
        rows,
    })
}

/// Adds the experts of one world to the tuning.
fn expert_section(device: &Device, ranks: usize, laps: &[ExpertLap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let choices = expert_table(device, ranks, laps)?;
    let shape = laps[0].shape;
    let Shape { experts, top_k, hidden } = shape;
    tuning.experts.push(
        TunedExperts::default().world_size(ranks).experts(experts).top_k(top_k).hidden(hidden).rows(rows(&choices)),
    );
    let rows = laps.iter().map(|lap| row(lap.bytes, &lap.times_ns, &choices, &lap.before)).collect();
    let (dtype, memory) = (Dtype::BF16.name(), "plain");
    Ok(Section { ranks, dtype, memory, hidden: None, layer: Some(shape), grid: None, margin: MARGIN, rows })
}

/// Adds one operation of a mesh to the tuning.
fn grid_section(device: &Device, ranks: usize, laps: &[GridLap], tuning: &mut Tuning) -> Result<Section, Failure> {
    let choices = grid_table(device, laps)?;
    let GridLap { world, dtype, operation, direct, .. } = laps[0].clone();
    let [local_tensor, local_data, across_tensor, across_data] = world.config().grid_of(world.local(), world.hosts)?;
    let operation = operation.name();
    tuning.grids.push(
        TunedGrid::default()
            .local_tensor(local_tensor)
            .local_data(local_data)
            .across_tensor(across_tensor)
            .across_data(across_data)
            .operation(operation.to_owned())
            .direct(direct)
            .measured_bytes(Some([laps[0].bytes, laps[laps.len() - 1].bytes]))
            .rows(rows(&choices)),
    );
    let rows = laps.iter().map(|lap| row(lap.bytes, &lap.times_ns, &choices, &lap.before)).collect();
    let grid = Some(Over { operation, local_tensor, local_data, across_tensor, across_data });
    let memory = if direct { "symmetric" } else { "plain" };
    Ok(Section { ranks, dtype: dtype.name(), memory, hidden: None, layer: None, grid, margin: MARGIN, rows })
}

fn rows(choices: &[Choice]) -> Vec<TunedRow> {
    let limit = |bytes: u64| (bytes < u64::MAX).then_some(bytes);
    let row = |choice: &Choice| {
        TunedRow::default().up_to_bytes(limit(choice.up_to_bytes)).algorithm(choice.algorithm.clone())
    };
    choices.iter().map(row).collect()
}

fn row(bytes: u64, times_ns: &BTreeMap<String, u64>, table: &[Choice], before: &str) -> Row {
    let codec = |name: &str| name.parse::<Codec>().is_ok();
    let fastest = times_ns.iter().filter(|(name, _)| !codec(name)).min_by_key(|(_, time)| **time);
    let chosen = serves(table, bytes);
    Row {
        bytes,
        times_us: times_ns.iter().map(|(name, time)| (name.clone(), *time as f64 / 1e3)).collect(),
        fastest: fastest.map_or_else(String::new, |(name, _)| name.clone()),
        chosen: chosen.map_or_else(String::new, |choice| choice.algorithm.clone()),
        before: before.to_owned(),
    }
}

impl Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, dtype, memory, .. } = self;
        if let Some(Over { operation, local_tensor, local_data, across_tensor, across_data }) = &self.grid {
            let hosts = across_tensor * across_data;
            write!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one {operation}")?;
            write!(out, ", a host {local_tensor} tensor x {local_data} data")?;
            writeln!(out, ", {hosts} hosts {across_tensor} tensor x {across_data} data")?;
        } else if let Some(layer) = self.layer {
            writeln!(out, "{ranks} ranks, {dtype}: microseconds of a dispatch and combine, experts {layer}")?;
        } else {
            write!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one all-reduce")?;
            match self.hidden {
                Some(hidden) => writeln!(out, " and norm of rows of {hidden} elements")?,
                None => writeln!(out)?,
            }
        }
        // Timed algorithms, in the order of their numbers.
        let timed = |name: &str| self.rows.iter().any(|row| row.time_us(name).is_some());
        let others = [APART, Method::Packets.name(), Method::Direct.name()];
        let ways = Algorithm::ALL.map(Algorithm::name).into_iter().chain(others).chain(Codec::ALL.map(Codec::name));
        let ways = ways.chain(MixedMode::ALL.map(MixedMode::name));
        let names: Vec<&str> = ways.filter(|name| timed(name)).collect();
        let headings = ["bytes"].into_iter().chain(names.iter().copied()).chain(["fastest", "chosen", "before"]);
        let mut table = Table::new(headings, 0..=names.len());
        for row in &self.rows {
            let time = |name: &&str| row.time_us(name).map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
            let size = bytes::format(row.bytes);
            let ends = [row.fastest.clone(), row.chosen.clone(), row.before.clone()];
            table.add_row([size].into_iter().chain(names.iter().map(time)).chain(ends));
        }
        write!(out, "{table}")
    }
}

impl Row {
    fn time_us(&self, algorithm: &str) -> Option<f64> {
        self.times_us.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
    }
}
