//! The layers whose GEMMs are measured, and one rank's share of a layer.

use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;

/// The collective that is fused with a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fusion {
    /// All-gather of the left factor's rows, then the product
    AllGather,
    /// The product, then reduce-scatter of the result's rows
    ReduceScatter,
    /// The product, then all-reduce of the result
    AllReduce,
}

impl Fusion {
    pub(super) fn collective(self) -> CollectiveCommand {
        match self {
            Self::AllGather => CollectiveCommand::AllGather,
            Self::ReduceScatter => CollectiveCommand::ReduceScatter,
            Self::AllReduce => CollectiveCommand::AllReduce,
        }
    }

    /// Whether the ranks have parts of K, and sum their products. Else they have parts of N.
    pub(super) fn sums(self) -> bool {
        self != Self::AllGather
    }
}

/// A model whose weights have known sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Model {
    #[value(name = "llama3-70b")]
    Llama370b,
}

impl Model {
    /// The weights next to a collective of tensor parallelism: name, K and N of all ranks together.
    fn weights(self, fusion: Fusion) -> [(&'static str, usize, usize); 2] {
        match (self, fusion) {
            (Self::Llama370b, Fusion::AllGather) => [("qkv", 8192, 10_240), ("gate_up", 8192, 57_344)],
            (Self::Llama370b, _) => [("o", 8192, 8192), ("down", 28_672, 8192)],
        }
    }
}

/// The sizes of a product on all ranks together: M, K and N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GemmSizes(pub(super) [usize; 3]);

impl FromStr for GemmSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = text.split(',').map(|size| size.trim().parse()).collect();
        match numbers.ok().and_then(|sizes| <[usize; 3]>::try_from(sizes).ok()) {
            Some(sizes) if sizes.iter().all(|size| (1..=MOST).contains(size)) => Ok(Self(sizes)),
            _ => Err(format!("M,K,N are three numbers of 1 to {MOST}")),
        }
    }
}

/// Largest M, K and N.
pub(super) const MOST: usize = 1 << 20;

/// The GEMM of each rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GemmLayer {
    pub(super) name: String,
    /// Rows of the whole left factor, M.
    pub(super) tokens: usize,
    /// K of the product of a rank.
    pub(super) inner: usize,
    /// N of the product of a rank.
    pub(super) columns: usize,
}

impl GemmLayer {
    /// A rank's share of a product of these sizes.
    pub(super) fn of(
        name: &str,
        GemmSizes(sizes): GemmSizes,
        fusion: Fusion,
        ranks: usize,
    ) -> Result<Self, CommandFailure> {
        let [tokens, inner, columns] = sizes;
        let (what, cut) = if fusion.sums() { ("K", inner) } else { ("N", columns) };
        if !cut.is_multiple_of(ranks) {
            return Err(CommandFailure::usage(format!(
                "{what} of {name} is {cut}, which {ranks} ranks cannot share equally"
            )));
        }
        let [inner, columns] = if fusion.sums() { [inner / ranks, columns] } else { [inner, columns / ranks] };
        Ok(Self { name: name.to_owned(), tokens, inner, columns })
    }

    /// The layers of a model.
    pub(super) fn of_model(
        model: Model,
        tokens: &[usize],
        fusion: Fusion,
        ranks: usize,
    ) -> Result<Vec<Self>, CommandFailure> {
        let weights = model.weights(fusion).into_iter();
        let layers = weights.flat_map(|(name, inner, columns)| {
            tokens.iter().map(move |tokens| Self::of(name, GemmSizes([*tokens, inner, columns]), fusion, ranks))
        });
        layers.collect()
    }

    /// How many rows each rank has of a matrix whose rows the ranks share: the first ranks have one more where there is
    /// a remainder.
    pub(super) fn shares(&self, ranks: usize) -> Vec<usize> {
        (0..ranks).map(|rank| self.tokens / ranks + usize::from(rank < self.tokens % ranks)).collect()
    }

    /// Elements of the matrix that the collective moves: the whole left factor, or the product of a rank.
    pub(super) fn moved_elems(&self, fusion: Fusion) -> usize {
        self.tokens * if fusion.sums() { self.columns } else { self.inner }
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/matmul_layers.rs"]
mod tests;
