//! A checkpoint with weights at random, with the names and files of a checkpoint of Llama.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device, Result, Tensor};
use serde_json::{Value, json};

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ModelSize {
    /// 4 layers of 256, 1024 tokens.
    Tiny,
    /// That of Llama 3.2 1B.
    #[value(name = "1b")]
    OneB,
    /// That of Llama 3.1 8B.
    #[value(name = "8b")]
    EightB,
}

impl ModelSize {
    /// The file config.json.
    pub(crate) fn config(self) -> Value {
        let [hidden, inner, layers, heads, kv_heads, vocabulary, original] = match self {
            Self::Tiny => [256, 704, 4, 8, 2, 1024, 64],
            Self::OneB => [2048, 8192, 16, 32, 8, 128_256, 8192],
            Self::EightB => [4096, 14_336, 32, 32, 8, 128_256, 8192],
        };
        let scaling = json!({
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        });
        json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "vocab_size": vocabulary, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
            "rope_scaling": scaling, "tie_word_embeddings": self == Self::OneB,
        })
    }
}

/// Writes the checkpoint: a file a layer and one for the rest, the index, and at last config.json. Threads write the files.
pub(crate) fn write(folder: &Path, config: &Value, dtype: DType, seed: u64) -> Result<()> {
    let layers = config["num_hidden_layers"].as_u64().unwrap_or_default() as usize;
    let name = |file: usize| format!("model-{:05}-of-{:05}.safetensors", file + 1, layers + 1);
    let next = AtomicUsize::new(0);
    let write = || -> Result<()> {
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file > layers {
                return Ok(());
            }
            // The largest file first.
            let file = layers - file;
            let mut random = fastrand::Rng::with_seed(seed.wrapping_add(file as u64));
            let mut tensors = HashMap::new();
            for Weight { name, outputs, inputs } in weights(config, file, layers) {
                tensors.insert(name, tensor(&mut random, outputs, inputs)?.to_dtype(dtype)?);
            }
            candle_core::safetensors::save(&tensors, folder.join(name(file)))?;
        }
    };
    std::fs::create_dir_all(folder)?;
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(layers + 1);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        let mut joined = threads.into_iter().map(|thread| thread.join());
        joined.try_for_each(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let files =
        (0..=layers).flat_map(|file| weights(config, file, layers).into_iter().map(move |weight| (weight, file)));
    let map: serde_json::Map<_, _> = files.map(|(weight, file)| (weight.name, json!(name(file)))).collect();
    let index = json!({ "metadata": {}, "weight_map": map });
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string())?;
    // The other processes start when they see this file.
    std::fs::write(folder.join("config.part"), config.to_string())?;
    Ok(std::fs::rename(folder.join("config.part"), folder.join("config.json"))?)
}

/// The name and the shape of a weight. A norm has no inputs.
struct Weight {
    name: String,
    outputs: usize,
    inputs: usize,
}

/// The weights of a file: those of a layer, or after the last layer those of the rest.
fn weights(config: &Value, file: usize, layers: usize) -> Vec<Weight> {
    let size = |name: &str| config[name].as_u64().unwrap_or_default() as usize;
    let [hidden, inner, vocabulary] = ["hidden_size", "intermediate_size", "vocab_size"].map(size);
    let kv = hidden / size("num_attention_heads") * size("num_key_value_heads");
    let layer = format!("model.layers.{file}.");
    let weight = |prefix: &str, (name, outputs, inputs): (&str, usize, usize)| Weight {
        name: format!("{prefix}{name}.weight"),
        outputs,
        inputs,
    };
    match file == layers {
        false => [
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
            ("input_layernorm", hidden, 0),
            ("post_attention_layernorm", hidden, 0),
        ]
        .map(|row| weight(&layer, row))
        .into(),
        true => {
            [("model.embed_tokens", vocabulary, hidden), ("model.norm", hidden, 0), ("lm_head", vocabulary, hidden)]
                .map(|row| weight("", row))
                .into()
        }
    }
}

/// `[outputs, inputs]` with products of unit variance, or the `[outputs]` weights of a norm around 1.
fn tensor(random: &mut fastrand::Rng, outputs: usize, inputs: usize) -> Result<Tensor> {
    let (center, width) = if inputs == 0 { (1.0, 0.1) } else { (0.0, (3.0 / inputs as f32).sqrt()) };
    let count = outputs * inputs.max(1);
    let values: Vec<f32> = (0..count).map(|_| center + width * (2.0 * random.f32() - 1.0)).collect();
    match inputs {
        0 => Tensor::from_vec(values, outputs, &Device::Cpu),
        _ => Tensor::from_vec(values, (outputs, inputs), &Device::Cpu),
    }
}
