//! `symmetra-bench overlap`: a collective concurrent with a matmul, by kernels and by copy engines.

mod rank;

use clap::builder::PossibleValuesParser;
use serde::{Deserialize, Serialize};
use symmetra::{Communicator, DeviceKind};

use super::flags::{BenchRanks, OutputArgs};
use super::squares::usual_size;
use harness::bytes;
use harness::collective::Collective;
use harness::contest::repeats::Repeats;
use harness::failure::Failure;
use harness::names::Mover;
use harness::output;
use harness::ranks::{Run, Say, Task};
use harness::statistics::{median, slowest};
use harness::table::Table;

/// A collective concurrent with a matmul on another stream: each alone, and both together, by kernels and by
/// copy engines.
///
/// The matmul multiplies two square matrices of bf16 on every rank; the collective's result is
/// verified to the bit. All ranks meet on their devices before each launch; a time is the
/// median over the launches of the slowest rank. `matmul overlapped` is how long the matmul takes while
/// the collective runs, `hidden` what share of the shorter of the two is saved by running both at once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench overlap --ranks 8
  symmetra-bench overlap --collective reduce-scatter --ranks 4 --bytes 256MiB --size 4096 --matmuls 8 --json")]
pub(super) struct Args {
    #[command(flatten)]
    ranks: BenchRanks,

    /// The collective that runs concurrently with the matmul
    #[arg(long, default_value = "all-gather", value_parser = PossibleValuesParser::new(COLLECTIVES.map(Collective::name)))]
    collective: String,

    /// Size of a rank's input: bytes, or with a unit. K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB,
    /// TB are powers of 1000
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes::parse)]
    bytes: u64,

    /// Rows and columns of the matrices [default: 8192 on GPUs, 256 on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=65_536))]
    size: Option<u32>,

    /// Matmuls, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    matmuls: u32,

    /// Timed launches of each
    #[arg(long, alias = "launches", value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up launches of each before the timed launches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Collectives with a low-contention form.
const COLLECTIVES: [Collective; 2] = [Collective::AllGather, Collective::ReduceScatter];

/// The task: a collective concurrent with matmuls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlap {
    collective: Collective,
    ranks: usize,
    /// Elements of the input.
    elems: usize,
    /// Rows and columns of the matrices.
    size: usize,
    matmuls: u32,
    launches: Repeats,
    seed: u64,
}

/// One rank's times, for every launch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    matmul_us: Vec<f64>,
    /// Times of each kind, in the order of [`MOVERS`].
    kinds: Vec<KindTimes>,
}

/// The times of one kind of collective.
#[derive(Debug, Serialize, Deserialize)]
struct KindTimes {
    alone_us: Vec<f64>,
    together_us: Vec<f64>,
    /// The time of the matmul while both run.
    beside_us: Vec<f64>,
    wrong: u64,
}

/// The kinds, by name.
const MOVERS: [&str; 2] = ["kernels", Mover::CopyEngine.name()];

impl Task for Overlap {
    const NAME: &'static str = "overlap";
    type Found = Times;

    /// Both operands of the collective, its workspace, and the buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        let larger = if self.collective == Collective::AllGather { self.elems * self.ranks } else { self.elems };
        4 * (64 << 10) + 3 * (2 * larger) as u64
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Times>) -> Result<(), Failure> {
        say(rank::times(self, communicator)?)
    }
}

/// One kind of collective.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    matmul_us: f64,
    collective_us: f64,
    together_us: f64,
    matmul_beside_us: f64,
    /// The hidden share of the shorter of the two.
    hidden: f64,
    wrong: u64,
}

impl Row {
    fn new(kind: usize, ranks: &[Times]) -> Self {
        let of_matmul = median(slowest(ranks.iter().map(|rank| rank.matmul_us.as_slice())));
        let of = |times: fn(&KindTimes) -> &[f64]| {
            median(slowest(ranks.iter().filter_map(|rank| rank.kinds.get(kind)).map(times)))
        };
        let (collective_us, together_us) = (of(|times| &times.alone_us), of(|times| &times.together_us));
        let shorter_us = of_matmul.min(collective_us);
        Self {
            kind: MOVERS[kind],
            matmul_us: of_matmul,
            collective_us,
            together_us,
            matmul_beside_us: of(|times| &times.beside_us),
            hidden: if shorter_us > 0.0 { (of_matmul + collective_us - together_us) / shorter_us } else { 0.0 },
            wrong: ranks.iter().filter_map(|rank| rank.kinds.get(kind)).map(|times| times.wrong).sum(),
        }
    }
}

/// The object that `--json` writes.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    ranks_as: &'static str,
    collective: &'static str,
    bytes: u64,
    size: u32,
    matmuls: u32,
    launches: u32,
    seed: u64,
    rows: Vec<Row>,
}

impl Report {
    fn table(&self) -> Table {
        let headings =
            ["kind", "matmul us", "collective us", "together us", "matmul overlapped us", "hidden %", "wrong"];
        let mut table = Table::new(headings, 1..headings.len());
        for row in &self.rows {
            let times = [row.matmul_us, row.collective_us, row.together_us, row.matmul_beside_us, 100.0 * row.hidden];
            let times = times.map(|number| format!("{number:.1}"));
            table.add_row([row.kind.to_owned()].into_iter().chain(times).chain([row.wrong.to_string()]));
        }
        table
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.output.check()?;
    let devices = args.ranks.devices()?;
    let [gather, scatter] = COLLECTIVES;
    let collective = if args.collective == gather.name() { gather } else { scatter };
    let ranks = devices.len();
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let size = args.size.unwrap_or_else(|| usual_size(kind));
    let task = Overlap {
        collective,
        ranks,
        elems: (args.bytes as usize / 2 / ranks).max(1) * ranks,
        size: size as usize,
        matmuls: args.matmuls,
        launches: Repeats { timed: args.iterations, warmup: args.warmup },
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    output::note(format_args!(
        "{ranks} ranks, {} of {} bytes of bf16, seed {}",
        collective.name(),
        2 * task.elems,
        task.seed
    ))?;
    let times = Run::new(&devices, task.clone()).collect(args.ranks.run.ranks_as)?;
    let report = Report {
        ranks,
        ranks_as: args.ranks.run.ranks_as.name(),
        collective: collective.name(),
        bytes: 2 * task.elems as u64,
        size,
        matmuls: args.matmuls,
        launches: args.iterations,
        seed: task.seed,
        rows: (0..MOVERS.len()).map(|kind| Row::new(kind, &times)).collect(),
    };
    args.output.write(report.table(), &report)?;
    match report.rows.iter().find(|row| row.wrong > 0) {
        None => Ok(()),
        Some(row) => {
            Err(Failure::failed(format!("{}: {} elements are wrong (seed {})", row.kind, row.wrong, report.seed)))
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/overlap.rs"]
mod tests;
