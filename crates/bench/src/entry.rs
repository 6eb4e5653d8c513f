//! `symmetra-bench all-reduce`, `all-gather` and so on: this library and others on the same data, in turn.

use std::path::PathBuf;

use symmetra::{Algorithm, DeviceKind, Dtype};

use super::flags::{BenchRanks, OutputArgs, PaceArgs};
use super::floor::Times;
use super::plot;
use super::race::{Found, Race};
use super::report::Hearing;
use super::side::{self, With};
use harness::collective::Collective;
use harness::contest::competitor::{self, Competitor};
use harness::contest::nccl;
use harness::failure::Failure;
use harness::live::Live;
use harness::names;
use harness::names::distinct;
use harness::output;
use harness::ranks::Run;
use harness::sizes::SizeArgs;

/// Flags of every comparison.
#[derive(clap::Args)]
pub(super) struct RaceArgs {
    #[command(flatten)]
    ranks: BenchRanks,

    /// The others, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    against: Vec<Competitor>,

    /// Other candidates of this library, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SIDES")]
    with: Vec<With>,

    /// Element type
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    #[command(flatten)]
    sizes: SizeArgs,

    #[command(flatten)]
    pace: PaceArgs,

    /// Draw time and bandwidth over size, with the floor of the hardware, into this SVG file
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

impl RaceArgs {
    /// Elements of the inputs; where these are cut for all, a part for every rank.
    fn sizes_elems(&self, collective: Collective) -> Result<Vec<usize>, Failure> {
        let parts = match collective {
            Collective::ReduceScatter | Collective::AllToAll => self.ranks.count(),
            _ => 1,
        };
        self.sizes.elems(self.dtype, parts)
    }
}

/// All-reduce (sum) compared with other libraries: time, ratio to the best of them, bus bandwidth.
///
/// All candidates run in the same processes. Every size is run on fresh random data and every element is compared with
/// an independent sum: ours to the bit, the others', which may round after each addition, within that. Then the
/// candidates take turns: the ranks meet on their devices, launch the operations and are timed to the end of the last.
///
/// A time is the median over the launches of the slowest rank's time for one operation. A graph is launched while the
/// ranks still meet on their devices; calls (`--eager`) are timed from where they have met, so that their time includes
/// the time of the hosts. All ranks must end with the same bits for our candidates.
///
/// `--with plain` adds our all-reduce on plain device memory, the memory of a program that allocates by other means:
/// for single calls its contents are pushed; in a graph its addresses are exchanged once, before the first launch
/// (`Graph::register`), and peers access it in place, like symmetric memory. `--with nvshmem` adds kernels on memory of
/// NVSHMEM.
///
/// `--with fp8,int8,int6,int4` adds our all-reduce by these codecs: their elements are compared with the codec's bound,
/// and a column has the time without a codec divided by the time with the codec. NVLink multicast stays off
/// (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong, ranks differ or one fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench all-reduce --ranks 2 --max-bytes 1MiB
  symmetra-bench all-reduce -b 8 -e 128M -f 4
  symmetra-bench all-reduce --against nccl,nccl-symmetric --ranks 8 --dtype bf16 --max-bytes 1GiB --plot out.svg --output out.json
  symmetra-bench all-reduce --ranks 4 --eager --json
  symmetra-bench all-reduce --ranks 4 --with plain --graph --eager --max-bytes 256MiB
  symmetra-bench all-reduce --ranks 4 --with fp8,int8,int6,int4 --min-bytes 256KiB --max-bytes 256MiB --against nccl")]
pub(super) struct AllReduceArgs {
    #[command(flatten)]
    race: RaceArgs,

    /// The algorithm of our all-reduce; `auto` is the library's choice for each size
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,
}

/// Flags of every comparison except that of all-reduce.
#[derive(clap::Args)]
// Their summaries are those of the commands: text here would be overridden by them.
#[command(after_long_help = "\
As `symmetra-bench all-reduce`: every element is verified, those of our sides to the bit, then \
the sides take turns. A size is that of a rank's input: an all-gather's output is world size times \
as large, and so are the bytes that its bus bandwidth counts.

Sums are what is reduced; NCCL's all-to-all is a group of sends and receives.

Exit status: 0, or 1 when an element is wrong or a \
rank fails, or 2 for wrong usage.")]
pub(super) struct ExchangeArgs {
    #[command(flatten)]
    pub(super) race: RaceArgs,
}

impl AllReduceArgs {
    /// Runs the command.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (algorithm, dtype) = (self.algorithm, self.race.dtype);
        if !algorithm.carries(dtype) {
            return Err(Failure::usage(format!("{algorithm} carries floating types only, not {dtype}")));
        }
        if algorithm.needs_reach() && self.race.with.contains(&With::Plain) {
            return Err(Failure::usage(format!("--with plain: {algorithm} needs memory that peers can address")));
        }
        self.race.run(Collective::AllReduce, algorithm)
    }
}

impl RaceArgs {
    fn race(&self, collective: Collective, algorithm: Algorithm, kind: DeviceKind) -> Result<Race, Failure> {
        Ok(Race {
            dtype: self.dtype,
            collective,
            algorithm,
            ranks: self.ranks.count(),
            sizes_elems: self.sizes_elems(collective)?,
            with: distinct("--with", &self.with, With::name, |with| side::check(with, collective, self.dtype))?,
            competitors: distinct("--against", &self.against, Competitor::name, |other| {
                competitor::check(other, kind)
            })?,
            modes: self.pace.launch.modes(),
            operations: self.pace.operations,
            launches: self.pace.launch.repeats(),
            floor_bytes: Times::bytes(kind),
            seed: self.pace.launch.seed(),
        })
    }

    /// Runs the comparison and prints the times of all candidates.
    pub(super) fn run(&self, collective: Collective, algorithm: Algorithm) -> Result<(), Failure> {
        self.output.check()?;
        self.plot.as_deref().map_or(Ok(()), plot::check)?;
        if !self.against.is_empty() {
            nccl::keep_multicast_off();
        }
        let devices = self.ranks.devices()?;
        let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
        let race = self.race(collective, algorithm, kind)?;
        let about_peers = (!race.competitors.is_empty()).then(nccl::describe).transpose()?;
        output::note(format_args!(
            "{} ranks as {} on {kind}, {}, seed {}",
            devices.len(),
            self.ranks.run.ranks_as.name(),
            race.dtype,
            race.seed
        ))?;
        if let Some(line) = &about_peers {
            output::note(line)?;
        }
        let mut hearing = Hearing::new(&devices, self.ranks.run.ranks_as, &race, about_peers);
        let mut live = Live::new()?;
        Run::new(&devices, race.clone()).attend(self.ranks.run.ranks_as, |rank, found| match found {
            Found::Lap(lap) => {
                hearing.hear(rank, lap)?;
                let report = hearing.report();
                hearing.aside(|| self.output.show(&mut live, &report.table(), report))
            }
            Found::Floor(floor) => {
                hearing.hear_floor(floor);
                Ok(())
            }
        })?;
        let report = hearing.finish();
        self.output.end(live, &report.floor(), &report)?;
        if let Some(path) = &self.plot {
            plot::draw(&report.panels(), path)?;
        }
        report.verdict()
    }
}
