//! Llama 2 and 3 with tensor parallelism, on the CPU or on GPUs: greedy tokens after a prompt.
//!
//! ```sh
//! cargo run --release --example llama -- --random 1 --ranks 2         # threads, with weights at random
//! symmetra launch -n 2 -- target/release/examples/llama --model DIR   # processes, with a checkpoint
//! cargo run --release --features cuda --example llama -- --device cuda --graph --dtype bf16 --random 1 --ranks 2
//! ```
//!
//! A checkpoint is a folder with `config.json` and `.safetensors` files, as Llama is published. With its `tokenizer.json` the
//! prompt is text, else token numbers. Results go to standard output, messages to standard error.
#![allow(clippy::print_stdout, reason = "a program")]

#[cfg(feature = "cuda")]
mod graph;
mod model;
mod random;

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Error, Result};
use candle_nn::var_builder::{ShardedSafeTensors, ShardedVarBuilder};
use candle_transformers::models::llama::{Config, LlamaConfig, LlamaEosToks};
use clap::Parser;
use model::{Llama, ModelNorm, Room, decode};
use random::ModelSize;
use symmetra::bootstrap::{Bootstrap, Tcp};
use symmetra_candle::{Group, failure};
use tokenizers::Tokenizer;

#[derive(Clone, Debug, clap::Parser)]
struct Arguments {
    /// The folder of the checkpoint. With --random, the folder for the weights; a folder that has some is used as it is.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Write weights at random, from this seed.
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// The size of a random model.
    #[arg(long, default_value = "tiny")]
    shape: ModelSize,
    /// Text, or token numbers with commas for a model without tokenizer.json.
    #[arg(long, default_value = "1,2,3,4,5,6,7,8,9")]
    prompt: String,
    /// The most tokens to generate.
    #[arg(long, default_value_t = 64)]
    steps: usize,
    /// Ranks as threads. Without it, the ranks of a launcher.
    #[arg(long)]
    ranks: Option<usize>,
    /// f32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// How the norm after a sum runs. With several, each runs in turn.
    #[arg(long, value_delimiter = ',', default_value = "fused")]
    norm: Vec<ModelNorm>,
    /// How often the tokens are found. Times are medians over all rounds.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// The device of the tensors. Rank r has GPU r.
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Equal sequences at a time.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Capture a step as a CUDA graph, and launch the graph for each token.
    #[cfg(feature = "cuda")]
    #[arg(long)]
    graph: bool,
    /// Run the same layers, norms apart, over another library too, which finds the same tokens.
    #[cfg(feature = "nccl")]
    #[arg(long)]
    against: Option<ComparedPeer>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DeviceChoice {
    Cpu,
    Cuda,
}

/// A library for a comparison.
#[cfg(feature = "nccl")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ComparedPeer {
    /// NCCL, through cudarc's class.
    Nccl,
}

impl Arguments {
    /// The device of a rank.
    fn device(&self, rank: usize) -> Result<Device> {
        match self.device {
            DeviceChoice::Cpu => Ok(Device::Cpu),
            #[cfg(feature = "cuda")]
            DeviceChoice::Cuda if self.graph => graph::device(rank),
            DeviceChoice::Cuda => Device::new_cuda_with_stream(rank),
        }
    }

    /// The folder of the checkpoint. Rank 0 writes random weights, the other processes wait for them.
    fn folder(&self, rank: usize) -> Result<PathBuf> {
        let name = || format!("symmetra-llama-{:?}-{}", self.shape, self.random.unwrap_or_default()).to_lowercase();
        let folder = match (&self.model, self.random) {
            (Some(folder), _) => folder.clone(),
            (None, Some(_)) => env::temp_dir().join(name()),
            (None, None) => return Err(Error::msg("a checkpoint is needed: give --model DIR, or --random SEED")),
        };
        if let Some(seed) = self.random.filter(|_| !folder.join("config.json").exists()) {
            if rank == 0 {
                eprintln!("writing weights to {}", folder.display());
                random::write(&folder, &self.shape.config(), self.dtype, seed)?;
            }
            while !folder.join("config.json").exists() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(folder)
    }
}

/// The weight files of a checkpoint.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(index) = std::fs::read(folder.join("model.safetensors.index.json")) else {
        return Ok(vec![folder.join("model.safetensors")]);
    };
    let index: serde_json::Value = serde_json::from_slice(&index).map_err(Error::wrap)?;
    let names =
        index["weight_map"].as_object().into_iter().flat_map(|map| map.values()).filter_map(|name| name.as_str());
    Ok(names.collect::<BTreeSet<_>>().into_iter().map(|name| folder.join(name)).collect())
}

#[allow(unsafe_code)]
fn weights(folder: &Path, dtype: DType, device: &Device) -> Result<ShardedVarBuilder<'static>> {
    // SAFETY: no program changes the files of a checkpoint while it is in use.
    unsafe { ShardedSafeTensors::var_builder(&files(folder)?, dtype, device) }
}

/// The model and the prompt of a run.
struct DecodeTask<'a> {
    arguments: &'a Arguments,
    weights: ShardedVarBuilder<'a>,
    config: Config,
    prompt: Vec<u32>,
}

/// A library and its norms, and the tokens of one rank.
struct ComparedRun {
    library: &'static str,
    norm: ModelNorm,
    group: Group,
    tokens: Vec<u32>,
    /// Seconds of each step of one token.
    steps: Vec<f64>,
    /// Seconds of the collectives of a step alone.
    collectives: f64,
}

impl ComparedRun {
    fn new(library: &'static str, norm: ModelNorm, group: Group) -> Self {
        Self { library, norm, group, tokens: Vec::new(), steps: Vec::new(), collectives: 0.0 }
    }

    /// Seconds of a step: the median.
    fn step(&self) -> f64 {
        let mut steps = self.steps.clone();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The times, for tokens in `batch` sequences.
    fn row(&self, batch: usize) -> serde_json::Value {
        let (step, norm) = (self.step(), format!("{:?}", self.norm).to_lowercase());
        serde_json::json!({
            "library": self.library, "norm": norm, "tokens_per_s": batch as f64 / step, "us_per_token": 1e6 * step,
            "collectives_share": self.collectives / step,
        })
    }
}

impl DecodeTask<'_> {
    fn load(&self, way: &ComparedRun) -> Result<Llama> {
        let room = Room { batch: self.arguments.batch, length: self.prompt.len() + self.arguments.steps };
        Llama::load(&self.weights, &self.config, way.norm, room, &way.group)
    }

    /// A round of a way.
    fn run(&self, way: &mut ComparedRun, model: &Llama) -> Result<()> {
        let mut times = Vec::new();
        let tokens = self.decode(model, || times.push(Instant::now()))?;
        if !way.tokens.is_empty() && way.tokens != tokens {
            return Err(Error::msg("two rounds find different tokens"));
        }
        way.tokens = tokens;
        // The first step has the whole prompt. With a graph the second is eager, and the third has the first launch.
        let first = times.len().saturating_sub(2).min(3);
        way.steps.extend(times[first..].windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()));
        let (rounds, start) = (20, Instant::now());
        (0..rounds).try_for_each(|_| model.collectives())?;
        way.group.device().synchronize()?;
        way.collectives = start.elapsed().as_secs_f64() / f64::from(rounds);
        Ok(())
    }

    /// Greedy tokens. `done` is called after each step.
    fn decode(&self, model: &Llama, mut done: impl FnMut()) -> Result<Vec<u32>> {
        let steps = self.arguments.steps;
        let ends = |token: u32| match &self.config.eos_token_id {
            Some(LlamaEosToks::Single(end)) => token == *end,
            Some(LlamaEosToks::Multiple(ends)) => ends.contains(&token),
            None => false,
        };
        #[cfg(feature = "cuda")]
        if self.arguments.graph {
            return graph::decode(model, &self.prompt, steps, ends, |_| done());
        }
        decode(model, &self.prompt, steps, ends, |_, _| {
            done();
            Ok(())
        })
    }
}

/// Runs one rank, and prints the results of rank 0.
fn run(group: &Group, folder: &Path, arguments: &Arguments) -> Result<()> {
    let config = std::fs::read(folder.join("config.json"))?;
    let config: LlamaConfig = serde_json::from_slice(&config).map_err(Error::wrap)?;
    let tokenizer = folder.join("tokenizer.json");
    let tokenizer = tokenizer.exists().then(|| Tokenizer::from_file(tokenizer).map_err(Error::msg)).transpose()?;
    let prompt: Vec<u32> = match &tokenizer {
        Some(tokenizer) => tokenizer.encode(arguments.prompt.as_str(), true).map_err(Error::msg)?.get_ids().to_vec(),
        None => arguments.prompt.split(',').map(|number| Ok(number.trim().parse()?)).collect::<Result<_>>()?,
    };
    if prompt.is_empty() {
        return Err(Error::msg("the prompt has no token"));
    }
    let weights = weights(folder, arguments.dtype, group.device())?;
    let task = DecodeTask { arguments, weights, config: config.into_config(false), prompt };
    let of_symmetra = arguments.norm.iter().map(|norm| ComparedRun::new("symmetra", *norm, group.clone()));
    let mut ways: Vec<ComparedRun> = of_symmetra.collect();
    #[cfg(feature = "nccl")]
    if let Some(ComparedPeer::Nccl) = arguments.against {
        ways.push(ComparedRun::new("NCCL", ModelNorm::Apart, group.over_nccl()?));
    }
    let models = std::thread::scope(|scope| {
        let task = &task;
        let loading: Vec<_> = ways.iter().map(|way| scope.spawn(move || task.load(way))).collect();
        let loaded = loading.into_iter().map(|thread| thread.join());
        loaded.map(|model| model.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Result<Vec<_>>>()
    })?;
    for _ in 0..arguments.rounds {
        ways.iter_mut().zip(&models).try_for_each(|(way, model)| task.run(way, model))?;
    }
    let text =
        |way: &ComparedRun| tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&way.tokens, true).map_err(Error::msg));
    if let Some(first) = ways.first().filter(|_| group.rank() == 0) {
        print(&ways, arguments, &first.tokens, text(first).transpose()?.as_deref());
    }
    let mut apart = ways.iter().filter(|way| way.norm == ModelNorm::Apart);
    match apart.next() {
        Some(first) if apart.any(|way| way.tokens != first.tokens) => {
            Err(Error::msg("the tokens over NCCL differ from the tokens over symmetra"))
        }
        _ => Ok(()),
    }
}

/// Prints the times of all ways, and the tokens of the first way.
fn print(ways: &[ComparedRun], arguments: &Arguments, tokens: &[u32], text: Option<&str>) {
    let ranks = ways.first().map_or(1, |way| way.group.world_size());
    let mut rows = ways.iter().map(|way| way.row(arguments.batch));
    if arguments.json {
        let mut row = rows.next().unwrap_or_default();
        row["ranks"] = ranks.into();
        row["tokens"] = tokens.into();
        row["text"] = text.into();
        row["others"] = rows.collect();
        return println!("{row}");
    }
    let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
    println!("{}", text.unwrap_or(&numbers.join(" ")));
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let (rate, us, share) = (number("tokens_per_s"), number("us_per_token"), 100.0 * number("collectives_share"));
        let way = format!("{}, norm {}", row["library"].as_str().unwrap_or_default(), row["norm"]);
        println!(
            "{way}: {rate:.1} tokens/s, {us:.0} us a token, collectives alone {share:.0} % of a step, {ranks} ranks"
        );
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let results = match arguments.ranks {
        Some(ranks) => {
            let folder = arguments.folder(0)?;
            Group::threads(ranks, |bootstrap| {
                let device = arguments.device(bootstrap.rank())?;
                let group = Group::open(bootstrap, &device, symmetra::Config::default())?;
                run(&group, &folder, &arguments)?;
                group.close()
            })?
        }
        None => {
            let bootstrap = Tcp::from_env(Instant::now() + Duration::from_secs(120)).map_err(Error::wrap)?;
            let device = arguments.device(bootstrap.rank())?;
            let group = Group::open(bootstrap, &device, symmetra::Config::default())?;
            let folder = arguments.folder(group.rank())?;
            vec![run(&group, &folder, &arguments).and_then(|()| group.close())]
        }
    };
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        if let Some(symmetra::Error::PeerLost { rank, .. }) = failure(error) {
            eprintln!("rank {rank} has to be started again");
        }
    }
    results.into_iter().collect()
}
