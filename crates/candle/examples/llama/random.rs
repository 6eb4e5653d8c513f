//! A checkpoint with weights at random, with the names and files of a checkpoint of Llama.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use serde_json::{Value, json};

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// 4 layers of 256, 1024 tokens.
    Tiny,
    /// That of Llama 3.2 1B.
    #[value(name = "1b")]
    OneB,
    /// That of Llama 3.1 8B.
    #[value(name = "8b")]
    EightB,
}

impl Shape {
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

/// Writes the checkpoint: a file a layer and one for the rest, the index, and at last config.json.
pub(crate) fn write(folder: &Path, config: &Value, dtype: DType, seed: u64) -> Result<()> {
    let size = |name: &str| config[name].as_u64().unwrap_or_default() as usize;
    let [hidden, inner, layers, vocabulary] =
        ["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"].map(size);
    let kv = hidden / size("num_attention_heads") * size("num_key_value_heads");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut map = serde_json::Map::new();
    std::fs::create_dir_all(folder)?;
    for file in 0..=layers {
        let weights = match file == layers {
            false => vec![
                ("self_attn.q_proj", hidden, hidden),
                ("self_attn.k_proj", kv, hidden),
                ("self_attn.v_proj", kv, hidden),
                ("self_attn.o_proj", hidden, hidden),
                ("mlp.gate_proj", inner, hidden),
                ("mlp.up_proj", inner, hidden),
                ("mlp.down_proj", hidden, inner),
                ("input_layernorm", hidden, 0),
                ("post_attention_layernorm", hidden, 0),
            ],
            true => {
                vec![
                    ("model.embed_tokens", vocabulary, hidden),
                    ("model.norm", hidden, 0),
                    ("lm_head", vocabulary, hidden),
                ]
            }
        };
        let layer = if file == layers { String::new() } else { format!("model.layers.{file}.") };
        let name = format!("model-{:05}-of-{:05}.safetensors", file + 1, layers + 1);
        let mut tensors = HashMap::new();
        for (weight, outputs, inputs) in weights {
            let weight = format!("{layer}{weight}.weight");
            map.insert(weight.clone(), json!(name));
            tensors.insert(weight, tensor(&mut random, outputs, inputs)?.to_dtype(dtype)?);
        }
        candle_core::safetensors::save(&tensors, folder.join(name))?;
    }
    let index = json!({ "metadata": {}, "weight_map": map });
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string())?;
    // The other processes start when they see this file.
    std::fs::write(folder.join("config.part"), config.to_string())?;
    Ok(std::fs::rename(folder.join("config.part"), folder.join("config.json"))?)
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
