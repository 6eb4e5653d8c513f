//! Products whose outputs are divided among the ranks.

use candle_core::{D, Module, Result, Tensor};
use candle_nn::Linear;
use candle_nn::var_builder::{Shard, ShardedVarBuilder};

use super::load;
use crate::Group;

/// A product with this rank's outputs: rows of `weight`, and the same part of `bias`. `[..., inputs]` becomes
/// `[..., outputs / ranks]`. No collective.
#[derive(Clone, Debug)]
pub struct ColumnParallel(Linear);

impl ColumnParallel {
    /// Loads this rank's part of `weight` and `bias`.
    ///
    /// # Errors
    /// [`InvalidArgument`](symmetra::Error::InvalidArgument), with the weight, the dimension and the world size, if the ranks
    /// do not divide `outputs`; candle's errors for a tensor that is missing or has another shape.
    pub fn load(inputs: usize, outputs: usize, vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
        let shard = group.shard(0);
        let weight = load::part(&vb, "weight", &[outputs, inputs], shard)?;
        Ok(Self(Linear::new(weight, load::bias(&vb, outputs, shard)?)))
    }
}

impl Module for ColumnParallel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// One of the weights that a [`MergedColumnParallel`] holds.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    name: &'a str,
    outputs: usize,
    shard: Option<Shard>,
}

impl<'a> Piece<'a> {
    /// The weight `name.weight` with `outputs` rows, of which each rank has an equal part.
    pub fn new(name: &'a str, outputs: usize) -> Self {
        Self { name, outputs, shard: None }
    }

    /// Loads this part of the rows, for example [`Heads::kv_shard`](super::Heads::kv_shard).
    pub fn part(self, shard: Shard) -> Self {
        Self { shard: Some(shard), ..self }
    }
}

/// Several [`ColumnParallel`] products of one input by one multiplication: q, k and v, or gate and up.
#[derive(Clone, Debug)]
pub struct MergedColumnParallel {
    linear: Linear,
    /// The outputs of each piece on this rank.
    widths: Vec<usize>,
}

impl MergedColumnParallel {
    /// Loads this rank's part of `weight` and `bias` of every piece, below `vb`. Either all pieces have a bias or none has.
    ///
    /// # Errors
    /// The errors of [`ColumnParallel::load`]; candle's errors if no piece is given.
    pub fn load(inputs: usize, pieces: &[Piece<'_>], vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
        let (mut weights, mut biases) = (Vec::new(), Vec::new());
        let has_bias = pieces.iter().any(|piece| vb.pp(piece.name).contains_tensor("bias"));
        for piece in pieces {
            let (vb, shard) = (vb.pp(piece.name), piece.shard.unwrap_or_else(|| group.shard(0)));
            weights.push(load::part(&vb, "weight", &[piece.outputs, inputs], shard)?);
            if has_bias {
                biases.push(load::part(&vb, "bias", &[piece.outputs], shard)?);
            }
        }
        let widths = weights.iter().map(|weight| weight.dim(0)).collect::<Result<_>>()?;
        let bias = has_bias.then(|| Tensor::cat(&biases, 0)).transpose()?;
        Ok(Self { linear: Linear::new(Tensor::cat(&weights, 0)?, bias), widths })
    }

    /// The outputs of each piece, from the outputs of [`forward`](Module::forward).
    ///
    /// # Errors
    /// Candle's errors for a tensor that is no output of this layer.
    pub fn split(&self, outputs: &Tensor) -> Result<Vec<Tensor>> {
        let mut start = 0;
        let piece = |width: &usize| {
            let piece = outputs.narrow(D::Minus1, start, *width);
            start += width;
            piece
        };
        self.widths.iter().map(piece).collect()
    }
}

impl Module for MergedColumnParallel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.linear.forward(x)
    }
}
