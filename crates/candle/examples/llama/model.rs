//! Llama 2 and 3, tensor parallel: the layers of a decoder over `symmetra_candle::layers`.

use candle_core::{D, DType, Device, Error, Module, Result, Tensor};
use candle_nn::ops::rms_norm;
use candle_nn::rotary_emb::rope;
use candle_nn::var_builder::ShardedVarBuilder;
use candle_transformers::models::llama::{Config, Llama3RopeConfig, Llama3RopeType};
use symmetra_candle::Group;
use symmetra_candle::layers::{Head, Heads, MergedColumnParallel, Piece, RowParallel, RowParallelNorm, VocabEmbedding};

/// How the norm after a sum runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ModelNorm {
    /// Sum, residual and norm by one kernel.
    Fused,
    /// All-reduce, then candle's addition and norm.
    Apart,
}

/// The end of one half of a block: a product and its sum, the residual, and the next norm.
enum HalfEnd {
    Fused(RowParallelNorm),
    Apart { product: RowParallel, weight: Tensor, epsilon: f32 },
}

impl HalfEnd {
    fn new(product: RowParallel, weight: Tensor, epsilon: f32, norm: ModelNorm) -> Self {
        match norm {
            ModelNorm::Fused => Self::Fused(RowParallelNorm::new(product, weight, epsilon)),
            ModelNorm::Apart => Self::Apart { product, weight, epsilon },
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

/// The sequences that a model has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Sequences at a time.
    pub(crate) batch: usize,
    /// Tokens of a sequence.
    pub(crate) length: usize,
}

/// The values of a step that all blocks use.
struct ModelStep {
    cos: Tensor,
    sin: Tensor,
    /// The row of the cache for each new element, as the indices of a scatter.
    rows: Tensor,
    /// Added to the scores: 0 for positions up to the token's, else the lowest number. `[length, room]`.
    mask: Tensor,
}

/// One block, with its cache of keys and values: `[batch, heads, room, width]`.
struct DecoderBlock {
    qkv: MergedColumnParallel,
    output: HalfEnd,
    gate_up: MergedColumnParallel,
    down: HalfEnd,
    keys: Tensor,
    values: Tensor,
}

impl DecoderBlock {
    fn attention(&self, x: &Tensor, step: &ModelStep, heads: Heads) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let parts = self.qkv.split(&self.qkv.forward(x)?)?;
        let by_head =
            |part: &Tensor, heads: usize| part.reshape((batch, length, heads, ()))?.transpose(1, 2)?.contiguous();
        let q = rope(&by_head(&parts[0], heads.heads)?, &step.cos, &step.sin)?;
        let k = rope(&by_head(&parts[1], heads.kv_heads)?, &step.cos, &step.sin)?;
        self.keys.scatter_set(&step.rows, &k, 2)?;
        self.values.scatter_set(&step.rows, &by_head(&parts[2], heads.kv_heads)?, 2)?;
        // The heads of q that share a head of k and v are rows of one product.
        let (copies, width, room) = (heads.heads / heads.kv_heads, q.dim(D::Minus1)?, self.keys.dim(2)?);
        let shared = (batch, heads.kv_heads, copies * length, width);
        let [k, v] = [&self.keys, &self.values].map(|cached| cached.to_dtype(DType::F32));
        let scores = q.to_dtype(DType::F32)?.reshape(shared)?.matmul(&k?.t()?)?;
        let scores = (scores / (width as f64).sqrt())?.reshape((batch, heads.kv_heads, copies, length, room))?;
        let weights = candle_nn::ops::softmax_last_dim(&scores.broadcast_add(&step.mask)?)?;
        let mixed = weights.reshape((batch, heads.kv_heads, copies * length, room))?.matmul(&v?)?;
        let mixed = mixed.to_dtype(x.dtype())?.reshape((batch, heads.heads, length, width))?;
        mixed.transpose(1, 2)?.reshape((batch, length, ()))
    }

    /// The normed rows and the residual for the next block.
    fn forward(&self, x: &Tensor, residual: &Tensor, step: &ModelStep, heads: Heads) -> Result<(Tensor, Tensor)> {
        let attention = self.attention(x, step, heads)?;
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
    blocks: Vec<DecoderBlock>,
    head: Head,
    heads: Heads,
    rotary: Rotary,
    epsilon: f32,
    norm: ModelNorm,
    /// The numbers of the rows of the cache.
    slots: Tensor,
    room: Room,
    group: Group,
}

impl Llama {
    /// Loads this rank's part of a checkpoint, and makes the caches.
    pub(crate) fn load(
        vb: &ShardedVarBuilder,
        config: &Config,
        norm: ModelNorm,
        room: Room,
        group: &Group,
    ) -> Result<Self> {
        let (hidden, inner, epsilon) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps as f32);
        let heads = Heads::divide(config.num_attention_heads, config.num_key_value_heads, group)?;
        let kv_outputs = hidden / config.num_attention_heads * config.num_key_value_heads;
        let cache = (room.batch, heads.kv_heads, room.length, hidden / config.num_attention_heads);
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
            Ok(DecoderBlock {
                qkv: MergedColumnParallel::load(hidden, &qkv, attention, group)?,
                output: HalfEnd::new(output, after, epsilon, norm),
                gate_up: MergedColumnParallel::load(hidden, &gate_up, mlp, group)?,
                down: HalfEnd::new(down, next.get(hidden, "weight")?, epsilon, norm),
                keys: Tensor::zeros(cache, vb.dtype(), group.device())?,
                values: Tensor::zeros(cache, vb.dtype(), group.device())?,
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
            slots: Tensor::arange(0, room.length as u32, group.device())?,
            group: group.clone(),
            room,
            embedding,
            head,
            heads,
            epsilon,
            norm,
        })
    }

    /// The logits after the last token of each sequence, f32 `[batch, vocabulary]`. `tokens` is `[batch, length]` of u32, and
    /// `positions` has the place of each token in its sequence, u32 `[length]`. No value is read on the host, so that a graph
    /// can hold the call.
    pub(crate) fn forward(&self, tokens: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let step = self.step(positions)?;
        let residual = self.embedding.forward(tokens)?;
        let mut rows = (rms_norm(&residual, &self.first_norm, self.epsilon)?, residual);
        for block in &self.blocks {
            rows = block.forward(&rows.0, &rows.1, &step, self.heads)?;
        }
        let last = rows.0.narrow(1, tokens.dim(1)? - 1, 1)?.contiguous()?;
        self.head.forward(&last)?.squeeze(1)?.to_dtype(DType::F32)
    }

    fn step(&self, positions: &Tensor) -> Result<ModelStep> {
        let length = positions.dim(0)?;
        let cos = self.rotary.cos.index_select(positions, 0)?;
        let sin = self.rotary.sin.index_select(positions, 0)?;
        let rows = positions.reshape((1, 1, length, 1))?;
        let rows = rows.broadcast_as((self.room.batch, self.heads.kv_heads, length, 2 * cos.dim(1)?))?.contiguous()?;
        let later = positions.unsqueeze(1)?.broadcast_lt(&self.slots.unsqueeze(0)?)?;
        let mask = (later.to_dtype(DType::F32)? * f64::from(f32::MIN))?;
        Ok(ModelStep { cos, sin, rows, mask })
    }

    /// The logits after the last of these tokens, the same in all sequences. The first is number `position` of its sequence.
    pub(crate) fn logits(&self, tokens: &[u32], position: usize) -> Result<Tensor> {
        self.check_room(position, tokens.len())?;
        let (device, position) = (self.group.device(), position as u32);
        let positions = Tensor::arange(position, position + tokens.len() as u32, device)?;
        self.forward(&Tensor::new(tokens, device)?.unsqueeze(0)?.repeat((self.room.batch, 1))?, &positions)
    }

    /// Refuses tokens from number `position` of a sequence on for which the caches have no room.
    pub(crate) fn check_room(&self, position: usize, tokens: usize) -> Result<()> {
        match position + tokens <= self.room.length {
            true => Ok(()),
            false => Err(Error::msg(format!(
                "the end of the tokens is {}, but a sequence has room for {}",
                position + tokens,
                self.room.length
            ))),
        }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// The collectives of a step of one token alone, without its products.
    pub(crate) fn collectives(&self) -> Result<()> {
        let row = self.first_norm.zeros_like()?.reshape((1, 1, ()))?.repeat((self.room.batch, 1, 1))?;
        self.group.all_reduce(&row)?;
        for _ in 0..2 * self.blocks.len() {
            match self.norm {
                ModelNorm::Fused => {
                    self.group.all_reduce_norm(&row, Some(&row), &self.first_norm, self.epsilon)?;
                }
                ModelNorm::Apart => drop(self.group.all_reduce(&row)?),
            }
        }
        self.head.forward(&row).map(drop)
    }
}

/// Greedy tokens after a prompt: at most `steps`, up to the first for which `ends` is true. `each` gets the logits and the
/// token of every step, of the first sequence.
pub(crate) fn decode(
    model: &Llama,
    prompt: &[u32],
    steps: usize,
    ends: impl Fn(u32) -> bool,
    mut each: impl FnMut(&Tensor, u32) -> Result<()>,
) -> Result<Vec<u32>> {
    let (mut tokens, mut position) = (prompt.to_vec(), 0);
    while tokens.len() < prompt.len() + steps {
        let logits = model.logits(&tokens[position..], position)?.get(0)?;
        position = tokens.len();
        let token = logits.argmax(0)?.to_scalar::<u32>()?;
        model.group.check()?;
        each(&logits, token)?;
        tokens.push(token);
        if ends(token) {
            break;
        }
    }
    Ok(tokens.split_off(prompt.len()))
}
