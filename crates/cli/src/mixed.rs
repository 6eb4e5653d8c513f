//! `symmetra mixed`: collectives over meshes of tensor and data parallelism, measured and verified.

mod candidate;
mod engine;
mod oracle;
mod rank;
mod report;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use symmetra::mixed::{MixedMode, MixedOperation};
use symmetra::{Dtype, MAX_WORLD_SIZE, Tuning};

use crate::grid::{GridArgs, GridWorld};
use harness::bytes;
use harness::comparison::competitor::{self, Competitor};
use harness::comparison::nccl;
use harness::failure::CommandFailure;
use harness::names::{self, by_name};
use harness::output;
use harness::ranks::{GroupArgs, RankArgs, Run};
use harness::sizes::SizeArgs;
use harness::table::Table;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Run collectives over a grid of tensor and data parallelism, inside hosts and across hosts.
///
/// Starts the ranks itself. With --hosts the ranks are divided among that many hosts by name: data between hosts
/// go by NCCL, or through the CPU and Gloo, also on one machine. Every size is run on fresh random whole numbers
/// whose sums are exact, and every element of every rank's result is compared with an independent sum.
///
/// Then the modes take turns with batches of operations that are timed: all ranks meet before each batch, and the
/// results of the last batches are compared too. A size is the size of `x`, or of a slice. A row's time is the median
/// over the batches of the slowest rank's time for one operation.
///
/// Known bytes surround every operand and the workspace. They are compared before and after each size is timed.
///
/// Exit status: 0, or 1 when an element is wrong, a byte next to an operand was overwritten or a rank fails, or 2 for
/// wrong usage.
///
/// With --against nccl, on one host, NCCL takes turns with the modes on the same memory: an all-reduce over the ranks
/// of a data rank and an all-gather over the ranks of a tensor rank, or a reduce-scatter and an all-reduce, or a single
/// collective if the operation is one.
///
/// NCCL has a row of its own, and the ratio is NCCL's time by that of a mode. NVLink multicast stays off for NCCL
/// (NCCL_NVLS_ENABLE=0, unless it is set).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra mixed all-reduce-all-gather --local-tp 2 --local-dp 2
  symmetra mixed reduce-scatter-all-reduce --ranks 4 --local-tp 2 --mode two-shot --graph --json
  symmetra mixed all-reduce-all-gather --local-tp 2 --local-dp 2 --mode auto,one-shot,two-shot --graph --against nccl
  symmetra mixed all-reduce-all-gather --local-tp 2 --dtype f32 --min-bytes 8000004 --max-bytes 8000004 --piece-bytes 1MiB
  symmetra mixed all-reduce --ranks 8 --hosts 2 --mode one-shot,two-shot,two-shot-across --max-bytes 64KiB")]
pub(crate) struct Args {
    /// The operation: all-reduce, all-gather, reduce-scatter, all-reduce-all-gather or reduce-scatter-all-reduce
    #[arg(value_parser = |name: &str| name.parse::<MixedOperation>())]
    operation: MixedOperation,

    /// How many ranks, 1 to 16
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    ranks: u64,

    /// Among how many hosts the ranks are divided
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    hosts: u64,

    #[command(flatten)]
    grid: GridArgs,

    #[command(flatten)]
    run: RankArgs,

    /// The modes, separated by commas: auto, one-shot, two-shot, two-shot-across, one-collective, two-collectives
    #[arg(long, value_delimiter = ',', default_value = "auto", value_parser = |name: &str| name.parse::<MixedMode>())]
    mode: Vec<MixedMode>,

    /// Largest piece of `x`, or of a slice, in bytes. The workspace has room for one piece [default: the largest size]
    #[arg(long, value_name = "SIZE", value_parser = bytes::parse)]
    piece_bytes: Option<u64>,

    /// Element type
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    #[command(flatten)]
    sizes: SizeArgs,

    /// Use plain device memory instead of symmetric memory
    #[arg(long)]
    plain: bool,

    /// Run the operations from a captured graph
    #[arg(long)]
    graph: bool,

    /// Measure in turn with the collectives of an engine without grids: NCCL over the tensor group and the data group
    #[arg(long, value_enum, value_name = "PEER")]
    against: Option<Competitor>,

    #[command(flatten)]
    group: GroupArgs,

    /// A file that `symmetra tune --mixed` wrote, from which auto takes its choices [default: the built-in table]
    #[arg(long, value_name = "PATH")]
    tuning: Option<PathBuf>,

    /// Print the steps of each mode, and run nothing
    #[arg(long)]
    explain: bool,

    /// Operations timed for each size and side, in 10 batches at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,

    /// Warm-up batches of each mode before the timed batches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// The settings of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GridSettings {
    #[serde(with = "by_name")]
    operation: MixedOperation,
    world: GridWorld,
    #[serde(with = "names::by_name_each")]
    modes: Vec<MixedMode>,
    #[serde(with = "by_name")]
    dtype: Dtype,
    /// Elements of `x`, or of a slice.
    sizes_elems: Vec<usize>,
    largest_bytes: usize,
    plain: bool,
    graph: bool,
    against: Option<Competitor>,
    group: GroupArgs,
    tuning: Option<Tuning>,
    iterations: u32,
    /// Batches that are not timed.
    warmup: u32,
    seed: u64,
}

impl GridSettings {
    fn new(args: &Args) -> Result<Self, CommandFailure> {
        let sizes_elems = args.sizes.elems(args.dtype, 1)?;
        let largest_bytes = sizes_elems.iter().max().map_or(0, |elems| elems * args.dtype.bytes());
        let piece_bytes = piece_bytes(args)?.unwrap_or(largest_bytes);
        let grids = Self {
            operation: args.operation,
            world: GridWorld::new(args.ranks as usize, args.hosts as usize, args.grid, piece_bytes)?,
            modes: args.mode.clone(),
            dtype: args.dtype,
            sizes_elems,
            largest_bytes,
            plain: args.plain,
            graph: args.graph,
            against: args.against,
            group: args.group,
            tuning: args.tuning.as_ref().map(Tuning::load).transpose()?,
            iterations: args.iterations,
            warmup: args.warmup,
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
        };
        if let (Some(peer), true) = (grids.against, args.hosts > 1 || args.ranks == 1) {
            let name = peer.name();
            return Err(CommandFailure::usage(format!(
                "--against {name}: this race has one host with two ranks or more"
            )));
        }
        // Checked before the ranks start, since otherwise every rank would report the same error.
        grids.modes.iter().try_for_each(|mode| grids.steps(*mode).map(drop))?;
        Ok(grids)
    }

    /// The names of the candidates: the modes, and NCCL.
    fn side_names(&self) -> Vec<&'static str> {
        let modes = self.modes.iter().map(|mode| mode.name());
        modes.chain(self.against.map(Competitor::name)).collect()
    }

    /// The steps of the operation in a mode.
    fn steps(&self, mode: MixedMode) -> Result<Vec<String>, CommandFailure> {
        let GridWorld { hosts, .. } = self.world;
        // Auto chooses by the size of a message, not of a piece.
        let config = self.world.config().most_bytes(self.largest_bytes);
        let steps = config.explain(self.world.local(), hosts, self.operation, mode);
        steps.map_err(|error| CommandFailure::usage(error.to_string()))
    }
}

/// The requested bytes of one piece.
fn piece_bytes(args: &Args) -> Result<Option<usize>, CommandFailure> {
    let Some(asked) = args.piece_bytes else { return Ok(None) };
    let element = args.dtype.bytes();
    match asked as usize {
        piece if piece >= element => Ok(Some(piece)),
        piece => {
            Err(CommandFailure::usage(format!("--piece-bytes is {piece}, but one {} has {element} bytes", args.dtype)))
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let grids = GridSettings::new(args)?;
    if args.explain {
        return explain(&grids, args.json);
    }
    if grids.against.is_some() {
        nccl::keep_multicast_off();
    }
    let against = grids.against;
    let mut run = Run::new(&args.run.devices(grids.world.ranks)?, grids);
    run.group = args.group;
    let about_peer = match against {
        Some(peer) => {
            competitor::check_on_our_buffers(peer, run.device_kind())?;
            Some(nccl::describe()?.0)
        }
        None => None,
    };
    let GridSettings { world: GridWorld { ranks, hosts, .. }, seed, .. } = run.task;
    let pieces = args.piece_bytes.map_or_else(String::new, |piece| format!(", pieces of {}", bytes::format(piece)));
    output::note(format_args!(
        "{ranks} {} as {} on {}, {hosts} {}, {}{pieces}{}, seed {seed}",
        if ranks == 1 { "rank" } else { "ranks" },
        args.run.ranks_as.name(),
        run.device_kind(),
        if hosts == 1 { "host" } else { "hosts" },
        if args.plain { "plain memory" } else { "symmetric memory" },
        if args.graph { ", in graphs" } else { "" },
    ))?;
    if let Some(line) = about_peer {
        output::note(line)?;
    }
    report::measure(&run, args.run.ranks_as, args.json)
}

/// The steps of one mode, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Steps {
    operation: &'static str,
    mode: &'static str,
    steps: Vec<String>,
}

fn explain(grids: &GridSettings, json: bool) -> Result<(), CommandFailure> {
    let mut table = Table::new(["mode", "step", ""], [1]);
    for mode in &grids.modes {
        let steps = grids.steps(*mode)?;
        if json {
            output::json(&Steps { operation: grids.operation.name(), mode: mode.name(), steps })?;
            continue;
        }
        for (number, step) in steps.into_iter().enumerate() {
            let mode = if number == 0 { mode.name() } else { "" };
            table.add_row([mode.to_owned(), (number + 1).to_string(), step]);
        }
    }
    if json { Ok(()) } else { output::line(table) }
}
