//! `symmetra bench all-reduce`: this library and others on the same data, in turn.

use std::path::PathBuf;

use symmetra::{Algorithm, DeviceKind, Dtype};

use super::floor::Floor;
use super::peer::{self, Peer};
use super::race::{self, Mode, Race};
use super::report::Hearing;
use super::{Found, OutputArgs, RankArgs, Task, plot};
use crate::failure::Failure;
use crate::{all_reduce, bytes, names};

/// All-reduce (sum) beside other libraries: time, ratio to the best of them, bus bandwidth.
///
/// All sides run in the same processes. Every size is run on fresh random data and every element
/// is compared with an independent sum: ours to the bit, the others', which may round after each
/// addition, within that. Then the sides take turns: the ranks meet on their devices, launch the
/// operations and are timed to the end of the last. A time is the median over the launches of the
/// slowest rank's time for one operation. NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless
/// it is set). Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra bench all-reduce --ranks 2 --max-bytes 1MiB
  symmetra bench all-reduce --against nccl,nccl-symmetric --ranks 8 --dtype bf16 --max-bytes 1GiB --plot out.svg --json out.json
  symmetra bench all-reduce --ranks 4 --eager --json -")]
pub(super) struct Args {
    #[command(flatten)]
    ranks: RankArgs,

    /// The others, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    against: Vec<Peer>,

    /// How we sum; `auto` is the library's choice for each size
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,

    /// Element type
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    /// Smallest message of a rank: bytes, or with the unit KiB, MiB or GiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = bytes::parse)]
    min_bytes: u64,

    /// Largest message of a rank: sizes double from the smallest up to this
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes::parse)]
    max_bytes: u64,

    /// Time operations of a captured graph (so it is without --eager)
    #[arg(long)]
    graph: bool,

    /// Time operations that are called one by one, and how long the host takes to call one
    #[arg(long)]
    eager: bool,

    /// Operations of a launch [default: 40; fewer of large messages on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    operations: Option<u32>,

    /// Launches that are timed, of each side
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    launches: u32,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Draw time and bandwidth over size, with the floor of the hardware, into this SVG file
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    fn race(&self, kind: DeviceKind) -> Result<Race, Failure> {
        race::check(self.algorithm, self.dtype)?;
        let mut modes = Vec::new();
        if self.graph || !self.eager {
            modes.push(Mode::Graph);
        }
        if self.eager {
            modes.push(Mode::Eager);
        }
        Ok(Race {
            dtype: self.dtype,
            algorithm: self.algorithm,
            sizes_elems: all_reduce::sizes_elems(self.min_bytes, self.max_bytes, self.dtype)?,
            peers: peer::distinct(&self.against, kind)?,
            modes,
            operations: self.operations,
            launches: self.launches,
            floor_bytes: Floor::bytes(kind),
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
        })
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    peer::keep_multicast_off(&args.against);
    let devices = args.ranks.devices()?;
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let race = args.race(kind)?;
    let about_peers = peer::describe(&race.peers)?;
    eprintln!(
        "{} ranks as {} on {kind}, {}, seed {}",
        devices.len(),
        args.ranks.ranks_as.name(),
        race.dtype,
        race.seed
    );
    if let Some(line) = &about_peers {
        eprintln!("{line}");
    }
    let mut hearing = Hearing::new(&devices, args.ranks.ranks_as, &race, about_peers);
    all_reduce::bench(&devices, args.ranks.ranks_as, Task::Race(race.clone()), |rank, found| match found {
        Found::Lap(lap) => hearing.hear(rank, lap),
        Found::Floor(floor) => {
            hearing.hear_floor(floor);
            Ok(())
        }
        other => Err(Failure::failed(format!("rank {rank} found what has no place in a race: {other:?}"))),
    })?;
    let report = hearing.finish();
    args.output.write(report.table(), &report)?;
    if let Some(path) = &args.plot {
        plot::draw(&report, path)?;
    }
    report.verdict()
}
