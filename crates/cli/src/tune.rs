//! `symmetra tune`: measures which all-reduce algorithm is fastest for which message on this machine, and
//! writes the file that `Config::tuning` loads.

mod calls;
mod crossovers;
mod experts;
mod grids;
mod measure;
mod norms;
mod report;
mod timing;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use symmetra::{Codec, DeviceKind, Dtype, MAX_WORLD_SIZE, Reduction, Tuning, explain};

use crate::grid::{GridArgs, GridWorld};
use calls::AgreedSize;
use experts::TunedLayer;
use grids::Grids;
use harness::comparison::repeats::Repeats;
use harness::devices::{self, Choice, GPUS};
use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::names::distinct;
use harness::ranks::{RanksAs, Run};
use harness::sizes::sizes_elems;
use harness::{bytes, names, output, target};
pub(crate) use measure::TunePlan;
use measure::TunedMessages;
use norms::Norms;
use report::{TuneReport, TunedWorld};

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Measure the crossovers between all-reduce algorithms on this machine, for `Config::tuning`.
///
/// For every number of ranks, each type, and memory that peers can address (symmetric) or cannot (plain), all
/// algorithms take turns from captured graphs. A time is the median over the launches of the slowest
/// rank's time for one operation; all ranks agree on it. Algorithms that send whole messages are no longer timed
/// once they took four times as long as the fastest at two sizes in a row.
///
/// A choice of the built-in table changes only where another algorithm is more than 2 % faster. Messages smaller or
/// larger than any measured keep the built-in choice. Where the choice is ring or recursive-doubling, sums of floats
/// are rounded at every rank.
///
/// --codec finds the size from which codecs are faster than unchanged values: `EnvConfig::quantised` takes the
/// smallest message from there. --hidden finds the crossovers of norms.
/// RMSNorm is timed; its choices serve LayerNorm too.
///
/// --experts finds up to which size of a rank's rows packets serve experts that leave the method to the library, and
/// direct access beyond: experts of all methods exchange rows of bf16 by rank, and a time is the time of a dispatch and
/// its combine.
///
/// --mixed finds the crossovers between the modes of every operation over a grid, with the first type of --dtype; a
/// size is the size of `x`, or of a slice. With --hosts the ranks of a grid are divided among that many hosts by name.
///
/// The file has a table for results in any order and one for exact determinism, the times it was made
/// from, and versions; without --output nothing is written. `symmetra info --tuning FILE` shows its choices.
/// Exit status: 0, or 1 when a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra tune --output tuning.json
  symmetra tune --ranks 4,8 --max-bytes 1GiB --output tuning.json
  symmetra tune --codec fp8,int8,int6,int4 --hidden 8192 --output tuning.json
  symmetra tune --experts deepseek --output tuning.json
  symmetra tune --mixed --ranks 4 --local-tp 2 --local-dp 2 --output tuning.json
  symmetra tune --device host --ranks 2 --dtype f32 --max-bytes 1MiB --json")]
pub(crate) struct Args {
    /// Numbers of ranks, separated by commas [default: 2 up to the number of GPUs, or of processors]
    #[arg(short = 'n', long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(2..=MAX))]
    ranks: Vec<u64>,

    /// The devices on which the ranks work
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    device: Choice,

    /// Whether ranks are processes or threads
    #[arg(long, value_enum, default_value_t = RanksAs::Processes)]
    ranks_as: RanksAs,

    /// Types to tune with: a type whose times stand for all floating types, one that stands for all integers, or both
    #[arg(long, value_delimiter = ',', value_name = "TYPES", default_value = "bf16,i32", value_parser = names::dtype_parser())]
    dtype: Vec<Dtype>,

    /// Codecs to time in addition to the algorithms, separated by commas, to find the size from which each is faster.
    /// Needs f16 or bf16 [default: none]
    #[arg(long, value_delimiter = ',', value_name = "CODECS", value_parser = names::codec_parser())]
    codec: Vec<Codec>,

    /// Time norms of rows of N elements too: one kernel that sums and norms, or an all-reduce and then a norm
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    hidden: Option<u64>,

    /// Time a layer of experts too, by packets and by direct access: deepseek, mixtral, or experts, experts of a token and
    /// elements of a row [default: none]
    #[arg(long, value_name = "E,K,H", value_parser = |text: &str| text.parse::<ExpertShape>())]
    experts: Option<ExpertShape>,

    /// Time collectives over a grid of tensor and data parallelism too, in every mode
    #[arg(long)]
    mixed: bool,

    /// Among how many hosts the ranks of a grid are divided
    #[arg(long, requires = "mixed", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    hosts: u64,

    #[command(flatten)]
    grid: GridArgs,

    /// Smallest message of a rank, rounded up to a power of two: bytes, or with a unit. K, M, G, T and KiB, MiB, GiB,
    /// TiB are powers of 1024; KB, MB, GB, TB are powers of 1000
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1KiB", value_parser = bytes::parse)]
    min_bytes: u64,

    /// Largest message of a rank: sizes double up to this [default: 256 MiB on GPUs, 16 MiB on the CPU]
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = bytes::parse)]
    max_bytes: Option<u64>,

    /// Operations of a launch [default: 40; fewer of large messages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    operations: Option<u32>,

    /// Timed launches of each algorithm
    #[arg(long, alias = "launches", value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up launches of each algorithm before the timed launches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Write the tuning into this file; replaced whole if it exists
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

impl Args {
    fn plan(&self, kind: DeviceKind) -> Result<TunePlan, CommandFailure> {
        let usual = if kind == DeviceKind::Host { 16 << 20 } else { 256 << 20 };
        let max_bytes = self.max_bytes.unwrap_or(usual);
        let too_large = || CommandFailure::usage(format!("--min-bytes is {}, which no memory holds", self.min_bytes));
        let min_bytes = self.min_bytes.checked_next_power_of_two().ok_or_else(too_large)?;
        let mut messages: Vec<TunedMessages> = Vec::new();
        for dtype in self.dtype.iter().copied() {
            if let Some(other) = messages.iter().find(|other| other.dtype.is_float() == dtype.is_float()) {
                let kind = if dtype.is_float() { "floating types" } else { "integers" };
                return Err(CommandFailure::usage(format!(
                    "--dtype: {} and {dtype} both stand for {kind}",
                    other.dtype
                )));
            }
            messages.push(TunedMessages { dtype, sizes_elems: sizes_elems([min_bytes, max_bytes], 2, dtype, 1)? });
        }
        let codecs = distinct("--codec", &self.codec, Codec::name, |codec| {
            let carried = messages.iter().any(|messages| codec.carries(messages.dtype, Reduction::Sum));
            match (codec, carried) {
                (Codec::None, _) => Err(CommandFailure::usage("--codec none: values as they are are timed anyway")),
                (_, true) => Ok(()),
                (_, false) => Err(CommandFailure::usage(format!("--codec {codec} needs --dtype f16 or bf16"))),
            }
        })?;
        let norms = self.hidden.map(|hidden| norms(&messages, hidden as usize, max_bytes)).transpose()?;
        let experts = self.experts.map(|shape| TunedLayer::new(shape, max_bytes));
        let operations = self.operations;
        let launches = Repeats { timed: self.iterations, warmup: self.warmup };
        Ok(TunePlan { messages, codecs, norms, experts, grids: None, operations, launches })
    }

    /// The plan for `ranks` ranks.
    fn plan_on(&self, plan: &TunePlan, kind: DeviceKind, ranks: usize) -> Result<TunePlan, CommandFailure> {
        if !self.mixed && self.grid.is_given() {
            return Err(CommandFailure::usage("--local-tp, --local-dp, --across-tp and --across-dp need --mixed"));
        }
        let TunedMessages { dtype, sizes_elems } = plan.messages[0].clone();
        let largest_bytes = sizes_elems.last().map_or(0, |elems| elems * dtype.bytes());
        let grids = || {
            let world = GridWorld::new(ranks, self.hosts as usize, self.grid, largest_bytes)?;
            Ok::<_, CommandFailure>(Grids { world, dtype, sizes_elems })
        };
        let grids = self.mixed.then(grids).transpose()?;
        Ok(TunePlan { grids, ..plan.on(kind, ranks)? })
    }

    /// Numbers of ranks, each once, in order.
    fn worlds(&self, kind: DeviceKind) -> Vec<usize> {
        let mut worlds: Vec<usize> = self.ranks.iter().map(|ranks| *ranks as usize).collect();
        if worlds.is_empty() {
            let available = match GPUS.iter().find(|gpu| gpu.kind == kind) {
                Some(gpu) => gpu.count(),
                None => available_parallelism().map_or(2, usize::from),
            };
            worlds.extend(2..=available.clamp(2, MAX_WORLD_SIZE));
        }
        worlds.sort_unstable();
        worlds.dedup();
        worlds
    }
}

/// Rows of `hidden` elements: 1, 2, 4 and so on rows, up to `max_bytes` bytes.
fn norms(messages: &[TunedMessages], hidden: usize, max_bytes: u64) -> Result<Norms, CommandFailure> {
    let dtypes = symmetra::op::ALL_REDUCE_NORM.dtypes();
    let dtype = messages.iter().map(|messages| messages.dtype).find(|dtype| dtypes.contains(dtype));
    let dtype = dtype.ok_or_else(|| CommandFailure::usage("--hidden needs --dtype f32, f16 or bf16"))?;
    let fits = |tokens: &usize| *tokens == 1 || (tokens * hidden * dtype.bytes()) as u64 <= max_bytes;
    let tokens = (0..20).map(|power| 1 << power).take_while(fits).collect();
    Ok(Norms { dtype, hidden, tokens })
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    // One kind of device for all numbers of ranks.
    let most = args.ranks.iter().max().map_or(2, |ranks| *ranks as usize);
    let kind = devices::kind(args.device, most, false);
    let (plan, worlds) = (args.plan(kind)?, args.worlds(kind));
    // Refuses a missing folder or device before anything is measured.
    let target = args.output.as_deref().map(check_output).transpose()?;
    let devices = worlds.iter().map(|world| devices::assign(kind, *world, false)).collect::<Result<Vec<_>, _>>()?;
    let plans = worlds.iter().map(|world| args.plan_on(&plan, kind, *world)).collect::<Result<Vec<_>, _>>()?;
    output::note(format_args!("tuning worlds of {worlds:?} ranks as {} on {kind}", args.ranks_as.name()))?;
    let progress = output::progress(plans.iter().map(TunePlan::trials).sum::<Result<_, _>>()?);
    let mut measured = Vec::new();
    for (devices, plan) in devices.iter().zip(plans) {
        let mut trials = Vec::new();
        Run::new(devices, plan).attend(args.ranks_as, |_, trial: AgreedSize| {
            let (ranks, size, dtype) = (devices.len(), bytes::format(trial.bytes), trial.calls.dtype());
            progress.set_message(format!("{ranks} ranks, {size} of {dtype}"));
            progress.inc(1);
            trials.push(trial);
            Ok(())
        })?;
        measured.push(TunedWorld { ranks: devices.len(), trials });
    }
    progress.finish_and_clear();
    let device = devices[0][0].open()?;
    let report = TuneReport::new(&device, args.ranks_as, args.iterations, &measured)?;
    // Before the tables, whose reader may be gone.
    target.map_or(Ok(()), |path| write(&report, &path))?;
    if args.json { output::json(&report) } else { output::line(report.tables()) }
}

/// Refuses a path that cannot be a file. Returns the path with links followed.
fn check_output(path: &Path) -> Result<PathBuf, CommandFailure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(CommandFailure::usage(format!("--output: {} is no folder", folder.display())));
    }
    if path.is_dir() || path.file_name().is_none() {
        return Err(CommandFailure::usage(format!("--output: {} names no file", path.display())));
    }
    let path = target::check_replaced("--output", path)?;
    target::check_beside("--output", &path)?;
    Ok(path)
}

/// Writes the file and reads it back.
fn write(report: &TuneReport, path: &Path) -> Result<(), CommandFailure> {
    report.tuning.save(path)?;
    let read = Tuning::load(path)?;
    for table in read.tables.iter().filter(|table| !table.exact) {
        let explain = explain(report.kind, None, table.world_size, Some(&read))?;
        let dtype = if table.floating { Dtype::BF16 } else { Dtype::I32 };
        let ranges = explain(dtype, table.direct).into_iter().map(|range| (range.up_to_bytes, range.choice.name()));
        let rows = table.rows.iter().map(|row| (row.up_to_bytes.unwrap_or(u64::MAX), row.algorithm.as_str()));
        if read != report.tuning || !ranges.eq(rows) {
            return Err(CommandFailure::failed(format!("{} reads back as something else", path.display())));
        }
    }
    output::note(format_args!("wrote {}", path.display()))?;
    Ok(())
}
