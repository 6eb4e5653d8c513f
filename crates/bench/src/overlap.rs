//! `symmetra-bench overlap`: a collective concurrent with a matmul, by kernels and by copy engines.

mod rank;

use clap::builder::PossibleValuesParser;
use serde::{Deserialize, Serialize};
use symmetra::Communicator;

use super::flags::{BenchRanks, LaunchArgs, OutputArgs};
use super::report::{RaceReport, RunSite, verdict};
use super::squares::usual_size;
use harness::bytes;
use harness::collective::CollectiveCommand;
use harness::columns::Column;
use harness::comparison::repeats::Repeats;
use harness::failure::CommandFailure;
use harness::names::Mover;
use harness::ranks::{Say, Task};
use harness::statistics::{median, slowest};

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
    #[arg(long, default_value = "all-gather", value_parser = PossibleValuesParser::new(COLLECTIVES.map(CollectiveCommand::name)))]
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

    #[command(flatten)]
    launches: LaunchArgs<11>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Collectives with a low-contention form.
const COLLECTIVES: [CollectiveCommand; 2] = [CollectiveCommand::AllGather, CollectiveCommand::ReduceScatter];

/// The task: a collective concurrent with matmuls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlap {
    collective: CollectiveCommand,
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
pub(crate) struct OverlapTimes {
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
    overlapped_us: Vec<f64>,
    wrong: u64,
}

/// The kinds, by name.
const MOVERS: [&str; 2] = ["kernels", Mover::CopyEngine.name()];

impl Task for Overlap {
    const NAME: &'static str = "overlap";
    type Found = OverlapTimes;

    /// Both operands of the collective, its workspace, and the buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        let larger = if self.collective == CollectiveCommand::AllGather { self.elems * self.ranks } else { self.elems };
        4 * (64 << 10) + 3 * (2 * larger) as u64
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, OverlapTimes>) -> Result<(), CommandFailure> {
        say(rank::times(self, communicator)?)
    }
}

/// One kind of collective.
#[derive(Debug, Serialize)]
struct KindRow {
    kind: &'static str,
    matmul_us: f64,
    collective_us: f64,
    together_us: f64,
    matmul_overlapped_us: f64,
    /// The hidden share of the shorter of the two.
    hidden: f64,
    wrong: u64,
}

impl KindRow {
    fn new(kind: usize, ranks: &[OverlapTimes]) -> Self {
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
            matmul_overlapped_us: of(|times| &times.overlapped_us),
            hidden: if shorter_us > 0.0 { (of_matmul + collective_us - together_us) / shorter_us } else { 0.0 },
            wrong: ranks.iter().filter_map(|rank| rank.kinds.get(kind)).map(|times| times.wrong).sum(),
        }
    }
}

/// The collective, and the matrices.
#[derive(Serialize)]
struct OverlapSettings {
    collective: &'static str,
    bytes: u64,
    size: u32,
    matmuls: u32,
}

fn columns() -> Vec<Column<KindRow>> {
    vec![
        Column::text("kind", |row: &KindRow| row.kind.to_owned()),
        Column::number("matmul us", 1, |row: &KindRow| Some(row.matmul_us)),
        Column::number("collective us", 1, |row: &KindRow| Some(row.collective_us)),
        Column::number("together us", 1, |row: &KindRow| Some(row.together_us)),
        Column::number("matmul overlapped us", 1, |row: &KindRow| Some(row.matmul_overlapped_us)),
        Column::number("hidden %", 1, |row: &KindRow| Some(100.0 * row.hidden)),
        Column::count("wrong", |row: &KindRow| row.wrong),
    ]
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    args.output.check()?;
    let place = RunSite::new(&args.ranks)?;
    let [gather, scatter] = COLLECTIVES;
    let collective = if args.collective == gather.name() { gather } else { scatter };
    let (ranks, size) = (args.ranks.count(), args.size.unwrap_or_else(|| usual_size(place.kind)));
    let task = Overlap {
        collective,
        ranks,
        elems: (args.bytes as usize / 2 / ranks).max(1) * ranks,
        size: size as usize,
        matmuls: args.matmuls,
        launches: args.launches.repeats(),
        seed: args.launches.seed(),
    };
    let (bytes, seed, launches) = (2 * task.elems as u64, task.seed, task.launches.timed);
    let title = format!("{} of {bytes} bytes of bf16", collective.name());
    place.note(&title, seed)?;
    let times = place.collect(task)?;
    let report = RaceReport {
        ran: place.ran(),
        settings: OverlapSettings { collective: collective.name(), bytes, size, matmuls: args.matmuls },
        seed,
        launches,
        sides: Vec::new(),
        about_peers: None,
        floor: Vec::new(),
        rows: (0..MOVERS.len()).map(|kind| KindRow::new(kind, &times)).collect(),
    };
    place.write(&args.output, &title, &columns(), &report.rows, ("", &report))?;
    verdict(&report.rows, seed, |row| (row.kind.to_owned(), row.wrong))
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/overlap.rs"]
mod tests;
