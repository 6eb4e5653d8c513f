//! `symmetra-bench matmul`: GEMMs with the collectives of tensor parallelism, by our plans, unfused, and with NCCL's
//! collectives, in turn.

mod candidate;
mod layers;
mod numbers;
mod operands;
mod oracle;
mod rank;
mod report;

use serde::{Deserialize, Serialize};
use symmetra::DeviceKind;
use symmetra::fused::Way;
use symmetra::matmul::Product;

use super::driver;
use super::flags::{OperationsArgs, RaceArgs};
use super::pace::Pace;
use harness::buffer::BUFFER_BYTES;
use harness::failure::CommandFailure;
use harness::names::{self, distinct};
use layers::{Fusion, GemmLayer, GemmSizes, MOST, Model};
use numbers::{FactorScales, Precision};

/// All-gather + matmul, matmul + reduce-scatter and matmul + all-reduce: time, schedule, ratio to the best peer.
///
/// M is the rows (tokens) of the whole left factor, K its columns, N the columns of the right factor. With an
/// all-gather the ranks share M of the left factor and N of the right factor; else they share K of both, and sum their
/// products.
///
/// All candidates run in the same processes: our plans by each schedule (`auto` is the library's choice), the GEMM
/// alone, our collective alone, and with --against the peer's collective with our GEMM. Operands of collectives are in
/// symmetric memory. The collective alone does not move scales; every other candidate does.
///
/// Every layer is run on fresh random data whose results are exact, and every element is compared with the expected
/// result. The candidates are then timed on random numbers, in turns as in `symmetra-bench all-reduce`: a time is the
/// median over the launches of the slowest rank's time for one operation.
///
/// NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench matmul --collective all-gather --ranks 4 --tokens 512,4096 --graph --against nccl --output ag.json
  symmetra-bench matmul --collective reduce-scatter --dtype f8 --scaling rows --json
  symmetra-bench matmul --collective all-reduce --tokens 1,16,64,128 --way auto,sequence
  symmetra-bench matmul --collective all-gather --ranks 2 --inner 256 --columns 512 --tokens 64
  symmetra-bench matmul --collective reduce-scatter --shape 4096,8192,8192")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// The collective that is fused with the GEMM
    #[arg(long, value_enum)]
    collective: Fusion,

    /// Layers of a model: before a product with an all-gather qkv and gate_up, else o and down [default: llama3-70b]
    #[arg(long, value_enum, conflicts_with_all = ["inner", "columns", "shape"])]
    model: Option<Model>,

    /// K of all ranks together
    #[arg(long, value_name = "K", requires = "columns", conflicts_with = "shape", value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    inner: Option<u64>,

    /// N of all ranks together
    #[arg(long, value_name = "N", requires = "inner", conflicts_with = "shape", value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    columns: Option<u64>,

    /// Values of M, separated by commas [default: 128,512,1024,2048,4096,8192,16384; 1,16 on the CPU]
    #[arg(long, value_delimiter = ',', value_name = "LIST", conflicts_with = "shape", value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    tokens: Vec<u64>,

    /// M, K and N of all ranks together; may be given several times
    #[arg(long, value_name = "M,K,N", value_parser = |text: &str| text.parse::<GemmSizes>())]
    shape: Vec<GemmSizes>,

    /// Type of the factors; f8 is e4m3, with results of bf16
    #[arg(long, value_enum, default_value_t = Precision::Bf16)]
    dtype: Precision,

    /// Scales of factors of f8
    #[arg(long, value_enum, default_value_t = FactorScales::None)]
    scaling: FactorScales,

    /// Schedules of our plans, separated by commas [default: auto,sequence, and pipeline where the layer supports it]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = names::parser::<Way>(Way::ALL.map(Way::name)))]
    way: Vec<Way>,

    #[command(flatten)]
    operations: OperationsArgs,
}

/// The candidates and the layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MatmulRace {
    fusion: Fusion,
    precision: Precision,
    scales: FactorScales,
    layers: Vec<GemmLayer>,
    #[serde(with = "names::by_name_each")]
    ways: Vec<Way>,
    /// Whether the user named the schedules: then a layer must support all of them.
    named: bool,
    pace: Pace,
}

/// Elements of the symmetric buffers of a rank.
struct Elems {
    left: usize,
    gathered: usize,
    partial: usize,
    result: usize,
}

impl MatmulRace {
    fn new(args: &Args, kind: DeviceKind, pace: Pace) -> Result<Self, CommandFailure> {
        let race = Self {
            fusion: args.collective,
            precision: args.dtype,
            scales: args.scaling,
            layers: layers(args, kind, pace.ranks)?,
            ways: match args.way.as_slice() {
                [] => Way::ALL.to_vec(),
                named => distinct("--way", named, Way::name, |_| Ok(()))?,
            },
            named: !args.way.is_empty(),
            pace: Pace { operations: args.operations.operations, ..pace },
        };
        for layer in &race.layers {
            race.product(layer).check().map_err(|error| CommandFailure::usage(format!("{}: {error}", layer.name)))?;
        }
        Ok(race)
    }

    fn product(&self, layer: &GemmLayer) -> Product {
        let mut product = Product::new(layer.inner, layer.columns, self.precision.numeric());
        product.scaling = self.scales.scaling();
        product
    }

    /// Whether each rank has only some rows of the result.
    fn shares_result(&self) -> bool {
        self.fusion == Fusion::ReduceScatter
    }

    /// Ranks with fewer rows have as many elements as the ranks with most rows: symmetric buffers are equally long.
    fn elems(&self, layer: &GemmLayer) -> Elems {
        let most = layer.tokens.div_ceil(self.pace.ranks);
        let moved = layer.moved_elems(self.fusion);
        let sums = self.fusion.sums();
        Elems {
            left: layer.inner * if sums { layer.tokens } else { most },
            gathered: if sums { 1 } else { moved },
            partial: if sums { moved } else { 1 },
            result: layer.columns * if self.shares_result() { most } else { layer.tokens },
        }
    }

    /// Symmetric memory of a layer: operands, the gathered rows or sums of each plan, the result and the part of a plan
    /// of two steps, and the staging of copy engines.
    fn layer_bytes(&self, layer: &GemmLayer) -> u64 {
        let product = self.product(layer);
        let [factor, result] = [product.numeric.dtypes()[0].bytes(), product.result.bytes()];
        let Elems { left, gathered, partial, result: results } = self.elems(layer);
        let operands = factor * (left + gathered) + result * (partial + results);
        let moved = layer.moved_elems(self.fusion) * if self.fusion.sums() { result } else { factor };
        let plans = self.ways.len();
        let scales = 4 * layer.tokens * (2 + plans);
        (operands + (plans + 4) * moved + scales) as u64 + (8 + 4 * plans as u64) * BUFFER_BYTES
    }
}

/// The requested layers, or all of a model.
fn layers(args: &Args, kind: DeviceKind, ranks: usize) -> Result<Vec<GemmLayer>, CommandFailure> {
    let fusion = args.collective;
    if !args.shape.is_empty() {
        return args.shape.iter().map(|sizes| GemmLayer::of("shape", *sizes, fusion, ranks)).collect();
    }
    let tokens: Vec<usize> = match (args.tokens.as_slice(), kind) {
        ([], DeviceKind::Host) => vec![1, 16],
        ([], _) => vec![128, 512, 1024, 2048, 4096, 8192, 16_384],
        (named, _) => named.iter().map(|tokens| *tokens as usize).collect(),
    };
    let (Some(inner), Some(columns)) = (args.inner, args.columns) else {
        return GemmLayer::of_model(args.model.unwrap_or(Model::Llama370b), &tokens, fusion, ranks);
    };
    let sizes = |tokens: &usize| GemmSizes([*tokens, inner as usize, columns as usize]);
    tokens.iter().map(|tokens| GemmLayer::of("shape", sizes(tokens), fusion, ranks)).collect()
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    driver::run(&args.race, None, |kind, pace| MatmulRace::new(args, kind, pace))
}
