//! `symmetra all-reduce`: reductions over ranks, measured and verified, or sums of the user's own tensors.

mod collective;
mod crew;
mod job;
mod processes;
mod reference;
mod report;
mod shards;
mod sweep;
mod threads;

use std::path::PathBuf;

use clap::ValueEnum;
use symmetra::{Algorithm, Dtype, MAX_WORLD_SIZE, Reduction};

use crate::bench;
use crate::bytes;
use crate::devices::{self, Choice, RankDevice};
use crate::exchange;
use crate::failure::Failure;
use crate::names;

pub(crate) use collective::Collective;
use crew::Crew;
use job::{Job, Said, Work};
pub(crate) use processes::rank_process;
pub(crate) use reference::checksum;
pub(crate) use sweep::{Buffer, sizes_elems};

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Reduce over ranks: measure and verify a sweep of sizes, or sum tensors in files.
///
/// Starts the ranks itself. Without --input every size is run on fresh random data and every
/// element of every rank's result is compared, bit for bit, with an independent reference; then
/// batches of operations are timed. A row's time is the median over the batches of the slowest
/// rank's time for one operation. Bus bandwidth is algorithm bandwidth x 2 (ranks - 1) / ranks.
/// Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra all-reduce
  symmetra all-reduce --ranks 8 --dtype bf16 --graph --max-bytes 64MiB
  symmetra all-reduce --ranks 3 --dtype i8 --op max
  symmetra all-reduce --ranks 2 --ranks-as threads --algorithm two-shot-zero-copy --json
  symmetra all-reduce --input 'shard-{rank}.npy' --output sum.npy
  symmetra all-reduce --input 'model-{rank}.safetensors' --tensor lm_head.weight --output sum.safetensors")]
pub(crate) struct Args {
    /// How many ranks, 1 to 16 [default: 4, or as many as there are --input files]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    ranks: Option<u64>,

    /// What the ranks work on
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    device: Choice,

    /// Put several ranks on one GPU when there are too few; `--device auto` then takes GPUs where there is one
    #[arg(long)]
    share_devices: bool,

    /// What the ranks are
    #[arg(long, value_enum, default_value_t = RanksAs::Processes)]
    ranks_as: RanksAs,

    /// Which way to reduce; `auto` is the library's choice for each size (`symmetra info` prints it)
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,

    /// Compare every call across ranks before it runs
    #[arg(long)]
    check_calls: bool,

    #[command(flatten)]
    sweep: SweepArgs,

    #[command(flatten)]
    files: FileArgs,
}

/// What the ranks of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RanksAs {
    /// A process each.
    Processes,
    /// Threads of this process.
    Threads,
}

#[derive(clap::Args)]
#[group(id = "sweep", multiple = true)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct SweepArgs {
    /// Element type
    #[arg(long, default_value = "f32", value_parser = names::dtype_parser())]
    dtype: Dtype,

    /// What becomes of the values of all ranks
    #[arg(long, default_value = "sum", value_parser = names::reduction_parser())]
    pub(crate) op: Reduction,

    /// Smallest message, the larger operand of a rank: bytes, or with the unit KiB, MiB or GiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = bytes::parse)]
    min_bytes: u64,

    /// Largest message, the larger operand of a rank: sizes double from the smallest up to this
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes::parse)]
    max_bytes: u64,

    /// Operations timed for each size; more than 10 are timed in 10 equal batches, rounded up [default: by size, 10 to 200 on the CPU, 50 to 1000 on GPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,

    /// Run the operations from a captured graph
    #[arg(long)]
    pub(crate) graph: bool,

    /// Use one buffer for input and output
    #[arg(long)]
    pub(crate) in_place: bool,

    /// Use plain device memory instead of symmetric memory
    #[arg(long)]
    pub(crate) plain: bool,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Tensors in files")]
struct FileArgs {
    /// Each rank's tensor: a .npy or .safetensors path in which {rank} stands for 0, 1, ...
    #[arg(long, value_name = "PATH", requires = "output", conflicts_with_all = SWEEP_ONLY)]
    input: Option<String>,

    /// Where the sum goes, in the same format; replaced if it exists
    #[arg(long, value_name = "PATH", requires = "input")]
    output: Option<PathBuf>,

    /// Which tensor of the .safetensors files
    #[arg(long, value_name = "NAME", requires = "input")]
    tensor: Option<String>,
}

/// Flags that mean nothing with `--input`.
const SWEEP_ONLY: [&str; 10] =
    ["dtype", "op", "min_bytes", "max_bytes", "iterations", "graph", "in_place", "plain", "seed", "json"];

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.files.input {
        None => measure(args),
        Some(template) => shards::reduce(args, template),
    }
}

/// How many ranks a run without files has.
const DEFAULT_RANKS: usize = 4;

fn measure(args: &Args) -> Result<(), Failure> {
    let ranks = args.ranks.map_or(DEFAULT_RANKS, |ranks| ranks as usize);
    let sweep = sweep::Sweep::new(args)?;
    let job = args.job(ranks, Work::Sweep(sweep.clone()))?;
    conduct(&job, &sweep, args.ranks_as, args.sweep.json)
}

/// Measures another collective.
pub(crate) fn measure_exchange(collective: Collective, args: &exchange::Args) -> Result<(), Failure> {
    let ranks = args.ranks as usize;
    let sweep = sweep::Sweep::of(args, collective, ranks)?;
    let devices = devices::assign(args.device, ranks, args.share_devices)?;
    let work = Work::Sweep(sweep.clone());
    let job = Job { devices, check_calls: args.check_calls, deadline_s: None, work };
    conduct(&job, &sweep, args.ranks_as, args.sweep.json)
}

fn conduct(job: &Job, sweep: &sweep::Sweep, ranks_as: RanksAs, json: bool) -> Result<(), Failure> {
    let ranks = job.ranks();
    eprintln!(
        "{ranks} {} as {} on {}, {}, {}{}, seed {}",
        if ranks == 1 { "rank" } else { "ranks" },
        ranks_as.name(),
        job.device_kind(),
        if sweep.in_place { "in place" } else { "out of place" },
        if sweep.plain { "plain memory" } else { "symmetric memory" },
        if sweep.graph { ", in graphs" } else { "" },
        sweep.seed,
    );
    let mut report = report::Report::new(job, sweep, json);
    ranks_as.start(job)?.attend(|rank, said| report.hear(rank, said))?;
    report.finish()
}

impl Args {
    fn job(&self, ranks: usize, work: Work) -> Result<Job, Failure> {
        let devices = devices::assign(self.device, ranks, self.share_devices)?;
        Ok(Job { devices, check_calls: self.check_calls, deadline_s: None, work })
    }
}

/// Sums a pattern over ranks on these devices with every algorithm, within seconds: how many
/// elements are wrong in each rank.
pub(crate) fn probe(devices: &[RankDevice], ranks_as: RanksAs) -> Result<Vec<u64>, Failure> {
    let mut wrong = vec![0; devices.len()];
    for algorithm in Algorithm::ALL {
        let work = Work::Sweep(sweep::Sweep::probe(algorithm));
        let job = Job { devices: devices.to_vec(), check_calls: true, deadline_s: Some(PROBE_S), work };
        ranks_as.start(&job)?.attend(|rank, said| {
            if let Said::Sampled(sample) = said {
                wrong[rank] += sample.wrong;
            }
            Ok(())
        })?;
    }
    Ok(wrong)
}

/// Seconds that a wait of a probe may last.
const PROBE_S: u64 = 10;

/// Runs a part of `bench` or `tune` on these devices; hands on what every rank finds.
pub(crate) fn bench(
    devices: &[RankDevice],
    ranks_as: RanksAs,
    task: bench::Task,
    mut hear: impl FnMut(usize, bench::Found) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let job = Job { devices: devices.to_vec(), check_calls: false, deadline_s: None, work: Work::Bench(task) };
    ranks_as.start(&job)?.attend(|rank, said| match said {
        Said::Found(found) => hear(rank, found),
        other => Err(Failure::failed(format!("rank {rank} said what has no place in a bench: {other:?}"))),
    })
}

impl RanksAs {
    fn start(self, job: &Job) -> Result<Crew, Failure> {
        match self {
            Self::Processes => processes::start(job),
            Self::Threads => threads::start(job),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }
}
