//! The result of a tuning: the file, and tables of the times.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use symmetra::experts::Method;
use symmetra::mixed::MixedMode;
use symmetra::{
    Algorithm, Codec, Device, DeviceKind, Dtype, Range, Ranges, TunedCodec, TunedExperts, TunedGrid, TunedNorm,
    TunedRow, TunedTable, TunedTiming, Tuning,
};

use super::calls::{APART, AgreedSize, TunedCalls};
use super::crossovers::{CrossoverSize, MARGIN, Pair, choose, faster_from, ranges};
use harness::bytes;
use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::ranks::RanksAs;
use harness::table::Table;

/// All trials of one number of ranks.
pub(super) struct TunedWorld {
    pub(super) ranks: usize,
    pub(super) trials: Vec<AgreedSize>,
}

/// The result, as `--json` writes it.
#[derive(Serialize)]
pub(super) struct TuneReport {
    #[serde(skip)]
    pub(super) kind: DeviceKind,
    ranks_as: &'static str,
    launches: u32,
    sections: Vec<Section>,
    /// The contents of the file.
    pub(super) tuning: Tuning,
}

/// One number of ranks and kind of calls.
#[derive(Serialize)]
struct Section {
    ranks: usize,
    dtype: &'static str,
    memory: &'static str,
    #[serde(flatten)]
    subject: Subject,
    /// A choice changes where the change saves more than this share of the time.
    margin: f64,
    rows: Vec<TunedSizeRow>,
}

/// The properties of calls, other than type and memory.
#[derive(Serialize)]
#[serde(untagged)]
enum Subject {
    Sums {},
    Norms {
        /// Elements of a row.
        hidden: usize,
    },
    Experts {
        layer: ExpertShape,
    },
    Grid {
        grid: OverGrid,
    },
}

/// An operation over a mesh.
#[derive(Serialize)]
struct OverGrid {
    operation: &'static str,
    local_tensor: usize,
    local_data: usize,
    across_tensor: usize,
    across_data: usize,
}

/// One size.
#[derive(Serialize)]
struct TunedSizeRow {
    bytes: u64,
    /// Times by algorithm or codec. Algorithms that were not timed are omitted.
    times_us: Vec<(String, f64)>,
    /// The fastest algorithm.
    fastest: String,
    /// The choices of the new table and of the built-in table.
    chosen: String,
    before: String,
}

impl TuneReport {
    pub(super) fn new(
        device: &Device,
        ranks_as: RanksAs,
        launches: u32,
        worlds: &[TunedWorld],
    ) -> Result<Self, CommandFailure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut tuning = Tuning::default()
            .measured_unix_s(now)
            .device(device.name())
            .driver(device.versions())
            .kind(device.kind().name().to_owned());
        let mut sections = Vec::new();
        for TunedWorld { ranks, trials } in worlds {
            for trials in trials.chunk_by(|one, other| one.calls == other.calls) {
                sections.push(section(device, *ranks, trials, &mut tuning)?);
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

/// Adds one kind of calls to the tuning. The trials have rising sizes.
fn section(
    device: &Device,
    ranks: usize,
    trials: &[AgreedSize],
    tuning: &mut Tuning,
) -> Result<Section, CommandFailure> {
    let calls = &trials[0].calls;
    let built_in = calls.built_in(device, ranks)?;
    let choices = chosen(trials, &built_in, is_no_codec);
    let tuned = rows(&choices);
    let subject = match calls {
        TunedCalls::Sums { dtype, direct } => {
            add_sums(tuning, ranks, (*dtype, *direct), trials, [&choices, &built_in]);
            Subject::Sums {}
        }
        TunedCalls::Norms { hidden, .. } => {
            tuning.norms.push(TunedNorm::default().world_size(ranks).hidden(*hidden).rows(tuned));
            Subject::Norms { hidden: *hidden }
        }
        TunedCalls::Experts(layer) => {
            let entry = TunedExperts::default().world_size(ranks).experts(layer.experts).top_k(layer.top_k);
            tuning.experts.push(entry.hidden(layer.hidden).rows(tuned));
            Subject::Experts { layer: *layer }
        }
        TunedCalls::Grid { world, operation, direct, .. } => {
            let [local_tensor, local_data, across_tensor, across_data] =
                world.config().grid_of(world.local(), world.hosts)?;
            let operation = operation.name();
            let entry = TunedGrid::default()
                .local_tensor(local_tensor)
                .local_data(local_data)
                .across_tensor(across_tensor)
                .across_data(across_data)
                .operation(operation.to_owned())
                .direct(*direct)
                .measured_bytes(Some([trials[0].bytes, trials[trials.len() - 1].bytes]));
            tuning.grids.push(entry.rows(tuned));
            Subject::Grid { grid: OverGrid { operation, local_tensor, local_data, across_tensor, across_data } }
        }
    };
    let (dtype, memory) = (calls.dtype().name(), calls.memory());
    let rows = trials.iter().map(|trial| row(trial, &choices, &built_in)).collect();
    Ok(Section { ranks, dtype, memory, subject, margin: MARGIN, rows })
}

/// Adds the tables of both determinisms, the times, and the sizes of codecs.
fn add_sums(
    tuning: &mut Tuning,
    ranks: usize,
    (dtype, direct): (Dtype, bool),
    trials: &[AgreedSize],
    [choices, built_in]: [&Ranges<String>; 2],
) {
    let floating = dtype.is_float();
    let is_exact = |name: &str| name.parse().is_ok_and(|algorithm: Algorithm| algorithm.is_exact(dtype, ranks));
    let of_kind = TunedTable::default().world_size(ranks).floating(floating).direct(direct);
    let exact = chosen(trials, built_in, is_exact);
    tuning.tables.push(of_kind.clone().exact(false).rows(rows(choices)));
    tuning.tables.push(of_kind.exact(true).rows(rows(&exact)));
    let timing = TunedTiming::default().world_size(ranks).floating(floating).direct(direct);
    let timing = |trial: &AgreedSize| timing.clone().bytes(trial.bytes).times_ns(trial.times_ns.clone());
    tuning.timings.extend(trials.iter().map(timing));
    if direct {
        // Values without a codec are fastest in symmetric memory.
        let tuned = |codec: &Codec| {
            let from_bytes = codec_from(trials, choices, *codec)?;
            Some(TunedCodec::default().world_size(ranks).codec(codec.to_string()).from_bytes(from_bytes))
        };
        tuning.codecs.extend(Codec::ALL.iter().filter_map(tuned));
    }
}

/// The choice for each range of sizes among the candidates that are able. The trials have rising sizes.
fn chosen(trials: &[AgreedSize], built_in: &Ranges<String>, able: impl Fn(&str) -> bool) -> Ranges<String> {
    let size = |trial: &AgreedSize| {
        let times = trial.times_ns.iter().filter(|(name, _)| able(name));
        CrossoverSize { bytes: trial.bytes, times_ns: times.map(|(name, time)| (name.clone(), *time)).collect() }
    };
    let sizes: Vec<CrossoverSize> = trials.iter().map(size).collect();
    let built_in = Ranges::new(built_in.iter().filter(|range| able(&range.choice)).cloned());
    ranges(&sizes, &choose(&sizes, &built_in), &built_in)
}

/// The size from which a codec is faster than the choices of a table. The outer `None`: the codec was not timed.
fn codec_from(trials: &[AgreedSize], table: &Ranges<String>, codec: Codec) -> Option<Option<u64>> {
    let pair = |trial: &AgreedSize| {
        let plain = trial.times_ns.get(&table.at(trial.bytes)?.choice);
        let algorithms = trial.times_ns.iter().filter(|(name, _)| is_no_codec(name));
        let plain_ns = *plain.or(algorithms.map(|(_, time)| time).min())?;
        Some(Pair { bytes: trial.bytes, plain_ns, coded_ns: *trial.times_ns.get(codec.name())? })
    };
    let pairs: Vec<Pair> = trials.iter().filter_map(pair).collect();
    (!pairs.is_empty()).then(|| faster_from(&pairs))
}

/// Whether a candidate is a choice. A codec is a setting of the program.
fn is_no_codec(name: &str) -> bool {
    name.parse::<Codec>().is_err()
}

fn rows(choices: &Ranges<String>) -> Vec<TunedRow> {
    let limit = |bytes: u64| (bytes < u64::MAX).then_some(bytes);
    let row = |range: &Range<String>| {
        TunedRow::default().up_to_bytes(limit(range.up_to_bytes)).algorithm(range.choice.clone())
    };
    choices.iter().map(row).collect()
}

fn row(trial: &AgreedSize, choices: &Ranges<String>, built_in: &Ranges<String>) -> TunedSizeRow {
    let AgreedSize { bytes, times_ns, .. } = trial;
    let fastest = times_ns.iter().filter(|(name, _)| is_no_codec(name)).min_by_key(|(_, time)| **time);
    let at = |ranges: &Ranges<String>| ranges.at(*bytes).map_or_else(String::new, |range| range.choice.clone());
    TunedSizeRow {
        bytes: *bytes,
        times_us: times_ns.iter().map(|(name, time)| (name.clone(), *time as f64 / 1e3)).collect(),
        fastest: fastest.map_or_else(String::new, |(name, _)| name.clone()),
        chosen: at(choices),
        before: at(built_in),
    }
}

impl Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, dtype, memory, .. } = self;
        match &self.subject {
            Subject::Sums {} => {
                writeln!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one all-reduce")?
            }
            Subject::Norms { hidden } => {
                write!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one all-reduce")?;
                writeln!(out, " and norm of rows of {hidden} elements")?;
            }
            Subject::Experts { layer } => {
                writeln!(out, "{ranks} ranks, {dtype}: microseconds of a dispatch and combine, experts {layer}")?;
            }
            Subject::Grid { grid: OverGrid { operation, local_tensor, local_data, across_tensor, across_data } } => {
                let hosts = across_tensor * across_data;
                write!(out, "{ranks} ranks, {dtype}, {memory} memory: microseconds of one {operation}")?;
                write!(out, ", a host {local_tensor} tensor x {local_data} data")?;
                writeln!(out, ", {hosts} hosts {across_tensor} tensor x {across_data} data")?;
            }
        }
        // Timed algorithms, in the order of their numbers.
        let timed = |name: &str| self.rows.iter().any(|row| row.time_us(name).is_some());
        let others = [APART, Method::Packets.name(), Method::Direct.name()];
        let candidates =
            Algorithm::ALL.map(Algorithm::name).into_iter().chain(others).chain(Codec::ALL.map(Codec::name));
        let candidates = candidates.chain(MixedMode::ALL.map(MixedMode::name));
        let names: Vec<&str> = candidates.filter(|name| timed(name)).collect();
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

impl TunedSizeRow {
    fn time_us(&self, algorithm: &str) -> Option<f64> {
        self.times_us.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
    }
}
