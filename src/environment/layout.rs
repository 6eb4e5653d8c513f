//! The ranks of every tensor, pipeline, data and expert parallel group.

use std::fmt;

use crate::error::{Error, Result};

/// A way to divide the work among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Parallelism {
    /// Ranks that share each layer.
    Tensor,
    /// Ranks that hold successive layers.
    Pipeline,
    /// Ranks that hold the same layers and work on different requests.
    Data,
    /// Ranks that share the experts of a pipeline stage: data times tensor.
    Expert,
}

impl Parallelism {
    /// All ways, in the order of a layout's groups.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::Pipeline, Self::Data, Self::Expert];

    /// The field's abbreviation: `tp`, `pp`, `dp`, `ep`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Pipeline => "pp",
            Self::Data => "dp",
            Self::Expert => "ep",
        }
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The layout of a world: external data x data x pipeline x tensor. Tensor varies fastest, so the ranks of a tensor
/// parallel group are neighbours. Ranks beyond data x pipeline x tensor form external data parallelism: independent
/// copies. vLLM and AITER have this layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelLayout {
    world_size: usize,
    tensor: usize,
    pipeline: usize,
    data: usize,
}

/// A rank's position in each dimension.
struct Coordinates {
    external: usize,
    data: usize,
    pipeline: usize,
    tensor: usize,
}

impl ParallelLayout {
    /// A layout of `world_size` ranks. Pure.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which shows the arithmetic, unless all sizes are at least 1 and the world size is a
    /// multiple of their product.
    pub fn new(world_size: usize, tensor: usize, pipeline: usize, data: usize) -> Result<Self> {
        for (what, size) in [
            ("world size", world_size),
            ("tensor_parallel_size", tensor),
            ("pipeline_parallel_size", pipeline),
            ("data_parallel_size", data),
        ] {
            if size == 0 {
                return Err(Error::invalid(what, size, "it must be at least 1"));
            }
        }
        let product = tensor.checked_mul(pipeline).and_then(|product| product.checked_mul(data));
        if product.is_none_or(|product| !world_size.is_multiple_of(product)) {
            let product = product.map_or_else(|| "more than 64 bits".to_owned(), |product| product.to_string());
            let sum = format!("{data} data x {pipeline} pipeline x {tensor} tensor = {product} ranks");
            return Err(Error::invalid("world size", world_size, format!("it must be a multiple of {sum}")));
        }
        Ok(Self { world_size, tensor, pipeline, data })
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// The number of ranks in a group.
    pub fn size(&self, parallelism: Parallelism) -> usize {
        match parallelism {
            Parallelism::Tensor => self.tensor,
            Parallelism::Pipeline => self.pipeline,
            Parallelism::Data => self.data,
            Parallelism::Expert => self.data * self.tensor,
        }
    }

    /// The groups, ordered by their first rank, each with its ranks in order. Every rank is in exactly one group.
    pub fn groups(&self, parallelism: Parallelism) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut numbers: Vec<usize> = Vec::new();
        for rank in 0..self.world_size {
            let number = self.group_number(parallelism, rank);
            match numbers.iter().position(|known| *known == number) {
                Some(group) => groups[group].push(rank),
                None => {
                    numbers.push(number);
                    groups.push(vec![rank]);
                }
            }
        }
        groups
    }

    /// The ranks of the group of `rank`, in order. Empty if `rank` is not in the world.
    pub fn group_of(&self, parallelism: Parallelism, rank: usize) -> Vec<usize> {
        if rank >= self.world_size {
            return Vec::new();
        }
        let number = self.group_number(parallelism, rank);
        (0..self.world_size).filter(|other| self.group_number(parallelism, *other) == number).collect()
    }

    /// A number that exactly the ranks of one group share: the position in all dimensions that the group does not span.
    pub(super) fn group_number(&self, parallelism: Parallelism, rank: usize) -> usize {
        let Coordinates { external, data, pipeline, tensor } = self.place(rank);
        let stage = external * self.pipeline + pipeline;
        match parallelism {
            Parallelism::Tensor => rank / self.tensor,
            Parallelism::Pipeline => (external * self.data + data) * self.tensor + tensor,
            Parallelism::Data => stage * self.tensor + tensor,
            Parallelism::Expert => stage,
        }
    }

    fn place(&self, rank: usize) -> Coordinates {
        let rest = rank / self.tensor;
        let outer = rest / self.pipeline;
        Coordinates {
            tensor: rank % self.tensor,
            pipeline: rest % self.pipeline,
            data: outer % self.data,
            external: outer / self.data,
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/environment/layout.rs"]
mod tests;
