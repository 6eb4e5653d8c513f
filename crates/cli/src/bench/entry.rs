//! What every race has in common: its flags, and how it is run.

use std::path::PathBuf;

use symmetra::{Algorithm, DeviceKind, Dtype};

use super::floor::Floor;
use super::peer::{self, Peer};
use super::race::{Mode, Race};
use super::report::Hearing;
use super::side::{self, With};
use super::{Found, OutputArgs, RankArgs, Task, plot};
use crate::all_reduce::Collective;
use crate::failure::Failure;
use crate::{all_reduce, bytes, names};

/// Flags of every race.
#[derive(clap::Args)]
pub(super) struct RaceArgs {
    #[command(flatten)]
    ranks: RankArgs,

    /// The others, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    against: Vec<Peer>,

    /// What else of ours races, separated by commas [default: nothing]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SIDES")]
    pub(super) with: Vec<With>,

    /// Element type
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    pub(super) dtype: Dtype,

    /// Smallest message, the input of a rank: bytes, or with the unit KiB, MiB or GiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = bytes::parse)]
    min_bytes: u64,

    /// Largest message, the input of a rank: sizes double from the smallest up to this
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

impl RaceArgs {
    fn modes(&self) -> Vec<Mode> {
        let graph = (self.graph || !self.eager).then_some(Mode::Graph);
        graph.into_iter().chain(self.eager.then_some(Mode::Eager)).collect()
    }

    /// Elements of the inputs; where these are cut for all, a part for every rank.
    fn sizes_elems(&self, collective: Collective) -> Result<Vec<usize>, Failure> {
        let parts = match collective {
            Collective::ReduceScatter | Collective::AllToAll => self.ranks.ranks as usize,
            _ => 1,
        };
        all_reduce::sizes_elems(self.min_bytes, self.max_bytes, self.dtype, parts)
    }
}

/// What of ours is entered.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) collective: Collective,
    /// Of an all-reduce.
    pub(super) algorithm: Algorithm,
}

impl Entry {
    fn race(self, args: &RaceArgs, kind: DeviceKind) -> Result<Race, Failure> {
        Ok(Race {
            dtype: args.dtype,
            collective: self.collective,
            algorithm: self.algorithm,
            ranks: args.ranks.ranks as usize,
            sizes_elems: args.sizes_elems(self.collective)?,
            with: side::distinct(&args.with, self.collective)?,
            peers: peer::distinct(&args.against, kind)?,
            modes: args.modes(),
            operations: args.operations,
            launches: args.launches,
            floor_bytes: Floor::bytes(kind),
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
        })
    }

    /// Runs the race and prints who was how fast.
    pub(super) fn run(self, args: &RaceArgs) -> Result<(), Failure> {
        args.output.check()?;
        args.plot.as_deref().map_or(Ok(()), plot::check)?;
        peer::keep_multicast_off(&args.against);
        let devices = args.ranks.devices()?;
        let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
        let race = self.race(args, kind)?;
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
}
