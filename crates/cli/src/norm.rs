//! `symmetra all-reduce-norm`: rows summed over ranks, with a residual, and normed, in all ranks or scattered; measured and
//! verified.

mod rank;

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Dtype, MAX_WORLD_SIZE, Norm};

use harness::columns::Column;
use harness::failure::CommandFailure;
use harness::form::{self, Form, MOST_HIDDEN};
use harness::gathering::Gathering;
use harness::names::{self, by_name, by_name_if_any};
use harness::norms::NormKind;
use harness::output;
use harness::ranks::{GroupArgs, RankArgs, RanksAs, Run};
use harness::statistics::{median, slowest};
use rank::NormSample;
use reference::quantised::Format;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Sum rows over ranks, add a residual, and norm each row.
///
/// Starts the ranks itself. For every number of tokens, fresh random rows are summed and normed, and every
/// bit of every output of every rank is compared with an independent reference; then batches of operations are timed.
///
/// A row's time is the median over the batches of the slowest rank's time for one operation.
///
/// Known bytes surround every operand that is written. They are compared before and after operations are timed.
///
/// Exit status: 0, or 1 when an element is wrong, a byte next to an operand was overwritten or a rank fails, or 2 for
/// wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra all-reduce-norm --ranks 4 --hidden 8192 --tokens 1,4,16
  symmetra all-reduce-norm --ranks 2 --hidden 2880 --tokens 1,64 --gemma --graph --in-place
  symmetra all-reduce-norm --ranks 4 --tokens 64,1024 --op reduce-scatter-all-gather
  symmetra all-reduce-norm --ranks 4 --hidden 4096 --norm layer
  symmetra all-reduce-norm --ranks 3 --no-residual --plain --dtype f32 --json
  symmetra all-reduce-norm --ranks 4 --hidden 2880 --quantise mxfp8-swizzled")]
pub(crate) struct Args {
    /// How many ranks, 1 to 16
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    ranks: u64,

    #[command(flatten)]
    run: RankArgs,

    /// Elements of a row
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=MOST_HIDDEN))]
    hidden: u64,

    /// Numbers of rows [default: 1,4,16, rounded up to equal shares where ranks keep shares]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    tokens: Vec<u64>,

    /// Which rows a rank norms and keeps: all rows; its share; or its share, gathering all normed rows
    #[arg(long, value_enum, default_value_t = Form::AllReduce)]
    op: Form,

    /// Type of the rows: f32, f16 or bf16
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    /// The algorithm of the sum; `auto` is the library's choice for each size
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,

    /// Norm the sum without a residual
    #[arg(long)]
    no_residual: bool,

    /// The norm: RMSNorm, or LayerNorm with a bias
    #[arg(long, value_enum, default_value_t = NormKind::Rms)]
    norm: NormKind,

    /// Add 1 to every weight, as in Gemma models
    #[arg(long)]
    gemma: bool,

    /// Also write the normed rows in a narrow format: static-e4m3, per-token-e4m3, group-128-e4m3,
    /// group-128-int8-columns, mxfp8, mxfp4, mx-128-e4m3-packed, mxfp8-swizzled, nvfp4,
    /// nvfp4-swizzled and their like. Rows are padded to whole groups where the format asks for that
    #[arg(long, value_name = "FORMAT", value_parser = |name: &str| name.parse::<Format>())]
    quantise: Option<Format>,

    /// Norm the rows where they are, and write the sum over the residual
    #[arg(long)]
    in_place: bool,

    /// Use plain device memory instead of symmetric memory
    #[arg(long)]
    plain: bool,

    /// Run the operations from a captured graph
    #[arg(long)]
    graph: bool,

    #[command(flatten)]
    group: GroupArgs,

    /// Operations timed for each number of tokens, in 10 batches at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,

    /// Warm-up batches before the timed batches
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
pub(crate) struct NormMeasurement {
    hidden: usize,
    tokens: Vec<usize>,
    op: Form,
    #[serde(with = "by_name")]
    dtype: Dtype,
    #[serde(with = "by_name")]
    algorithm: Algorithm,
    residual: bool,
    norm: NormKind,
    gemma: bool,
    #[serde(with = "by_name_if_any")]
    quantise: Option<Format>,
    in_place: bool,
    plain: bool,
    graph: bool,
    /// Whether the ranks are threads of one process.
    one_process: bool,
    iterations: u32,
    /// Batches that are not timed.
    warmup: u32,
    seed: u64,
}

impl NormMeasurement {
    fn new(args: &Args) -> Result<Self, CommandFailure> {
        let tokens = args.op.tokens(args.dtype, &args.tokens, &[1, 4, 16], args.ranks)?;
        args.op.check_algorithm(args.algorithm)?;
        args.group.check_algorithm(args.algorithm, args.dtype, args.ranks as usize)?;
        if args.plain && !args.graph && args.algorithm.needs_reach() {
            let algorithm = args.algorithm;
            return Err(CommandFailure::usage(format!("--plain: {algorithm} needs memory that peers can address")));
        }
        let norms = Self {
            op: args.op,
            hidden: args.hidden as usize,
            tokens,
            dtype: args.dtype,
            algorithm: args.algorithm,
            residual: !args.no_residual,
            norm: args.norm,
            gemma: args.gemma,
            quantise: args.quantise,
            in_place: args.in_place,
            plain: args.plain,
            graph: args.graph,
            one_process: args.run.ranks_as == RanksAs::Threads,
            iterations: args.iterations,
            warmup: args.warmup,
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
        };
        let (hidden, width) = (norms.hidden, norms.width());
        match args.in_place && width != hidden {
            true => Err(CommandFailure::usage(format!("--in-place: rows of {hidden} elements are padded to {width}"))),
            false => Ok(norms),
        }
    }

    /// Elements of an output row: whole groups, unless the format allows short groups.
    fn width(&self) -> usize {
        form::width(self.hidden, self.quantise)
    }

    fn norm(&self) -> Norm {
        self.norm.norm(if self.gemma { 1.0 } else { 0.0 })
    }
}

/// One number of tokens, as `--json` prints it.
#[derive(Debug, Serialize)]
struct NormRow {
    ranks: usize,
    device: &'static str,
    hidden: usize,
    tokens: usize,
    op: Form,
    dtype: &'static str,
    bytes: u64,
    algorithm: String,
    quantise: Option<String>,
    residual: bool,
    norm: NormKind,
    gemma: bool,
    memory: &'static str,
    in_place: bool,
    graph: bool,
    seed: u64,
    time_us: f64,
    wrong: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let (ranks, norms) = (args.ranks as usize, NormMeasurement::new(args)?);
    let mut run = Run::new(&args.run.devices(ranks)?, norms);
    run.group = args.group;
    output::note(format_args!(
        "{ranks} {} as {} on {}, {}, {}{}{}{}, seed {}",
        if ranks == 1 { "rank" } else { "ranks" },
        args.run.ranks_as.name(),
        run.device_kind(),
        if args.in_place { "in place" } else { "out of place" },
        if args.plain { "plain memory" } else { "symmetric memory" },
        if args.no_residual { ", no residual" } else { "" },
        args.quantise.map_or_else(String::new, |form| format!(", quantised as {form}")),
        if args.graph { ", in graphs" } else { "" },
        run.task.seed,
    ))?;
    let mut gathering = Gathering::new(ranks, run.task.tokens.len(), columns(&run.task), args.json)?;
    run.attend(args.run.ranks_as, |rank, sample: NormSample| {
        let size = sample.size;
        gathering.add(rank, size, sample, |samples| vec![row(&run, size, samples)])
    })?;
    match gathering.finish(|_| None)?.iter().map(|row| row.wrong).sum::<u64>() {
        0 => Ok(()),
        wrong => Err(CommandFailure::failed(format!("{wrong} elements are wrong (seed {})", run.task.seed))),
    }
}

fn row(run: &Run<NormMeasurement>, size: usize, samples: &[NormSample]) -> NormRow {
    let NormMeasurement { hidden, op, dtype, graph, quantise, residual, norm, gemma, in_place, plain, seed, .. } =
        run.task;
    let tokens = run.task.tokens[size];
    NormRow {
        ranks: run.ranks(),
        device: run.device_kind().name(),
        hidden,
        tokens,
        op,
        dtype: dtype.name(),
        bytes: (tokens * hidden * dtype.bytes()) as u64,
        algorithm: samples.first().map_or_else(String::new, |sample| sample.algorithm.clone()),
        quantise: quantise.map(|form| form.to_string()),
        residual,
        norm,
        gemma,
        memory: if plain { "plain" } else { "symmetric" },
        in_place,
        graph,
        seed,
        time_us: median(slowest(samples.iter().map(|sample| sample.batches_us.as_slice()))),
        wrong: samples.iter().map(|sample| sample.wrong).sum(),
    }
}

fn columns(norms: &NormMeasurement) -> Vec<Column<NormRow>> {
    let tokens = norms.tokens.iter().max().copied().unwrap_or(0);
    let bytes = tokens * norms.hidden * norms.dtype.bytes();
    vec![
        Column::count("tokens", |row: &NormRow| row.tokens as u64).expecting(tokens.to_string()),
        Column::count("hidden", |row: &NormRow| row.hidden as u64),
        Column::count("bytes", |row: &NormRow| row.bytes).expecting(bytes.to_string()),
        Column::text("dtype", |row: &NormRow| row.dtype.to_owned()),
        Column::text("algorithm", |row: &NormRow| row.algorithm.clone()).expecting(Algorithm::TwoShotZeroCopy.name()),
        Column::number("time us", 2, |row: &NormRow| Some(row.time_us)).expecting("99999.99"),
        Column::count("wrong", |row: &NormRow| row.wrong).expecting("0"),
    ]
}
