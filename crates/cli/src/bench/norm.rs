//! `symmetra bench all-reduce-norm`: our all-reduces with norm by several ways, our all-reduce alone, and NCCL's with a
//! norm behind it, in turn.

mod contender;
mod expected;
mod rank;
mod report;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, DeviceKind, Dtype, RmsNorm};

use super::competitor::{self, Competitor};
use super::flags::{BenchRanks, OutputArgs, PaceArgs, distinct};
use super::nccl;
use super::turns::Mode;
use crate::failure::Failure;
use crate::names;
use crate::ranks::Run;
use report::Hearing;

/// Most elements of a row.
const MOST_HIDDEN: u64 = 1 << 20;
/// The norm of every side.
pub(super) const NORM: RmsNorm = RmsNorm::new(1e-6);

/// All-reduce with residual and norm (RMSNorm): time, cost of the norm, ratio to the best peer.
///
/// All sides run in the same processes. The residual is summed in place, and the norm has an output
/// of its own. Beside the ways that --algorithm names races our all-reduce of the same bytes, so
/// that the difference is the cost of the norm; `apart` is that all-reduce and a kernel that norms
/// behind it, as a peer is NCCL's all-reduce and that kernel. Every number of tokens is run on fresh
/// random data, and every element of both outputs is compared with an independent reference: every
/// bit of ours; of a peer's the sum within what rounding after each addition may do, and every bit of
/// what the norm makes of that sum. Then the sides take turns as in `symmetra bench all-reduce`: a time is the median
/// over the launches of the slowest rank's time for one operation. NVLink multicast stays off
/// (NCCL_NVLS_ENABLE=0, unless it is set). Exit status: 0, or 1 when an element is wrong or a rank
/// fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra bench all-reduce-norm --ranks 4 --hidden 8192 --tokens 1,4,16,64,256,1024 --against nccl
  symmetra bench all-reduce-norm --algorithm auto,one-shot-sentinel,two-shot-sentinel,apart --json
  symmetra bench all-reduce-norm --ranks 2 --hidden 2880 --eager --output out.json")]
pub(super) struct Args {
    #[command(flatten)]
    ranks: BenchRanks,

    /// Peers, separated by commas: NCCL on the same buffers [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    against: Vec<Competitor>,

    /// Our ways, separated by commas: `auto` is the library's choice, the sentinel algorithms norm in their kernel, others
    /// sum before a kernel that norms; `apart` is the library's choice of an all-reduce before that kernel
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "WAYS", value_parser = names::parser::<Way>(Way::all().map(Way::name)))]
    algorithm: Vec<Way>,

    /// Elements of a row
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=MOST_HIDDEN))]
    hidden: u64,

    /// Numbers of rows
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    tokens: Vec<u64>,

    /// Type of the rows: f32, f16 or bf16
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    #[command(flatten)]
    pace: PaceArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// How our library sums and norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub(super) enum Way {
    /// One call, by this algorithm.
    Call(Algorithm),
    /// An all-reduce by the library's choice, and a kernel that norms.
    Apart,
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        [Algorithm::Auto].into_iter().chain(Algorithm::ALL).map(Self::Call).chain([Self::Apart])
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Call(algorithm) => algorithm.name(),
            Self::Apart => "apart",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|way| way.name() == name).ok_or_else(|| format!("there is no way {name}"))
    }
}

impl From<Way> for &'static str {
    fn from(way: Way) -> Self {
        way.name()
    }
}

impl TryFrom<String> for Way {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

/// The task: which sides race over which numbers of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NormRace {
    #[serde(with = "names::by_name")]
    dtype: Dtype,
    hidden: usize,
    tokens: Vec<usize>,
    ways: Vec<Way>,
    competitors: Vec<Competitor>,
    modes: Vec<Mode>,
    /// Operations of one launch, where that is not by size.
    operations: Option<u32>,
    /// Launches that are timed.
    launches: u32,
    seed: u64,
}

/// The name of our all-reduce without a norm.
const SUM: &str = "all-reduce";

impl NormRace {
    fn new(args: &Args, kind: DeviceKind) -> Result<Self, Failure> {
        if !symmetra::op::ALL_REDUCE_NORM.dtypes().contains(&args.dtype) {
            return Err(Failure::usage(format!("rows are f32, f16 or bf16, not {}", args.dtype)));
        }
        Ok(Self {
            dtype: args.dtype,
            hidden: args.hidden as usize,
            tokens: args.tokens.iter().map(|tokens| *tokens as usize).collect(),
            ways: distinct("--algorithm", &args.algorithm, Way::name, |_| Ok(()))?,
            competitors: distinct("--against", &args.against, Competitor::name, |other| match other {
                Competitor::Nccl => competitor::check(other, kind),
                other => Err(Failure::usage(format!("--against {}: the norm works on our buffers", other.name()))),
            })?,
            modes: args.pace.modes(),
            operations: args.pace.operations,
            launches: args.pace.launches,
            seed: args.pace.seed(),
        })
    }

    /// Bytes of so many rows.
    fn bytes(&self, tokens: usize) -> u64 {
        (tokens * self.hidden * self.dtype.bytes()) as u64
    }

    fn largest_bytes(&self) -> u64 {
        self.tokens.iter().map(|tokens| self.bytes(*tokens)).max().unwrap_or(0)
    }

    /// The sides by name: our ways, our all-reduce alone, the peers.
    fn side_names(&self) -> Vec<&'static str> {
        let ways = self.ways.iter().map(|way| way.name());
        ways.chain([SUM]).chain(self.competitors.iter().map(|other| other.name())).collect()
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.output.check()?;
    if !args.against.is_empty() {
        nccl::keep_multicast_off();
    }
    let devices = args.ranks.devices()?;
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let race = NormRace::new(args, kind)?;
    let about_peers = (!race.competitors.is_empty()).then(nccl::describe).transpose()?;
    let ranks_as = args.ranks.run.ranks_as;
    let (dtype, hidden, seed) = (race.dtype, race.hidden, race.seed);
    eprintln!("{} ranks as {} on {kind}, rows of {hidden} {dtype}, seed {seed}", devices.len(), ranks_as.name());
    if let Some(line) = &about_peers {
        eprintln!("{line}");
    }
    let mut hearing = Hearing::new(&devices, ranks_as, &race, about_peers);
    Run::new(&devices, race.clone()).attend(ranks_as, |rank, lap| hearing.hear(rank, lap))?;
    let report = hearing.finish();
    args.output.write(report.table(), &report)?;
    report.verdict()
}
