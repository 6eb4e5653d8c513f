//! How the ranks of a layer communicate.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::fused;

/// How our library runs a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LayerWay {
    /// GEMMs, and one call that sums, adds the residual and norms all rows on every rank
    AllReduce,
    /// GEMMs, an all-reduce, and a norm of all rows on every rank
    AllReduceApart,
    /// Plans of matmul + all-reduce by the library's choice, and a norm of all rows on every rank
    FusedAllReduce,
    /// GEMMs, and one call that sums and norms the rows of a rank's share; an all-gather before the next GEMM
    Scatter,
    /// GEMMs, and one call that sums, norms the rows of a rank's share and gathers the normed rows
    ScatterGather,
    /// Plans of all-gather + matmul and matmul + reduce-scatter by the library's choice, and a norm of the rank's share
    Fused,
    /// Plans of all-gather + matmul and matmul + reduce-scatter that go part by part, and a norm of the rank's share
    Pipeline,
}

/// All strategies, in their order.
pub(super) const ALL: [LayerWay; 7] = [
    LayerWay::AllReduce,
    LayerWay::AllReduceApart,
    LayerWay::FusedAllReduce,
    LayerWay::Scatter,
    LayerWay::ScatterGather,
    LayerWay::Fused,
    LayerWay::Pipeline,
];

impl LayerWay {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllReduceApart => "all-reduce-apart",
            Self::FusedAllReduce => "fused-all-reduce",
            Self::Scatter => "scatter",
            Self::ScatterGather => "scatter-gather",
            Self::Fused => "fused",
            Self::Pipeline => "pipeline",
        }
    }

    /// Whether each rank has an equal share of the rows.
    pub(super) fn shares(self) -> bool {
        !matches!(self, Self::AllReduce | Self::AllReduceApart | Self::FusedAllReduce)
    }

    /// How the plans of this strategy run, if it has plans.
    pub(super) const fn plans(self) -> Option<fused::Way> {
        match self {
            Self::Fused | Self::FusedAllReduce => Some(fused::Way::Auto),
            Self::Pipeline => Some(fused::Way::Pipeline),
            _ => None,
        }
    }
}

/// How NCCL's collectives and single GEMMs run a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerWay {
    /// An all-reduce after the GEMMs, and a norm of all rows.
    AllReduce,
    /// A reduce-scatter after the GEMMs, a norm of the rank's share, and an all-gather.
    Scatter,
}

impl PeerWay {
    pub(super) const ALL: [Self; 2] = [Self::AllReduce, Self::Scatter];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "nccl",
            Self::Scatter => "nccl-scatter",
        }
    }
}
