//! `symmetra all-reduce`: reductions over ranks, measured and verified, or of the user's own tensors.

mod operations;
mod places;
mod rank;
mod report;
mod shards;
mod sweep;
mod unfinished;

use symmetra::{Algorithm, AllReduceOptions, Codec, Dtype, MAX_WORLD_SIZE, Transport};

use crate::exchange::{self, OperandMemory, SweepArgs};
use harness::collective::CollectiveCommand;
use harness::devices::RankDevice;
use harness::failure::CommandFailure;
use harness::names::{self, Mover};
use harness::output;
use harness::ranks::{GroupArgs, RankArgs, RanksAs, Run};

pub(crate) use operations::commands;
pub(crate) use shards::Shards;
pub(crate) use sweep::Sweep;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Reduce over ranks: measure and verify a sweep of sizes, or reduce tensors in files.
///
/// Starts the ranks itself. Without --input every size is run on fresh random data and every element of every rank's
/// result is compared, bit for bit, with an independent reference, or with --codec by the codec's bound; then batches
/// of operations are timed. A row's time is the median over the batches of the slowest rank's time for one operation.
///
/// Known bytes surround symmetric and plain operands. They are compared before and after each size is timed.
///
/// Bus bandwidth is algorithm bandwidth x 2 (ranks - 1) / ranks.
///
/// Exit status: 0, or 1 when an element is wrong, a byte next to an operand was overwritten or a rank fails, or 2 for
/// wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra all-reduce
  symmetra all-reduce --ranks 8 --dtype bf16 --graph --max-bytes 64MiB
  symmetra all-reduce --ranks 3 --dtype i8 --op max
  symmetra all-reduce --ranks 8 --codec int8
  symmetra all-reduce --ranks 2 --ranks-as threads --algorithm two-shot-zero-copy --json
  symmetra all-reduce --bound --graph -b 8 -e 128M -f 4
  symmetra all-reduce --input 'shard-{rank}.npy' --output sum.npy
  symmetra all-reduce --input 'model-{rank}.safetensors' --op avg --output model.safetensors
  symmetra all-reduce --input 'model-{rank}.safetensors' --tensor lm_head.weight --output sum.safetensors")]
pub(crate) struct Args {
    /// How many ranks, 1 to 16 [default: 4, or the number of --input files]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    ranks: Option<u64>,

    #[command(flatten)]
    run: RankArgs,

    /// The algorithm; `auto` is the library's choice for each size (`symmetra info` prints it)
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,

    /// How values are sent: as they are, or in fewer bits. Elements are then compared with bounds, and the ranks' bits
    /// with each other
    #[arg(long, default_value = "none", value_parser = names::codec_parser())]
    codec: Codec,

    /// Bind the call to its operands: it is checked and planned once, and enqueued as often as it is measured
    #[arg(long, conflicts_with = "input")]
    bound: bool,

    #[command(flatten)]
    group: GroupArgs,

    #[command(flatten)]
    sweep: SweepArgs,

    #[command(flatten)]
    files: shards::FileArgs,
}

/// How many ranks a run without files has.
const DEFAULT_RANKS: usize = 4;

/// Longest wait of a probe, in seconds.
const PROBE_S: u64 = 10;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let run_args = &args.run;
    if let Some(template) = &args.files.input {
        let opened = shards::open(&args.files, template, args.ranks, args.options())?;
        let mut run = Run::new(&run_args.devices(opened.shards.ranks())?, opened.shards.clone());
        run.group = args.group;
        return opened.finish(run.collect(run_args.ranks_as)?);
    }
    let ranks = args.ranks.map_or(DEFAULT_RANKS, |ranks| ranks as usize);
    let mut run = Run::new(&run_args.devices(ranks)?, args.sweep()?);
    run.group = args.group;
    measure(&run, run_args.ranks_as, args.sweep.json)
}

/// The operation with this name, if its command is one of [`commands`].
pub(crate) fn operation(name: &str) -> Option<CollectiveCommand> {
    CollectiveCommand::named(name).filter(|collective| *collective != CollectiveCommand::AllReduce)
}

/// Runs the command of another collective.
pub(crate) fn run_exchange(collective: CollectiveCommand, args: &exchange::Args) -> Result<(), CommandFailure> {
    let ranks = args.ranks as usize;
    operations::check(collective, args, ranks)?;
    args.sweep.check_memory(args.run.ranks_as)?;
    if args.transport == Mover::Kernels(Transport::Multicast) {
        args.group.check_multicast("--transport multicast")?;
    }
    let parts = if collective.divides() { ranks } else { 1 } * args.along.map_or(1, |_| places::LEADING_ELEMS);
    let sweep = Sweep {
        collective,
        root: operations::parameter(collective, args),
        transport: args.transport,
        along: args.along.map(usize::from),
        in_place: args.sweep.in_place || collective == CollectiveCommand::Broadcast,
        ..Sweep::new(&args.sweep, args.sweep.dtype.unwrap_or(Dtype::F32), parts, args.run.ranks_as)?
    };
    let mut run = Run::new(&args.run.devices(ranks)?, sweep);
    run.group = args.group;
    measure(&run, args.run.ranks_as, args.sweep.json)
}

fn measure(run: &Run<Sweep>, ranks_as: RanksAs, json: bool) -> Result<(), CommandFailure> {
    let (ranks, sweep) = (run.ranks(), &run.task);
    let along = sweep.along.map_or_else(String::new, |dim| format!(", along dimension {dim}"));
    output::note(format_args!(
        "{ranks} {} as {} on {}, {}, {}{along}{}{}, seed {}",
        if ranks == 1 { "rank" } else { "ranks" },
        ranks_as.name(),
        run.device_kind(),
        if sweep.in_place { "in place" } else { "out of place" },
        sweep.memory.words(),
        if sweep.graph { ", in graphs" } else { "" },
        if sweep.bound { ", bound" } else { "" },
        sweep.seed,
    ))?;
    report::measure(run, ranks_as, json)
}

/// Refuses an algorithm that does not support this reduction of this type.
fn check_fits(options: AllReduceOptions, dtype: Dtype) -> Result<(), CommandFailure> {
    let AllReduceOptions { algorithm, reduction, codec, .. } = options;
    if !codec.carries(dtype, reduction) {
        return Err(CommandFailure::usage(format!(
            "--codec {codec} carries sums and averages of f16 and bf16, not the {reduction} of {dtype}"
        )));
    }
    if codec != Codec::None
        && ![Algorithm::Auto, Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel].contains(&algorithm)
    {
        return Err(CommandFailure::usage(format!(
            "--codec {codec} goes by one-shot-sentinel or two-shot-sentinel, not {algorithm}"
        )));
    }
    if !algorithm.reduces(dtype, reduction) {
        return Err(CommandFailure::usage(format!("{algorithm} makes no averages of {dtype}")));
    }
    if !algorithm.carries(dtype) {
        return Err(CommandFailure::usage(format!("{algorithm} carries floating types only, not {dtype}")));
    }
    Ok(())
}

impl Args {
    fn options(&self) -> AllReduceOptions {
        AllReduceOptions::default().reduction(self.sweep.op).algorithm(self.algorithm).codec(self.codec)
    }

    fn sweep(&self) -> Result<Sweep, CommandFailure> {
        let (asked, algorithm) = (&self.sweep, self.algorithm);
        let usual = if self.codec == Codec::None { Dtype::F32 } else { Dtype::BF16 };
        let dtype = asked.dtype.unwrap_or(usual);
        check_fits(self.options(), dtype)?;
        let ranks = self.ranks.map_or(DEFAULT_RANKS, |ranks| ranks as usize);
        self.group.check_algorithm(algorithm, dtype, ranks)?;
        self.group.check_codec(self.codec)?;
        asked.check_memory(self.run.ranks_as)?;
        if asked.memory() == OperandMemory::Plain && (!asked.graph || self.bound) && algorithm.needs_reach() {
            return Err(CommandFailure::usage(format!("--plain: {algorithm} needs memory that peers can address")));
        }
        Ok(Sweep { algorithm, codec: self.codec, bound: self.bound, ..Sweep::new(asked, dtype, 1, self.run.ranks_as)? })
    }
}

/// Sums a pattern over ranks on these devices with every algorithm, within seconds: how many
/// elements are wrong in each rank.
pub(crate) fn probe(devices: &[RankDevice], ranks_as: RanksAs) -> Result<Vec<u64>, CommandFailure> {
    let mut wrong = vec![0; devices.len()];
    for algorithm in Algorithm::ALL {
        let mut run = Run::new(devices, Sweep::probe(algorithm));
        (run.group, run.deadline_s) = (GroupArgs::COMPARED, Some(PROBE_S));
        run.attend(ranks_as, |rank, sample| {
            wrong[rank] += sample.wrong;
            Ok(())
        })?;
    }
    Ok(wrong)
}
