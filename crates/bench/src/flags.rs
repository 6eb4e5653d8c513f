//! Flags that several commands have.

use std::path::PathBuf;

use symmetra::{DeviceKind, MAX_WORLD_SIZE};

use super::pace::Pace;
use harness::comparison::competitor::{self, Competitor};
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;
use harness::devices::RankDevice;
use harness::failure::CommandFailure;
use harness::names::distinct;
use harness::ranks::RankArgs;
use harness::target;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Which ranks measure: at least `LEAST`.
#[derive(clap::Args)]
pub(super) struct BenchRanks<const LEAST: u64 = 2> {
    /// How many ranks
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(LEAST..=MAX))]
    ranks: u64,

    #[command(flatten)]
    pub(super) run: RankArgs,
}

impl<const LEAST: u64> BenchRanks<LEAST> {
    pub(super) fn count(&self) -> usize {
        self.ranks as usize
    }

    pub(super) fn devices(&self) -> Result<Vec<RankDevice>, CommandFailure> {
        self.run.devices(self.count())
    }
}

/// Flags of every race.
#[derive(clap::Args)]
pub(super) struct RaceArgs<const LEAST: u64 = 2> {
    #[command(flatten)]
    pub(super) ranks: BenchRanks<LEAST>,

    /// Peers, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    pub(super) against: Vec<Competitor>,

    /// Time operations of a captured graph (so it is without --eager)
    #[arg(long)]
    graph: bool,

    /// Time operations that are called one by one, and how long the host takes to call one
    #[arg(long)]
    eager: bool,

    #[command(flatten)]
    launches: LaunchArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl<const LEAST: u64> RaceArgs<LEAST> {
    /// The pace, without the number of operations. Refuses peers that the devices cannot have.
    pub(super) fn pace(&self, kind: DeviceKind, on_our_buffers: bool) -> Result<Pace, CommandFailure> {
        let check = if on_our_buffers { competitor::check_on_our_buffers } else { competitor::check };
        let graph = (self.graph || !self.eager).then_some(Mode::Graph);
        Ok(Pace {
            ranks: self.ranks.count(),
            competitors: distinct("--against", &self.against, Competitor::name, |other| check(other, kind))?,
            modes: graph.into_iter().chain(self.eager.then_some(Mode::Eager)).collect(),
            operations: None,
            launches: self.launches.repeats(),
            seed: self.launches.seed(),
        })
    }
}

/// How many operations a launch has.
#[derive(clap::Args)]
pub(super) struct OperationsArgs {
    /// Operations of a launch [default: 40; fewer of large messages on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) operations: Option<u32>,
}

/// How many launches are timed, and on which data.
#[derive(clap::Args)]
pub(super) struct LaunchArgs<const TIMED: u32 = 7> {
    /// Timed launches of each candidate or operation
    #[arg(long, alias = "launches", value_name = "N", default_value_t = TIMED, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up launches of each before the timed launches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,
}

impl<const TIMED: u32> LaunchArgs<TIMED> {
    pub(super) fn repeats(&self) -> Repeats {
        Repeats { timed: self.iterations, warmup: self.warmup }
    }

    /// The seed that was given, or a new one for every run.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..))
    }
}

/// The output in addition to the table.
#[derive(clap::Args)]
pub(super) struct OutputArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(super) json: bool,

    /// Write the table into this file, as JSON with device, driver, commit and date: a file for bench/results
    #[arg(long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
}

impl OutputArgs {
    /// Checks the output file. Called before the work.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        self.output.as_deref().map_or(Ok(()), |path| target::check_written("--output", path))
    }
}
