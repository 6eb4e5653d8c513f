//! `symmetra info`: devices, versions, settings, and which algorithm serves which message.

mod choices;
mod experts;
mod grid;
mod shown;
mod surroundings;

use std::convert::Infallible;
use std::path::PathBuf;

use choices::{Choices, RangeInfo, Types};
use experts::ExpertLayer;
use grid::GridInfo;
use serde::Serialize;
use surroundings::{Groups, ShownVariable};
use symmetra::matmul::Multiplier;
use symmetra::{
    Algorithm, Config, Device, DeviceKind, Dtype, Ranges, Transport, TunedCodec, Tuning, explain, explain_broadcast,
    explain_exchange, explain_norm, explain_quantised_norm, explain_reduction, required_bytes,
};

use crate::grid::{GridArgs, GridWorld};
use harness::devices::{self, Choice, MulticastWords, RankDevice};
use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::form;
use harness::output;
use reference::quantised::Format;

/// The kinds of memory of operands, and whether peers can address that memory.
const MEMORIES: [(&str, bool); 2] = [("symmetric, adopted", true), ("plain", false)];

/// Print devices, versions, settings and the choice of algorithms.
///
/// Prints first the topics of the options: parallel groups, a grid, experts, norms. Then devices, the settings that are
/// not defaults with their sources, and which algorithm serves which all-reduce. --settings, --choices and --variables
/// print the rest; --json prints everything.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of ranks to explain settings and algorithms for, 2 to 16 [default: the ranks of --tp, else 4]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(2..=16))]
    ranks: Option<u64>,

    /// Kind of device to explain algorithms for
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    device: Choice,

    /// Explain norms of rows of N elements [default of --choices: 8192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    hidden: Option<u64>,

    /// Explain norms whose rows are also written in a narrow format, one of `symmetra all-reduce-norm --quantise`
    #[arg(long, value_name = "FORMAT", value_parser = |name: &str| name.parse::<Format>())]
    quantise: Option<Format>,

    /// A layer of experts, to explain: deepseek, mixtral, or experts, experts of a token and elements of a row
    #[arg(long, value_name = "E,K,H", value_parser = |text: &str| text.parse::<ExpertShape>())]
    experts: Option<ExpertShape>,

    /// Most tokens of a rank that go to experts
    #[arg(long, default_value_t = 128, requires = "experts", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    tokens: u64,

    /// A file that `symmetra tune` wrote, to explain its choices
    #[arg(long, value_name = "PATH")]
    tuning: Option<PathBuf>,

    /// Ranks of a tensor parallel group: with --pp and --dp, prints which ranks are in which group
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    tp: Option<u64>,

    /// Stages of a pipeline
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pp: Option<u64>,

    /// Replicas of the layers
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    dp: Option<u64>,

    /// Among how many hosts the ranks of a grid are divided: with --local-tp and so on, prints the place of each rank
    /// on the grid and which modes serve
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    hosts: u64,

    #[command(flatten)]
    grid: GridArgs,

    /// Print all settings, with their sources
    #[arg(long)]
    settings: bool,

    /// Print the choices for all operations, with the reasons
    #[arg(long)]
    choices: bool,

    /// Print all environment variables, with their values and effects
    #[arg(long)]
    variables: bool,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Elements of the rows whose norms are explained.
const USUAL_HIDDEN: u64 = 8192;

impl Args {
    /// Whether norms are requested.
    fn asks_norms(&self) -> bool {
        self.choices || self.hidden.is_some() || self.quantise.is_some() || self.tuning.is_some()
    }

    fn ranks(&self) -> usize {
        let tensor_parallel = self.tp.filter(|tp| (2..=16).contains(tp));
        self.ranks.or(tensor_parallel).unwrap_or(4) as usize
    }

    /// The mesh, if one is requested.
    fn grid_world(&self, ranks: usize) -> Result<Option<GridWorld>, CommandFailure> {
        let asked = self.grid.is_given() || self.hosts > 1;
        asked.then(|| GridWorld::new(ranks, self.hosts as usize, self.grid, 0)).transpose()
    }

    /// Tensor, pipeline and data parallel sizes, if any is requested.
    fn sizes(&self) -> Option<[usize; 3]> {
        let sizes = [self.tp, self.pp, self.dp];
        sizes.iter().any(Option::is_some).then(|| sizes.map(|size| size.unwrap_or(1) as usize))
    }
}

/// Everything that `info` prints.
#[derive(Debug, Serialize)]
struct Info {
    version: &'static str,
    features: Vec<&'static str>,
    devices: Vec<DeviceInfo>,
    /// The devices that the driver counts and does not open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broken: Vec<BrokenDevice>,
    /// Whether GPU `row` of `devices` reports that it can address memory of GPU `column`; false across vendors.
    peer_access: Vec<Vec<bool>>,
    ranks: usize,
    device: &'static str,
    /// Name, value and source.
    config: Vec<(&'static str, String, String)>,
    /// The NCCL that is found, or why none is.
    nccl: String,
    /// The library that multiplies matrices, for each kind of device.
    products: Vec<ProductsInfo>,
    arena_bytes: u64,
    algorithms: Vec<Choices<Types>>,
    /// Elements of the rows whose norms are explained.
    hidden: u64,
    /// How the rows are quantised, where a format was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    quantise: Option<String>,
    norms: Vec<Choices<Types>>,
    /// The message sizes from which codecs are faster, from the tuning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    codecs: Vec<TunedCodec>,
    transports: Vec<TransportInfo>,
    /// The layer of experts, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<ExpertLayer>,
    variables: Vec<ShownVariable>,
    /// The parallel groups, if sizes were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<Vec<Groups>>,
    /// The mesh, if sizes of a mesh, or several hosts, were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<GridInfo>,
}

#[derive(Debug, Serialize)]
struct BrokenDevice {
    device: String,
    error: String,
}

/// A kind of device, and the library that multiplies there, or why there is no library.
#[derive(Debug, Serialize)]
struct ProductsInfo {
    device: &'static str,
    library: String,
}

/// One row of the choices for exchanges.
#[derive(Debug, Serialize)]
struct TransportInfo {
    collective: &'static str,
    memory: &'static str,
    /// By bytes from one rank to another.
    #[serde(flatten)]
    range: RangeInfo,
}

#[derive(Debug, Serialize)]
struct DeviceInfo {
    kind: &'static str,
    ordinal: i32,
    name: String,
    memory_bytes: u64,
    multiprocessors: u32,
    compute_capability: String,
    uuid: String,
    versions: String,
    multicast: MulticastWords,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let ranks = args.ranks();
    let layout = args.sizes().map(|sizes| surroundings::layout(sizes, args.ranks)).transpose()?;
    let kind = devices::kind(args.device, ranks, false);
    let gpus = devices::GPUS.iter().flat_map(|gpu| (0..gpu.count()).map(gpu.device));
    let (gpus, broken) = opened(gpus);
    let mut config = Config::default();
    config.tuning = args.tuning.as_ref().map(Tuning::load).transpose()?;
    let layer = |shape| ExpertLayer::new(shape, args.tokens as usize, (kind, ranks), &config);
    let experts = args.experts.map(layer).transpose()?;
    let grid = args.grid_world(ranks)?.map(|world| GridInfo::new(&world, kind, config.tuning.as_ref())).transpose()?;
    let device = gpus.iter().find(|device| device.kind() == kind);
    let hidden = args.hidden.unwrap_or(USUAL_HIDDEN);
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        features: features(),
        devices: std::iter::once(&Device::host()?).chain(&gpus).map(DeviceInfo::new).collect::<Result<_, _>>()?,
        broken,
        peer_access: peer_access(&gpus)?,
        ranks,
        device: kind.name(),
        config: surroundings::settings(&config, args.sizes(), ranks),
        nccl: surroundings::nccl(&gpus),
        products: products(&gpus)?,
        arena_bytes: required_bytes(ranks, &config)?,
        algorithms: algorithms(&Dtype::ALL, explain(kind, device, ranks, config.tuning.as_ref())?),
        hidden,
        quantise: args.quantise.map(|format| format.to_string()),
        norms: norms((kind, device), ranks, &config, (hidden as usize, args.quantise))?,
        codecs: config.tuning.iter().flat_map(|tuning| codecs(tuning, kind, ranks)).cloned().collect(),
        variables: surroundings::variables(),
        layout,
        transports: transports(kind, ranks, &config),
        experts,
        grid,
    };
    if args.json { output::json(&info) } else { shown::print(&info, args) }
}

/// The devices that open, and the errors of the devices that do not open.
fn opened(devices: impl Iterator<Item = RankDevice>) -> (Vec<Device>, Vec<BrokenDevice>) {
    let (mut opened, mut broken) = (Vec::new(), Vec::new());
    for device in devices {
        match device.open() {
            Ok(device) => opened.push(device),
            Err(error) => broken.push(BrokenDevice { device: device.to_string(), error: error.to_string() }),
        }
    }
    (opened, broken)
}

/// The library that multiplies on the CPU, and on the first GPU of each kind.
fn products(gpus: &[Device]) -> Result<Vec<ProductsInfo>, CommandFailure> {
    let host = Device::host()?;
    let first = |kind| gpus.iter().find(|gpu| gpu.kind() == kind);
    let devices = std::iter::once(&host).chain(devices::GPUS.iter().filter_map(|gpu| first(gpu.kind)));
    let found = devices.map(|device| {
        let multiplier = Multiplier::new(device);
        let library = multiplier.map_or_else(|error| error.to_string(), |multiplier| multiplier.library().to_owned());
        ProductsInfo { device: device.kind().name(), library }
    });
    Ok(found.collect())
}

/// The features of this build.
pub(crate) fn features() -> Vec<&'static str> {
    let built = [
        ("cuda", cfg!(feature = "cuda")),
        ("cudarc", cfg!(feature = "cudarc")),
        ("gloo", cfg!(feature = "gloo")),
        ("hip", cfg!(feature = "hip")),
        ("hip-sys", cfg!(feature = "hip-sys")),
        ("multicast", cfg!(feature = "multicast")),
        ("nccl", cfg!(feature = "nccl")),
        ("nvshmem", cfg!(feature = "nvshmem")),
        ("timing", cfg!(feature = "timing")),
    ];
    built.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

fn peer_access(gpus: &[Device]) -> Result<Vec<Vec<bool>>, CommandFailure> {
    let row = |from: &Device| {
        let reaches = |to: &Device| from.ordinal() == to.ordinal() || from.can_access(to.ordinal()).unwrap_or(false);
        gpus.iter().map(|to| from.kind() == to.kind() && reaches(to)).collect()
    };
    Ok(gpus.iter().map(row).collect())
}

impl DeviceInfo {
    fn new(device: &Device) -> Result<Self, CommandFailure> {
        let (major, minor) = device.compute_capability();
        let host = device.kind() == DeviceKind::Host;
        Ok(Self {
            kind: device.kind().name(),
            ordinal: device.ordinal(),
            name: device.name(),
            memory_bytes: device.memory_bytes(),
            multiprocessors: device.multiprocessors(),
            compute_capability: if host { "-".to_owned() } else { format!("{major}.{minor}") },
            uuid: if host { "-".to_owned() } else { uuid(device.uuid()) },
            versions: device.versions(),
            multicast: MulticastWords::new(device)?,
        })
    }
}

/// Formatted as in the vendor's tools.
fn uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

fn transports(kind: DeviceKind, ranks: usize, config: &Config) -> Vec<TransportInfo> {
    let rows = |collective, ranges: &dyn Fn(bool) -> Ranges<Transport>| {
        let of_memory = |(memory, direct)| {
            let ranges = RangeInfo::all("transport", &ranges(direct), Transport::name).into_iter();
            ranges.map(move |range| TransportInfo { collective, memory, range })
        };
        MEMORIES.into_iter().flat_map(of_memory).collect::<Vec<_>>()
    };
    let broadcasts = rows("broadcast", &|direct| explain_broadcast(kind, ranks, config, direct));
    let reductions = rows("reduction of floats", &|direct| explain_reduction(kind, ranks, config, Dtype::BF16, direct));
    let integers = rows("reduction of integers", &|direct| explain_reduction(kind, ranks, config, Dtype::I32, direct));
    let others = rows("others", &|direct| explain_exchange(kind, ranks, config, direct));
    broadcasts.into_iter().chain(reductions).chain(integers).chain(others).collect()
}

/// The choices for codecs in a tuning of these devices.
fn codecs(tuning: &Tuning, kind: DeviceKind, ranks: usize) -> impl Iterator<Item = &TunedCodec> {
    tuning.codecs.iter().filter(move |codec| tuning.kind == kind.name() && codec.world_size == ranks)
}

/// The choices for rows of `hidden` elements, padded as the format requires. There is memory for the sum of all rows.
fn norms(
    (kind, device): (DeviceKind, Option<&Device>),
    ranks: usize,
    config: &Config,
    (hidden, quantise): (usize, Option<Format>),
) -> symmetra::Result<Vec<Choices<Types>>> {
    let dtypes = symmetra::op::ALL_REDUCE_NORM.dtypes();
    let Some(format) = quantise else {
        let explain = explain_norm(kind, device, ranks, config)?;
        return Ok(algorithms(dtypes, |dtype, direct| explain(dtype, hidden, direct)));
    };
    let (explain, width) = (explain_quantised_norm(kind, device, ranks, config)?, form::width(hidden, quantise));
    try_algorithms(dtypes, |dtype, direct| explain((dtype, hidden, width), form::chosen_as(format), direct, true))
}

fn algorithms(dtypes: &[Dtype], explain: impl Fn(Dtype, bool) -> Ranges<Algorithm>) -> Vec<Choices<Types>> {
    let Ok(all) = try_algorithms(dtypes, |dtype, direct| Ok::<_, Infallible>(explain(dtype, direct)));
    all
}

/// The choices, in which types with equal choices share an entry.
fn try_algorithms<E>(
    dtypes: &[Dtype],
    explain: impl Fn(Dtype, bool) -> Result<Ranges<Algorithm>, E>,
) -> Result<Vec<Choices<Types>>, E> {
    let mut all: Vec<Choices<Types>> = Vec::new();
    for (memory, direct) in MEMORIES {
        for dtype in dtypes {
            let ranges = RangeInfo::begun(RangeInfo::all("algorithm", &explain(*dtype, direct)?, Algorithm::name));
            match all.iter_mut().find(|choices| choices.memory == memory && choices.ranges == ranges) {
                Some(choices) => choices.calls.dtypes.push(dtype.name()),
                None => all.push(Choices { calls: Types { dtypes: vec![dtype.name()] }, memory, ranges }),
            }
        }
    }
    Ok(all)
}
