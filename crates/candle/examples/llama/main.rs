//! Llama 2 and 3 with tensor parallelism, on the CPU: greedy tokens after a prompt.
//!
//! ```sh
//! cargo run --release --example llama -- --random 1 --ranks 2         # threads, with weights at random
//! symmetra launch -n 2 -- target/release/examples/llama --model DIR   # processes, with a checkpoint
//! ```
//!
//! A checkpoint is a folder with `config.json` and `.safetensors` files, as Llama is published. With its `tokenizer.json` the
//! prompt is text, else token numbers. Results go to standard output, messages to standard error.
#![allow(clippy::print_stdout, reason = "a program")]

mod model;
mod random;

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Error, Result};
use candle_nn::var_builder::{ShardedSafeTensors, ShardedVarBuilder};
use candle_transformers::models::llama::{LlamaConfig, LlamaEosToks};
use clap::Parser;
use model::{Llama, Norm, decode};
use random::Shape;
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
    shape: Shape,
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
    /// How the norm after a sum runs.
    #[arg(long, default_value = "fused")]
    norm: Norm,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
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

/// The tokens of one rank, and their time.
fn run(group: &Group, folder: &Path, arguments: &Arguments) -> Result<()> {
    let config = std::fs::read(folder.join("config.json"))?;
    let config: LlamaConfig = serde_json::from_slice(&config).map_err(Error::wrap)?;
    let config = config.into_config(false);
    let tokenizer = folder.join("tokenizer.json");
    let tokenizer = tokenizer.exists().then(|| Tokenizer::from_file(tokenizer).map_err(Error::msg)).transpose()?;
    let prompt: Vec<u32> = match &tokenizer {
        Some(tokenizer) => tokenizer.encode(arguments.prompt.as_str(), true).map_err(Error::msg)?.get_ids().to_vec(),
        None => arguments.prompt.split(',').map(|number| Ok(number.trim().parse()?)).collect::<Result<_>>()?,
    };
    if prompt.is_empty() {
        return Err(Error::msg("the prompt has no token"));
    }
    let vb = weights(folder, arguments.dtype, group.device())?;
    let mut model = Llama::load(&vb, &config, arguments.norm, group)?;
    let ends = |token: u32| match &config.eos_token_id {
        Some(LlamaEosToks::Single(end)) => token == *end,
        Some(LlamaEosToks::Multiple(ends)) => ends.contains(&token),
        None => false,
    };
    // The first step has the whole prompt, so the time starts after it.
    let mut start = None;
    let tokens = decode(&mut model, &prompt, arguments.steps, ends, |_, _| {
        start.get_or_insert_with(Instant::now);
        Ok(())
    })?;
    let step = start.map_or(0.0, |start| start.elapsed().as_secs_f64()) / tokens.len().saturating_sub(1).max(1) as f64;
    let rounds = 20;
    let start = Instant::now();
    (0..rounds).try_for_each(|_| model.collectives())?;
    let collectives = start.elapsed().as_secs_f64() / f64::from(rounds);
    if group.rank() == 0 {
        let text = tokenizer.map(|tokenizer| tokenizer.decode(&tokens, true).map_err(Error::msg)).transpose()?;
        print(group, arguments, &tokens, text.as_deref(), step, collectives);
    }
    Ok(())
}

/// Prints the results; `step` and `collectives` are seconds a token.
fn print(group: &Group, arguments: &Arguments, tokens: &[u32], text: Option<&str>, step: f64, collectives: f64) {
    let (rate, share) = (1.0 / step, collectives / step);
    if arguments.json {
        let row = serde_json::json!({
            "ranks": group.world_size(), "tokens": tokens, "text": text, "tokens_per_s": rate, "collectives_share": share,
        });
        return println!("{row}");
    }
    let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
    println!("{}", text.unwrap_or(&numbers.join(" ")));
    println!("{rate:.1} tokens/s, collectives alone {:.0} % of a step, {} ranks", 100.0 * share, group.world_size());
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let results = match arguments.ranks {
        Some(ranks) => {
            let folder = arguments.folder(0)?;
            Group::threads(ranks, |bootstrap| {
                let group = Group::open(bootstrap, &Device::Cpu, symmetra::Config::default())?;
                run(&group, &folder, &arguments)?;
                group.close()
            })?
        }
        None => {
            let group = Group::from_env(&Device::Cpu)?;
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
