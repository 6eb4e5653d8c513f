//! Layers whose vocabulary is divided among the ranks.

use candle_core::{D, DType, Module, Result, Tensor};
use candle_nn::Linear;
use candle_nn::var_builder::ShardedVarBuilder;

use super::load;
use crate::Group;

/// An embedding: rows of the vocabulary. Tokens of any shape become `[..., hidden]`, equal on all ranks. One all-reduce, to
/// which other ranks contribute zeros. A token outside the vocabulary becomes zeros.
#[derive(Clone, Debug)]
pub struct VocabEmbedding {
    rows: Tensor,
    group: Group,
}

impl VocabEmbedding {
    /// Loads this rank's rows of `weight`, `[vocabulary, hidden]`.
    ///
    /// # Errors
    /// [`InvalidArgument`](symmetra::Error::InvalidArgument), with the weight, the dimension and the world size, if the ranks
    /// do not divide `vocabulary`; candle's errors for a tensor that is missing or has another shape.
    pub fn load(vocabulary: usize, hidden: usize, vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
        let rows = load::part(&vb, "weight", &[vocabulary, hidden], group.shard(0))?;
        Ok(Self { rows, group: group.clone() })
    }
}

impl Module for VocabEmbedding {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let rows = self.rows.dim(0)? as i64;
        let start = rows * self.group.rank() as i64;
        let (ids, mut shape) = (tokens.flatten_all()?.to_dtype(DType::I64)?, tokens.dims().to_vec());
        let own = (ids.ge(start)? * ids.lt(start + rows)?)?;
        let local = (ids.clamp(start, start + rows - 1)? - start as f64)?;
        let found = self.rows.index_select(&local, 0)?;
        let own = own.unsqueeze(1)?.broadcast_as(found.shape())?;
        shape.push(self.rows.dim(1)?);
        self.group.all_reduce(&own.where_cond(&found, &found.zeros_like()?)?)?.reshape(shape)
    }
}

/// The last product: rows of the vocabulary. `[..., hidden]` becomes the logits of all tokens, `[..., vocabulary]`, equal on
/// all ranks. One all-gather.
#[derive(Clone, Debug)]
pub struct Head {
    linear: Linear,
    group: Group,
}

impl Head {
    /// Loads this rank's rows of `weight`, `[vocabulary, hidden]`, and the same part of `bias`.
    ///
    /// # Errors
    /// [`InvalidArgument`](symmetra::Error::InvalidArgument), with the weight, the dimension and the world size, if the ranks
    /// do not divide `vocabulary`; candle's errors for a tensor that is missing or has another shape.
    pub fn load(hidden: usize, vocabulary: usize, vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
        let shard = group.shard(0);
        let weight = load::part(&vb, "weight", &[vocabulary, hidden], shard)?;
        Ok(Self { linear: Linear::new(weight, load::bias(&vb, vocabulary, shard)?), group: group.clone() })
    }

    /// The head of a checkpoint with tied weights: the rows of the embedding.
    pub fn tied(embedding: &VocabEmbedding) -> Self {
        Self { linear: Linear::new(embedding.rows.clone(), None), group: embedding.group.clone() }
    }
}

impl Module for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.group.all_gather(&self.linear.forward(x)?, D::Minus1)
    }
}
