//! The attention heads of a rank.

use candle_core::Result;
use candle_nn::var_builder::Shard;

use crate::Group;
use crate::error::{check_divides, invalid};

/// The attention heads of this rank. Where there are fewer heads of k and v than ranks, several ranks have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heads {
    /// Heads of q.
    pub heads: usize,
    /// Heads of k and v, at least 1.
    pub kv_heads: usize,
    /// The part of the weights of k and v with these heads, for [`Piece::part`](super::Piece::part).
    pub kv_shard: Shard,
}

impl Heads {
    /// Divides the heads of a model among the ranks: each has consecutive heads of q, and their heads of k and v.
    ///
    /// # Errors
    /// [`InvalidArgument`](symmetra::Error::InvalidArgument), with both numbers, if the ranks do not divide `heads`, if
    /// `kv_heads` do not divide `heads`, or if of `kv_heads` and the world size neither divides the other.
    pub fn divide(heads: usize, kv_heads: usize, group: &Group) -> Result<Self> {
        let ranks = group.world_size();
        check_divides("the number of heads", heads, ranks)?;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(invalid(format!(
                "the number of k and v heads is {kv_heads}, but it must divide the {heads} heads"
            )));
        }
        // The number of parts into which the heads of k and v are cut; several ranks have the same part.
        let parts = kv_heads.min(ranks);
        if !kv_heads.is_multiple_of(parts) || !ranks.is_multiple_of(parts) {
            let limit = format!("it must divide the world size {ranks}, or the world size must divide it");
            return Err(invalid(format!("the number of k and v heads is {kv_heads}, but {limit}")));
        }
        let kv_shard = Shard { dim: 0, rank: group.rank() / (ranks / parts), world_size: parts };
        Ok(Self { heads: heads / ranks, kv_heads: kv_heads / parts, kv_shard })
    }
}
