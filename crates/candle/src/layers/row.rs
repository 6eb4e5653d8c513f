//! Products whose inputs are divided among the ranks.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use candle_nn::var_builder::{Shard, ShardedVarBuilder};

use super::load;
use crate::Group;

/// A product with this rank's inputs, and its sum over all ranks: columns of `weight`, and the whole `bias`.
/// `[..., inputs / ranks]` becomes `[..., outputs]`, equal on all ranks. One all-reduce.
#[derive(Clone, Debug)]
pub struct RowParallel {
    linear: Linear,
    /// Added once, after the sum.
    bias: Option<Tensor>,
    group: Group,
}

impl RowParallel {
    /// Loads this rank's part of `weight`, and `bias`.
    ///
    /// # Errors
    /// [`InvalidArgument`](symmetra::Error::InvalidArgument), with the weight, the dimension and the world size, if the ranks
    /// do not divide `inputs`; candle's errors for a tensor that is missing or has another shape.
    pub fn load(inputs: usize, outputs: usize, vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
        let weight = load::part(&vb, "weight", &[outputs, inputs], group.shard(1))?;
        let bias = load::bias(&vb, outputs, Shard::default())?;
        Ok(Self { linear: Linear::new(weight, None), bias, group: group.clone() })
    }
}

impl Module for RowParallel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let sum = self.group.all_reduce(&self.linear.forward(x)?)?;
        match &self.bias {
            Some(bias) => sum.broadcast_add(bias),
            None => Ok(sum),
        }
    }
}

/// A [`RowParallel`] product, the residual and the next norm, by one kernel: see [`Group::all_reduce_norm`].
#[derive(Clone, Debug)]
pub struct RowParallelNorm {
    linear: Linear,
    weight: Tensor,
    epsilon: f32,
    group: Group,
}

impl RowParallelNorm {
    /// The product, followed by an RMSNorm with this weight, `[outputs]`. Rank 0 adds the bias to its part of the sum.
    pub fn new(product: RowParallel, weight: Tensor, epsilon: f32) -> Self {
        let RowParallel { linear, bias, group } = product;
        let bias = bias.filter(|_| group.rank() == 0);
        Self { linear: Linear::new(linear.weight().clone(), bias), weight, epsilon, group }
    }

    /// The normed rows, and the rows before the norm: the sum of the product and the residual, if there is one.
    ///
    /// # Errors
    /// The errors of [`Group::all_reduce_norm`].
    pub fn forward(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.group.all_reduce_norm(&self.linear.forward(x)?, residual, &self.weight, self.epsilon)
    }
}
