//! `symmetra-bench moe`: rows to experts and back, by several of our methods and by messages of NCCL, in turn.

mod candidate;
mod memory;
mod operands;
mod oracle;
mod peer;
mod rank;
mod report;
mod routes;
mod split;

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::experts::{ExpertConfig, expert_bytes, expert_method};
use symmetra::{Config, DeviceKind};

use super::driver;
use super::flags::{OperationsArgs, RaceArgs};
use super::pace::Pace;
use harness::buffer::BUFFER_BYTES;
use harness::experts::{ExpertShape, RowExchange, RowOrder, RowWire};
use harness::failure::CommandFailure;
use harness::names::distinct;
use operands::MoeOperands;
use oracle::MoeOracle;
use routes::{Routes, Traffic};
pub(crate) use split::MoeSplit;

/// Dispatch and combine of a mixture of experts: times, bandwidths, ratio to the best peer.
///
/// A dispatch sends the rows of each rank's tokens to the ranks of their experts, and a combine sends the results back
/// and sums them by the weights of the routing. Every number of tokens has experts of its own. All candidates run in
/// the same processes.
///
/// A peer is NCCL's grouped sends and receives of rows that our kernels pack, and put into the requested order at the
/// other end. The peer gets the row counts for free (the exchange of counts is not timed). Where our rows are by
/// source, the peer's rows are by rank, as messages deliver them.
///
/// Every number of tokens is run on fresh random data. All outputs of a dispatch, and every element of a combine, are
/// compared bit for bit with an independent reference. Then the candidates take turns as in `symmetra-bench
/// all-reduce`: a time is the median over the launches of the slowest rank's time for one operation. Combines are
/// launched after one dispatch, whose time is subtracted.
///
/// Logical bytes count a row for each pair of a token and an expert; link bytes are the bytes that the busiest rank
/// sends to or gets from others if a row goes once to each rank. Bandwidths and the ratio are for both, a dispatch and
/// its combine. NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
///
/// With --split there is no comparison: dispatch and combine go by packets in two halves, a begin that does not wait
/// and a receive, first without work between them and then after a matmul of each rank alone (--size). `hidden` is the
/// share of the receive's time that the work hides. All ranks meet on their devices before each begin; a time is the
/// median over the launches of the slowest rank.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench moe --ranks 4 --phase both --graph --against nccl --output out.json --plot out.svg
  symmetra-bench moe --shape mixtral --ranks 2 --method auto,broadcast --json
  symmetra-bench moe --shape 64,6,2048 --tokens 1,16,256 --wire same --layout by-expert --routing zipf
  symmetra-bench moe --ranks 8 --routing ids.npy
  symmetra-bench moe --ranks 4 --tokens 64,128 --split --size 4096")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// The layer: deepseek (256,8,7168), mixtral (8,2,4096), or experts, experts of a token and elements of a row
    #[arg(long, default_value = "deepseek", value_name = "E,K,H", value_parser = |text: &str| text.parse::<ExpertShape>())]
    shape: ExpertShape,

    /// Numbers of tokens of a rank: decode is 1, 2, 4 to 128, or 1, 4 and 16 on the CPU; prefill is 4096 [default: decode]
    #[arg(long, value_enum, conflicts_with = "tokens")]
    phase: Option<Load>,

    /// Numbers of tokens of a rank, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    tokens: Vec<u64>,

    /// How rows travel to experts; results are bf16
    #[arg(long, value_enum, default_value_t = RowWire::F8)]
    wire: RowWire,

    /// The order of received rows [default: padded to 128 tokens, by-rank beyond]
    #[arg(long, value_enum)]
    layout: Option<RowOrder>,

    /// Our methods, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto", value_name = "LIST")]
    method: Vec<RowExchange>,

    /// Which experts tokens go to: uniform; zipf, where few experts are popular; one, the same first experts for all; or a
    /// file of i32 or i64, [ranks, tokens, experts of a token], where -1 is no expert
    #[arg(long, default_value = "uniform", value_name = "uniform|zipf|one|FILE.npy")]
    routing: String,

    /// Time both halves of each call by packets, and how much of the receive other work hides
    #[arg(long, conflicts_with_all = ["method", "against", "plot", "graph", "eager", "operations"])]
    split: bool,

    /// Rows and columns of the matrices of bf16 that are multiplied between the halves [default: 8192 on GPUs, 256 on the CPU]
    #[arg(long, value_name = "N", requires = "split", value_parser = clap::value_parser!(u32).range(64..=65_536))]
    size: Option<u32>,

    #[command(flatten)]
    operations: OperationsArgs,

    /// Draw times and bandwidth over numbers of tokens into this SVG file
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
}

/// The workloads of engines, by how many tokens a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Load {
    Decode,
    Prefill,
    Both,
}

/// Most tokens of a rank that count as decode.
const DECODE: usize = 128;
const PREFILL: usize = 4096;

impl Load {
    fn tokens(self, kind: DeviceKind) -> Vec<usize> {
        let decode: Vec<usize> = match kind {
            DeviceKind::Host => vec![1, 4, 16],
            _ => (0..=DECODE.ilog2()).map(|power| 1 << power).collect(),
        };
        match self {
            Self::Decode => decode,
            Self::Prefill => vec![PREFILL],
            Self::Both => decode.into_iter().chain([PREFILL]).collect(),
        }
    }
}

/// The candidates and the numbers of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MoeRace {
    shape: ExpertShape,
    tokens: Vec<usize>,
    wire: RowWire,
    /// The layout; `None`: by the number of tokens.
    layout: Option<RowOrder>,
    methods: Vec<RowExchange>,
    traffic: Traffic,
    pace: Pace,
    /// Bytes of the symmetric heap.
    heap_bytes: u64,
}

impl MoeRace {
    fn new(args: &Args, kind: DeviceKind, pace: Pace) -> Result<Self, CommandFailure> {
        let (ranks, group) = (pace.ranks, Config::default());
        // Checked before any allocation whose size follows from the settings.
        expert_bytes(ranks, &group, &args.shape.config(1)).map_err(refused)?;
        let traffic = Traffic::asked(&args.routing, args.shape, ranks)?;
        let mut race = Self {
            shape: args.shape,
            tokens: tokens(args, &traffic, kind)?,
            wire: args.wire,
            layout: args.layout,
            methods: if args.split {
                vec![RowExchange::Packets]
            } else {
                distinct("--method", &args.method, RowExchange::name, |_| Ok(()))?
            },
            traffic,
            pace: Pace { operations: args.operations.operations, ..pace },
            heap_bytes: 2 * BUFFER_BYTES,
        };
        for tokens in race.tokens.clone() {
            expert_bytes(ranks, &group, &race.shape.config(tokens)).map_err(refused)?;
            let routes = race.routes(tokens);
            let oracle = MoeOracle::new(race.shape, race.layout(tokens), &routes);
            if race.layout(tokens).is_by_token() {
                race.heap_bytes += MoeOperands::shared_bytes(race.shape, race.wire, oracle.most);
            }
            for config in race.configs(&oracle, tokens) {
                expert_method(kind, ranks, true, &group, &config).map_err(refused)?;
                race.heap_bytes += expert_bytes(ranks, &group, &config).map_err(refused)? + BUFFER_BYTES;
            }
        }
        Ok(race)
    }

    fn layout(&self, tokens: usize) -> RowOrder {
        self.layout.unwrap_or(if tokens <= DECODE { RowOrder::Padded } else { RowOrder::ByRank })
    }

    fn routes(&self, tokens: usize) -> Routes {
        self.traffic.routes(self.pace.seed, self.shape, [tokens, self.pace.ranks])
    }

    /// The settings of the experts of every method, with room for all received rows.
    fn configs(&self, oracle: &MoeOracle, tokens: usize) -> Vec<ExpertConfig> {
        let setting = |way: &RowExchange| {
            let mut config = self.shape.config(tokens);
            config.wire = self.wire.setting();
            config.layout = self.layout(tokens).setting(oracle.room);
            config.capacity = Some(oracle.most);
            config.method = way.setting();
            config
        };
        self.methods.iter().map(setting).collect()
    }

    /// Bytes of results of a rank's tokens, of all their experts.
    fn logical_bytes(&self, tokens: usize) -> u64 {
        (tokens * self.shape.top_k * self.shape.hidden * 2) as u64
    }

    /// Our methods, and the peers.
    fn methods(&self) -> Vec<&'static str> {
        let methods = self.methods.iter().map(|way| way.name());
        methods.chain(self.pace.peers()).collect()
    }
}

/// The error for a requested setting that the library refuses.
fn refused(error: symmetra::Error) -> CommandFailure {
    CommandFailure::usage(error.to_string())
}

/// The numbers of tokens: the requested numbers, else all tokens of a file, else those of the phase.
fn tokens(args: &Args, traffic: &Traffic, kind: DeviceKind) -> Result<Vec<usize>, CommandFailure> {
    let named: Vec<usize> = args.tokens.iter().map(|tokens| *tokens as usize).collect();
    match traffic {
        Traffic::Given { tokens, .. } if named.is_empty() && args.phase.is_none() => Ok(vec![*tokens]),
        Traffic::Given { name, tokens, .. } => {
            let asked = if named.is_empty() { args.phase.unwrap_or(Load::Decode).tokens(kind) } else { named };
            match asked.iter().find(|asked| *asked > tokens) {
                Some(more) => {
                    Err(CommandFailure::usage(format!("{more} tokens were asked for, but {name} has {tokens} a rank")))
                }
                None => Ok(asked),
            }
        }
        _ if named.is_empty() => Ok(args.phase.unwrap_or(Load::Decode).tokens(kind)),
        _ => Ok(named),
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    if args.split {
        return split::run(args);
    }
    driver::run(&args.race, args.plot.as_deref(), |kind, pace| MoeRace::new(args, kind, pace))
}
