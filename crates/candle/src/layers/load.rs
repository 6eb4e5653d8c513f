//! The part of a weight that belongs to a rank.

use candle_core::{Error, Result, Tensor};
use candle_nn::var_builder::{Shard, ShardedVarBuilder};

use crate::error::{check_divides, invalid};

/// Loads the part `shard` of the tensor `name`, which has the given shape as a whole.
///
/// # Errors
/// [`InvalidArgument`](symmetra::Error::InvalidArgument), with the tensor, the dimension and the number of parts, for a length
/// that cannot be divided; candle's errors for a tensor that is missing or has another shape.
pub(super) fn part(vb: &ShardedVarBuilder, name: &str, shape: &[usize], shard: Shard) -> Result<Tensor> {
    let path = vb.pp(name).prefix();
    let Shard { dim, rank, world_size } = shard;
    let mut expected = shape.to_vec();
    let Some(length) = expected.get_mut(dim).filter(|_| rank < world_size) else {
        return Err(invalid(format!("the part of {path} is {shard:?}, but the tensor has {} dimensions", shape.len())));
    };
    check_divides(format_args!("dimension {dim} of {path}"), *length, world_size)?;
    *length /= world_size;
    let tensor = vb.get_with_hints(shape, name, shard).map_err(|error| error.context(format!("load {path}")))?;
    if tensor.dims() != expected {
        let msg = format!("part {rank} of {world_size} of {path}");
        return Err(Error::UnexpectedShape { msg, expected: expected.into(), got: tensor.shape().clone() }.bt());
    }
    Ok(tensor)
}

/// Loads the part `shard` of the tensor `bias`, if the checkpoint has the tensor.
pub(super) fn bias(vb: &ShardedVarBuilder, outputs: usize, shard: Shard) -> Result<Option<Tensor>> {
    vb.contains_tensor("bias").then(|| part(vb, "bias", &[outputs], shard)).transpose()
}
