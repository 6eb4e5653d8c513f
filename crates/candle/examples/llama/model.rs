//! Llama 2 and 3, tensor parallel: the layers of a decoder over `symmetra_candle::layers`.

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::ops::rms_norm;
use candle_nn::rotary_emb::rope;
use candle_nn::var_builder::ShardedVarBuilder;
use candle_transformers::models::llama::{Config, Llama3RopeConfig, Llama3RopeType};
use candle_transformers::utils::{build_causal_mask, repeat_kv};
use symmetra_candle::Group;
use symmetra_candle::layers::{Head, Heads, MergedColumnParallel, Piece, RowParallel, RowParallelNorm, VocabEmbedding};

/// How the norm after a sum runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Norm {
    /// Sum, residual and norm by one kernel.
    Fused,
    /// All-reduce, then candle's addition and norm.
    Apart,
}

/// The end of one half of a block: a product and its sum, the residual, and the next norm.
enum End {
    Fused(RowParallelNorm),
    Apart { product: RowParallel, weight: Tensor, epsilon: f32 },
}

impl End {
    fn new(product: RowParallel, weight: Tensor, epsilon: f32, norm: Norm) -> Self {
        match norm {
            Norm::Fused => Self::Fused(RowParallelNorm::new(product, weight, epsilon)),
            Norm::Apart => Self::Apart { product, weight, epsilon },
        }
    }

    /// The normed rows, and the residual of the next end.
    fn forward(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        match self {
            Self::Fused(product) => product.forward(x, Some(residual)),
            Self::Apart { product, weight, epsilon } => {
                let sum = (product.forward(x)? + residual)?;
                Ok((rms_norm(&sum, weight, *epsilon)?, sum))
            }
        }
    }
}

/// One block, with its cache of keys and values.
struct Block {
    qkv: MergedColumnParallel,
    output: End,
    gate_up: MergedColumnParallel,
    down: End,
    cache: Option<(Tensor, Tensor)>,
}

impl Block {
    fn attention(&mut self, x: &Tensor, position: usize, heads: Heads, rotary: &Rotary) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let parts = self.qkv.split(&self.qkv.forward(x)?)?;
        let by_head =
            |part: &Tensor, heads: usize| part.reshape((batch, length, heads, ()))?.transpose(1, 2)?.contiguous();
        let q = rotary.turn(&by_head(&parts[0], heads.heads)?, position)?;
        let mut k = rotary.turn(&by_head(&parts[1], heads.kv_heads)?, position)?;
        let mut v = by_head(&parts[2], heads.kv_heads)?;
        if let Some((keys, values)) = &self.cache {
            k = Tensor::cat(&[keys, &k], 2)?;
            v = Tensor::cat(&[values, &v], 2)?;
        }
        self.cache = Some((k.clone(), v.clone()));
        let copies = heads.heads / heads.kv_heads;
        let [k, v] = [k, v].map(|heads| repeat_kv(heads, copies)?.to_dtype(DType::F32));
        let scores = (q.to_dtype(DType::F32)?.matmul(&k?.t()?)? / (q.dim(D::Minus1)? as f64).sqrt())?;
        let scores = if length == 1 {
            scores
        } else {
            let mask = build_causal_mask(length, position, x.device())?.broadcast_as(scores.shape())?;
            mask.where_cond(&Tensor::new(f32::NEG_INFINITY, x.device())?.broadcast_as(scores.shape())?, &scores)?
        };
        let mixed = candle_nn::ops::softmax_last_dim(&scores)?.matmul(&v?)?.to_dtype(x.dtype())?;
        mixed.transpose(1, 2)?.reshape((batch, length, ()))
    }

    /// The normed rows and the residual for the next block.
    fn forward(
        &mut self,
        x: &Tensor,
        residual: &Tensor,
        position: usize,
        heads: Heads,
        rotary: &Rotary,
    ) -> Result<(Tensor, Tensor)> {
        let attention = self.attention(x, position, heads, rotary)?;
        let (x, residual) = self.output.forward(&attention, residual)?;
        let parts = self.gate_up.split(&self.gate_up.forward(&x)?)?;
        self.down.forward(&(parts[0].silu()? * &parts[1])?, &residual)
    }
}

/// The rotations of all positions.
struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    fn new(config: &Config, dtype: DType, device: &Device) -> Result<Self> {
        let width = config.hidden_size / config.num_attention_heads;
        let frequency = |at: usize| 1.0 / config.rope_theta.powf(at as f32 / width as f32);
        let frequencies = (0..width).step_by(2).map(frequency);
        let frequencies: Vec<f32> = match &config.rope_scaling {
            Some(scaling) if matches!(scaling.rope_type, Llama3RopeType::Llama3) => {
                frequencies.map(|frequency| scaled(frequency, scaling)).collect()
            }
            _ => frequencies.collect(),
        };
        let positions = Tensor::arange(0, config.max_position_embeddings as u32, device)?.to_dtype(DType::F32)?;
        let angles = positions.unsqueeze(1)?.matmul(&Tensor::new(frequencies, device)?.unsqueeze(0)?)?;
        Ok(Self { cos: angles.cos()?.to_dtype(dtype)?, sin: angles.sin()?.to_dtype(dtype)? })
    }

    fn turn(&self, heads: &Tensor, position: usize) -> Result<Tensor> {
        let length = heads.dim(2)?;
        rope(heads, &self.cos.narrow(0, position, length)?, &self.sin.narrow(0, position, length)?)
    }
}

/// A frequency of Llama 3.1 and later: low frequencies are divided by the factor, high ones are kept.
fn scaled(frequency: f32, scaling: &Llama3RopeConfig) -> f32 {
    let turns = scaling.original_max_position_embeddings as f32 * frequency / (2.0 * std::f32::consts::PI);
    let [low, high] = [scaling.low_freq_factor, scaling.high_freq_factor];
    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
    (1.0 - kept) * frequency / scaling.factor + kept * frequency
}

/// The model of one rank.
pub(crate) struct Llama {
    embedding: VocabEmbedding,
    first_norm: Tensor,
    blocks: Vec<Block>,
    head: Head,
    heads: Heads,
    rotary: Rotary,
    epsilon: f32,
    norm: Norm,
    group: Group,
}

impl Llama {
    /// Loads this rank's part of a checkpoint.
    pub(crate) fn load(vb: &ShardedVarBuilder, config: &Config, norm: Norm, group: &Group) -> Result<Self> {
        let (hidden, inner, epsilon) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps as f32);
        let heads = Heads::divide(config.num_attention_heads, config.num_key_value_heads, group)?;
        let kv_outputs = hidden / config.num_attention_heads * config.num_key_value_heads;
        let model = vb.pp("model");
        let layer = |number: usize| model.pp("layers").pp(number);
        let block = |number: usize| {
            let (attention, mlp) = (layer(number).pp("self_attn"), layer(number).pp("mlp"));
            let kv = |name| Piece::new(name, kv_outputs).part(heads.kv_shard);
            let qkv = [Piece::new("q_proj", hidden), kv("k_proj"), kv("v_proj")];
            let gate_up = ["gate_proj", "up_proj"].map(|name| Piece::new(name, inner));
            let next = match number + 1 == config.num_hidden_layers {
                true => model.pp("norm"),
                false => layer(number + 1).pp("input_layernorm"),
            };
            let after = layer(number).pp("post_attention_layernorm").get(hidden, "weight")?;
            let output = RowParallel::load(hidden, hidden, attention.pp("o_proj"), group)?;
            let down = RowParallel::load(inner, hidden, mlp.pp("down_proj"), group)?;
            Ok(Block {
                qkv: MergedColumnParallel::load(hidden, &qkv, attention, group)?,
                output: End::new(output, after, epsilon, norm),
                gate_up: MergedColumnParallel::load(hidden, &gate_up, mlp, group)?,
                down: End::new(down, next.get(hidden, "weight")?, epsilon, norm),
                cache: None,
            })
        };
        let embedding = VocabEmbedding::load(config.vocab_size, hidden, model.pp("embed_tokens"), group)?;
        let head = match config.tie_word_embeddings {
            true => Head::tied(&embedding),
            false => Head::load(hidden, config.vocab_size, vb.pp("lm_head"), group)?,
        };
        Ok(Self {
            first_norm: layer(0).pp("input_layernorm").get(hidden, "weight")?,
            blocks: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            rotary: Rotary::new(config, vb.dtype(), group.device())?,
            group: group.clone(),
            embedding,
            head,
            heads,
            epsilon,
            norm,
        })
    }

    /// The logits after the last of these tokens, f32 `[vocabulary]`. The first of them is number `position` of its sequence.
    pub(crate) fn forward(&mut self, tokens: &[u32], position: usize) -> Result<Tensor> {
        let residual = self.embedding.forward(&Tensor::new(tokens, self.group.device())?.unsqueeze(0)?)?;
        let mut rows = (rms_norm(&residual, &self.first_norm, self.epsilon)?, residual);
        for block in &mut self.blocks {
            rows = block.forward(&rows.0, &rows.1, position, self.heads, &self.rotary)?;
        }
        let x = rows.0;
        self.head.forward(&x.i((.., tokens.len() - 1..))?.contiguous()?)?.flatten_all()?.to_dtype(DType::F32)
    }

    /// The collectives of a step of one token alone, without its products.
    pub(crate) fn collectives(&self) -> Result<()> {
        let row = self.first_norm.zeros_like()?.reshape((1, 1, ()))?;
        self.group.all_reduce(&row)?;
        for _ in 0..2 * self.blocks.len() {
            match self.norm {
                Norm::Fused => {
                    self.group.all_reduce_norm(&row, Some(&row), &self.first_norm, self.epsilon)?;
                }
                Norm::Apart => drop(self.group.all_reduce(&row)?),
            }
        }
        self.head.forward(&row).map(drop)
    }
}

/// Greedy tokens after a prompt: at most `steps`, up to the first for which `ends` is true. `each` gets the logits and the
/// token of every step.
pub(crate) fn decode(
    model: &mut Llama,
    prompt: &[u32],
    steps: usize,
    ends: impl Fn(u32) -> bool,
    mut each: impl FnMut(&Tensor, u32) -> Result<()>,
) -> Result<Vec<u32>> {
    let (mut tokens, mut position) = (prompt.to_vec(), 0);
    while tokens.len() < prompt.len() + steps {
        let logits = model.forward(&tokens[position..], position)?;
        position = tokens.len();
        let token = logits.argmax(0)?.to_scalar::<u32>()?;
        each(&logits, token)?;
        tokens.push(token);
        if ends(token) {
            break;
        }
    }
    Ok(tokens.split_off(prompt.len()))
}
