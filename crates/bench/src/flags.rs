//! Flags that several benches have.

use std::path::PathBuf;

use serde::Serialize;
use symmetra::MAX_WORLD_SIZE;

use harness::contest::repeats::Repeats;
use harness::contest::turns::Mode;
use harness::devices::RankDevice;
use harness::failure::Failure;
use harness::live::Live;
use harness::ranks::RankArgs;
use harness::table::Table;
use harness::{output, target};

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Which ranks measure.
#[derive(clap::Args)]
pub(super) struct BenchRanks {
    /// How many ranks
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=MAX))]
    ranks: u64,

    #[command(flatten)]
    pub(super) run: RankArgs,
}

impl BenchRanks {
    pub(super) fn count(&self) -> usize {
        self.ranks as usize
    }

    pub(super) fn devices(&self) -> Result<Vec<RankDevice>, Failure> {
        self.run.devices(self.count())
    }
}

/// How often operations run, and how they are called.
#[derive(clap::Args)]
pub(super) struct PaceArgs {
    /// Operations of a launch [default: 40; fewer of large messages on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) operations: Option<u32>,

    #[command(flatten)]
    pub(super) launch: LaunchArgs,
}

/// How launches are called, how many are timed, and on which data.
#[derive(clap::Args)]
pub(super) struct LaunchArgs {
    /// Time operations of a captured graph (so it is without --eager)
    #[arg(long)]
    graph: bool,

    /// Time operations that are called one by one, and how long the host takes to call one
    #[arg(long)]
    eager: bool,

    /// Timed launches of each candidate
    #[arg(long, alias = "launches", value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up launches of each candidate before the timed launches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,
}

impl LaunchArgs {
    pub(super) fn modes(&self) -> Vec<Mode> {
        let graph = (self.graph || !self.eager).then_some(Mode::Graph);
        graph.into_iter().chain(self.eager.then_some(Mode::Eager)).collect()
    }

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
    json: bool,

    /// Write that object into this file too
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
}

impl OutputArgs {
    /// Checks the output file. Called before the work.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.output.as_deref().map_or(Ok(()), |path| target::check_written("--output", path))
    }

    /// Prints the new rows. The object is printed at the end, or when a signal ends the command.
    pub(super) fn show(&self, live: &mut Live, table: &Table, object: &impl Serialize) -> Result<(), Failure> {
        if self.json { live.keep_object(object) } else { live.show(table) }
    }

    /// Prints the rest of the table, and lines below it, or the object, and writes the object to the requested file.
    pub(super) fn end(&self, live: Live, below: &str, object: &impl Serialize) -> Result<(), Failure> {
        match (self.json, below) {
            (true, _) => live.forget(),
            (false, "") => live.finish()?,
            (false, below) => {
                live.finish()?;
                output::line(below)?;
            }
        }
        if self.json {
            output::json(object)?;
        }
        self.save(object)
    }

    /// Prints the table, and writes the object to the requested file.
    pub(super) fn write(&self, table: impl std::fmt::Display, object: &impl Serialize) -> Result<(), Failure> {
        if self.json {
            output::json(object)?
        } else {
            output::line(table)?
        }
        self.save(object)
    }

    fn save(&self, object: &impl Serialize) -> Result<(), Failure> {
        let Some(path) = &self.output else { return Ok(()) };
        let text = serde_json::to_string_pretty(object).map_err(Failure::doing("write JSON"))?;
        std::fs::write(path, text + "\n").map_err(Failure::doing(format!("write {}", path.display())))
    }
}
