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
pub struct Layout {
    world_size: usize,
    tensor: usize,
    pipeline: usize,
    data: usize,
}

/// A rank's position in each dimension.
struct Place {
    external: usize,
    data: usize,
    pipeline: usize,
    tensor: usize,
}

impl Layout {
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
        let Place { external, data, pipeline, tensor } = self.place(rank);
        let stage = external * self.pipeline + pipeline;
        match parallelism {
            Parallelism::Tensor => rank / self.tensor,
            Parallelism::Pipeline => (external * self.data + data) * self.tensor + tensor,
            Parallelism::Data => stage * self.tensor + tensor,
            Parallelism::Expert => stage,
        }
    }

    fn place(&self, rank: usize) -> Place {
        let rest = rank / self.tensor;
        let outer = rest / self.pipeline;
        Place {
            tensor: rank % self.tensor,
            pipeline: rest % self.pipeline,
            data: outer % self.data,
            external: outer / self.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sixteen_ranks_as_the_guides_draw_them() {
        let layout = Layout::new(16, 4, 2, 2).unwrap();
        let groups = |parallelism| layout.groups(parallelism);
        assert_eq!(groups(Parallelism::Tensor)[1], [4, 5, 6, 7]);
        assert_eq!(groups(Parallelism::Pipeline)[..2], [vec![0, 4], vec![1, 5]]);
        assert_eq!(groups(Parallelism::Pipeline)[7], [11, 15]);
        assert_eq!(groups(Parallelism::Data), (0..8).map(|rank| vec![rank, rank + 8]).collect::<Vec<_>>());
        let experts = [vec![0, 1, 2, 3, 8, 9, 10, 11], vec![4, 5, 6, 7, 12, 13, 14, 15]];
        assert_eq!(groups(Parallelism::Expert), experts);
    }

    /// The rule by another road: nested loops over the dimensions.
    fn by_loops(world: usize, sizes: [usize; 3], parallelism: Parallelism) -> Vec<Vec<usize>> {
        let [tensor, pipeline, data] = sizes;
        let external = world / (tensor * pipeline * data);
        let rank = |e: usize, d: usize, p: usize, t: usize| t + tensor * (p + pipeline * (d + data * e));
        let mut groups = Vec::new();
        for e in 0..external {
            match parallelism {
                Parallelism::Tensor => {
                    for d in 0..data {
                        for p in 0..pipeline {
                            groups.push((0..tensor).map(|t| rank(e, d, p, t)).collect());
                        }
                    }
                }
                Parallelism::Pipeline => {
                    for d in 0..data {
                        for t in 0..tensor {
                            groups.push((0..pipeline).map(|p| rank(e, d, p, t)).collect());
                        }
                    }
                }
                Parallelism::Data => {
                    for p in 0..pipeline {
                        for t in 0..tensor {
                            groups.push((0..data).map(|d| rank(e, d, p, t)).collect());
                        }
                    }
                }
                Parallelism::Expert => {
                    for p in 0..pipeline {
                        let ranks = (0..data).flat_map(|d| (0..tensor).map(move |t| (d, t)));
                        groups.push(ranks.map(|(d, t)| rank(e, d, p, t)).collect());
                    }
                }
            }
        }
        groups.sort();
        groups
    }

    proptest! {
        #[test]
        fn groups_follow_the_rule(tensor in 1usize..=4, pipeline in 1usize..=4, data in 1usize..=4, external in 1usize..=2) {
            let world = tensor * pipeline * data * external;
            let layout = Layout::new(world, tensor, pipeline, data).unwrap();
            for parallelism in Parallelism::ALL {
                let mut groups = layout.groups(parallelism);
                for group in &groups {
                    prop_assert_eq!(group.len(), layout.size(parallelism));
                    for rank in group {
                        prop_assert_eq!(&layout.group_of(parallelism, *rank), group);
                    }
                }
                groups.sort();
                prop_assert_eq!(groups, by_loops(world, [tensor, pipeline, data], parallelism));
            }
        }
    }

    #[test]
    fn impossible_products_show_the_arithmetic() {
        let message = Layout::new(8, 4, 2, 2).unwrap_err().to_string();
        assert!(message.contains("8") && message.contains("2 data x 2 pipeline x 4 tensor = 16 ranks"), "{message}");
        assert!(Layout::new(8, 3, 1, 1).is_err());
        assert!(Layout::new(8, 0, 1, 1).unwrap_err().to_string().contains("tensor_parallel_size is 0"));
        assert!(Layout::new(8, usize::MAX, 2, 1).unwrap_err().to_string().contains("64 bits"));
        assert_eq!(Layout::new(8, 8, 1, 1).unwrap().group_of(Parallelism::Tensor, 8), [0usize; 0]);
    }
}
