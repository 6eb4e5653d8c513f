//! `symmetra-bench all-reduce-norm`: rows summed over ranks and normed by several of our algorithms, the operation
//! without its norm, and NCCL's collectives with a kernel that norms, in turn.

mod candidate;
mod expected;
mod kernel;
mod operands;
mod rank;
mod report;
mod round;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Dtype, ScaleLayout};

use super::driver;
use super::flags::{OperationsArgs, RaceArgs};
use super::pace::Pace;
use harness::failure::CommandFailure;
use harness::form::{self, Form, MOST_HIDDEN};
use harness::names::{self, distinct};
use harness::norms::NormKind;
use reference::quantised::Format;

/// All-reduce with residual and norm (RMSNorm or LayerNorm): time, cost of the norm, ratio to the best peer.
///
/// All candidates run in the same processes. The residual is summed in place, and the norm has an output of its own. In
/// addition to the candidates of --algorithm, our operation runs on the same bytes without its norm, so that the
/// difference is the cost of the norm.
///
/// `apart` is our single calls: the all-reduce or reduce-scatter, a kernel that norms, and with --op
/// reduce-scatter-all-gather an all-gather of each output. A peer is NCCL's calls and that kernel.
///
/// With --quantise, quantised rows replace the norm's output. In addition the first candidate runs with the norm's
/// output, as `unquantised`, so that the difference is the cost of
/// quantising. A call that sums before its kernel norms (by an algorithm that is not a sentinel one)
/// then writes the sum with the residual into a buffer of its own.
///
/// Every number of tokens is run on fresh random data, and every element of the residual and of every output is
/// compared with an independent reference: every bit of ours; for a peer the sum within the bound of rounding after
/// each addition, and every bit of the norm of that sum.
///
/// Then the candidates take turns as in `symmetra-bench all-reduce`: a time is the median over the launches of the
/// slowest rank's time for one operation. NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench all-reduce-norm --ranks 4 --hidden 8192 --tokens 1,4,16,64,256,1024 --against nccl
  symmetra-bench all-reduce-norm --algorithm auto,one-shot-sentinel,two-shot-sentinel,apart --json
  symmetra-bench all-reduce-norm --quantise per-token-e4m3 --tokens 1,16 --algorithm auto,apart
  symmetra-bench all-reduce-norm --norm layer --algorithm auto,apart
  symmetra-bench all-reduce-norm --op reduce-scatter-all-gather --tokens 1024 --algorithm auto,apart
  symmetra-bench all-reduce-norm --ranks 2 --hidden 2880 --eager --output out.json")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// Our candidates, separated by commas: `auto` is the library's choice, the sentinel algorithms norm in their
    /// kernel, others sum before a kernel that norms; `apart` is single calls by the library's choice and that kernel
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "WAYS", value_parser = names::parser::<NormWay>(NormWay::all().map(NormWay::name)))]
    algorithm: Vec<NormWay>,

    /// Elements of a row
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=MOST_HIDDEN))]
    hidden: u64,

    /// Numbers of rows [default: 1,4,16,64,256,1024, rounded up to equal shares where ranks keep shares]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    tokens: Vec<u64>,

    /// Which rows a rank norms and keeps: all rows; its share; or its share, gathering all normed rows
    #[arg(long, value_enum, default_value_t = Form::AllReduce)]
    op: Form,

    /// The norm of every candidate: RMSNorm, or LayerNorm with a bias
    #[arg(long, value_enum, default_value_t = NormKind::Rms)]
    norm: NormKind,

    /// Write normed rows only in a narrow format, as `symmetra all-reduce-norm --quantise` names it
    #[arg(long, value_name = "FORMAT", value_parser = |name: &str| name.parse::<Format>())]
    quantise: Option<Format>,

    /// Type of the rows: f32, f16 or bf16
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    #[command(flatten)]
    operations: OperationsArgs,
}

/// How our library sums and norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub(super) enum NormWay {
    /// One call, by this algorithm.
    Call(Algorithm),
    /// Single calls by the library's choice, and a kernel that norms.
    Apart,
}

impl NormWay {
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

impl fmt::Display for NormWay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for NormWay {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|way| way.name() == name).ok_or_else(|| format!("there is no way {name}"))
    }
}

impl From<NormWay> for &'static str {
    fn from(way: NormWay) -> Self {
        way.name()
    }
}

impl TryFrom<String> for NormWay {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

/// The candidates and the numbers of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NormRace {
    op: Form,
    norm: NormKind,
    #[serde(with = "names::by_name")]
    dtype: Dtype,
    hidden: usize,
    #[serde(with = "names::by_name_if_any")]
    quantise: Option<Format>,
    tokens: Vec<usize>,
    ways: Vec<NormWay>,
    pace: Pace,
}

/// The name of the first candidate when it writes normed rows and the others quantise.
const UNQUANTISED: &str = "unquantised";

impl NormRace {
    fn new(args: &Args, pace: Pace) -> Result<Self, CommandFailure> {
        let usual = [1, 4, 16, 64, 256, 1024];
        let race = Self {
            op: args.op,
            norm: args.norm,
            quantise: args.quantise,
            dtype: args.dtype,
            hidden: args.hidden as usize,
            tokens: args.op.tokens(args.dtype, &args.tokens, &usual, pace.ranks as u64)?,
            ways: distinct("--algorithm", &args.algorithm, NormWay::name, |_| Ok(()))?,
            pace: Pace { operations: args.operations.operations, ..pace },
        };
        race.check_gathers()?;
        Ok(race)
    }

    /// Refuses formats whose shares are not contiguous, for candidates that gather with single all-gathers.
    fn check_gathers(&self) -> Result<(), CommandFailure> {
        let apart = self.ways.contains(&NormWay::Apart).then_some("--algorithm apart");
        let gathering = apart.or((!self.pace.competitors.is_empty()).then_some("--against nccl"));
        match (self.op, self.quantise, gathering) {
            (Form::ReduceScatterAllGather, Some(format), Some(option)) if format.layout() != ScaleLayout::Rows => {
                Err(CommandFailure::usage(format!("{option}: all-gathers do not put scales of {format} together")))
            }
            _ => Ok(()),
        }
    }

    /// Elements of a quantised row.
    fn width(&self) -> usize {
        form::width(self.hidden, self.quantise)
    }

    /// Whether a quantising call sums before its kernel norms, and so needs memory for the sum.
    fn sums_first(&self, algorithm: Algorithm) -> bool {
        let fused = [Algorithm::Auto, Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];
        self.op == Form::AllReduce && !fused.contains(&algorithm)
    }

    /// Bytes of `tokens` rows.
    fn bytes(&self, tokens: usize) -> u64 {
        (tokens * self.hidden * self.dtype.bytes()) as u64
    }

    fn largest_bytes(&self) -> u64 {
        self.tokens.iter().map(|tokens| self.bytes(*tokens)).max().unwrap_or(0)
    }

    /// Bytes of quantised rows; a value takes a byte at most.
    fn largest_codes_bytes(&self) -> u64 {
        let bytes = |form: Format, tokens| tokens * self.width() + form.scales_bytes(tokens, self.width());
        let of = |form| self.tokens.iter().map(|tokens| bytes(form, *tokens) as u64).max();
        self.quantise.and_then(of).unwrap_or(0)
    }

    /// Our candidates by name: all of --algorithm, the first of them unquantised, and the operation without its norm.
    fn own(&self) -> Vec<&'static str> {
        let ways = self.ways.iter().map(|way| way.name());
        ways.chain(self.quantise.map(|_| UNQUANTISED)).chain([self.op.name()]).collect()
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    driver::run(&args.race, None, |_, pace| NormRace::new(args, pace))
}
