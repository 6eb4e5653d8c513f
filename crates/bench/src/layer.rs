//! `symmetra-bench layer`: decoder layers of a dense transformer over tensor parallel ranks, with every communication
//! strategy of the library, and with NCCL's collectives, in turn.

mod bounds;
mod candidate;
mod check;
mod operands;
mod rank;
mod report;
mod shape;
mod sides;
mod steps;
mod way;
mod weights;

use serde::{Deserialize, Serialize};
use symmetra::{DeviceKind, RmsNorm};

use super::driver;
use super::flags::RaceArgs;
use super::pace::Pace;
use harness::failure::CommandFailure;
use harness::names::distinct;
use shape::LayerShape;
use way::{ALL, LayerWay};

/// The norm of every candidate.
const NORM: RmsNorm = RmsNorm::new(1e-5);

/// Largest sizes of a layer, and most tokens.
const MOST: u64 = 1 << 20;

/// A decoder layer over tensor parallel ranks: time, tokens a second, ratio to the best peer.
///
/// A layer has four GEMMs of bf16: qkv, o, gate_up and down. After o and after down the ranks sum their results, add
/// the residual and norm the rows (RMSNorm). The defaults are the sizes of Llama-3 70B; on the CPU a row and
/// an intermediate row have an eighth of the elements. Weights are random, and each layer has its own.
///
/// Attention itself is not part of the layer. The left factor of o is the first elements of the result of qkv, as many
/// as queries have. The activation is relu in the GEMM gate_up, and the first half of its result is the left
/// factor of down: GEMMs have the shapes of the model, and no candidate runs another kernel.
///
/// All candidates run in the same processes, on the same buffers, with the same GEMMs (cuBLASLt on GPUs). `--way`
/// selects how our library communicates. --against nccl adds two candidates: `nccl` has all-reduces, `nccl-scatter` has
/// reduce-scatters and all-gathers; both norm by our kernel. Strategies that share the rows need a number of tokens
/// that is a multiple of the number of ranks.
///
/// Every number of tokens is run on fresh random data. In each candidate's last layer, each GEMM, sum and norm is
/// compared with its definition in double precision at 8 rows and 8 columns: GEMMs within the bound of accumulation
/// in f32 and a rounding to bf16, sums within the bound of rounding after each addition, and every bit of the sampled
/// normed rows.
///
/// Each final row is compared with that of the first candidate: both may differ by sqrt(2 layers) / 64 of the row's
/// length, and an element by 8 times this share of the row's root mean square. The candidates then take turns as in
/// `symmetra-bench all-reduce`: a time is the median over the launches of the slowest rank's time for one layer.
///
/// Tokens a second are counted through one layer. NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench layer --ranks 4 --graph --against nccl --output layer.json
  symmetra-bench layer --ranks 8 --tokens 1,16,64 --way all-reduce --against nccl
  symmetra-bench layer --ranks 4 --tokens 4096,8192 --way scatter,fused,pipeline --layers 2 --json
  symmetra-bench layer --ranks 2 --hidden 256 --heads 8 --kv-heads 2 --intermediate 512 --tokens 4")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs<1>,

    /// Elements of a row [default: 8192; 1024 on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    hidden: Option<u64>,

    /// Heads of queries; a head has hidden / heads elements
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    heads: u64,

    /// Heads of keys, and as many of values
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    kv_heads: u64,

    /// Columns of gate and of up [default: 28672; 3584 on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    intermediate: Option<u64>,

    /// Numbers of tokens, separated by commas [default: 1,16,64,256,1024,4096,8192; 1,16 on the CPU]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    tokens: Vec<u64>,

    /// Layers of a launch [default: 4; 1 on the CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    layers: Option<u32>,

    /// Our strategies, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    way: Vec<LayerWay>,
}

/// The candidates and the numbers of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerRace {
    shape: LayerShape,
    tokens: Vec<usize>,
    /// Layers of a launch.
    layers: u32,
    ways: Vec<LayerWay>,
    pace: Pace,
}

impl LayerRace {
    fn new(args: &Args, kind: DeviceKind, pace: Pace) -> Result<Self, CommandFailure> {
        // A CPU takes minutes for a layer of the model.
        let (tokens, hidden, intermediate, layers): (&[u64], _, _, _) = match kind {
            DeviceKind::Host => (&[1, 16], 1024, 3584, 1),
            _ => (&[1, 16, 64, 256, 1024, 4096, 8192], 8192, 28_672, 4),
        };
        let tokens = if args.tokens.is_empty() { tokens } else { &args.tokens };
        let race = Self {
            shape: LayerShape {
                hidden: args.hidden.unwrap_or(hidden) as usize,
                heads: args.heads as usize,
                kv_heads: args.kv_heads as usize,
                intermediate: args.intermediate.unwrap_or(intermediate) as usize,
            },
            tokens: tokens.iter().map(|tokens| *tokens as usize).collect(),
            layers: args.layers.unwrap_or(layers),
            ways: match args.way.as_slice() {
                [] => ALL.to_vec(),
                named => distinct("--way", named, LayerWay::name, |_| Ok(()))?,
            },
            pace,
        };
        race.shape.check(race.pace.ranks)?;
        race.check_shares()?;
        Ok(race)
    }

    /// Refuses numbers of tokens that no strategy can run.
    fn check_shares(&self) -> Result<(), CommandFailure> {
        let all_share = self.ways.iter().all(|way| way.shares());
        let ranks = self.pace.ranks;
        match self.tokens.iter().find(|tokens| !tokens.is_multiple_of(ranks)) {
            Some(tokens) if all_share => Err(CommandFailure::usage(format!(
                "--tokens: {tokens} rows have no equal shares for {ranks} ranks, and every --way needs such shares"
            ))),
            _ => Ok(()),
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    driver::run(&args.race, None, |kind, pace| LayerRace::new(args, kind, pace))
}
