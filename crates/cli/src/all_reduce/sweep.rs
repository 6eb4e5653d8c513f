//! The settings of a measurement for every rank, and the samples of a rank.

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, AllReduceOptions, Codec, Dtype, Reduction, Transport};

use crate::exchange::{OperandMemory, SweepArgs};
use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::names::{Mover, by_name};
use harness::ranks::RanksAs;

/// The settings of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sweep {
    pub(super) collective: CollectiveCommand,
    /// The root or the distance, for collectives that have one.
    pub(super) root: usize,
    #[serde(with = "by_name")]
    pub(super) transport: Mover,
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    #[serde(with = "by_name")]
    pub(super) reduction: Reduction,
    #[serde(with = "by_name")]
    pub(super) algorithm: Algorithm,
    #[serde(with = "by_name")]
    pub(super) codec: Codec,
    /// Elements of the larger operand of each message.
    pub(super) sizes_elems: Vec<usize>,
    pub(super) iterations: Option<u32>,
    /// Batches that are not timed.
    pub(super) warmup: u32,
    pub(super) graph: bool,
    pub(super) in_place: bool,
    /// The dimension of a tensor that the operation works along.
    pub(super) along: Option<usize>,
    /// Whether a call is planned once.
    pub(super) bound: bool,
    pub(super) memory: OperandMemory,
    /// Whether the ranks are threads of one process.
    pub(super) one_process: bool,
    pub(super) seed: u64,
}

/// The measurement of one size on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SweepSample {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) algorithm: String,
    /// Time of one operation in each batch.
    pub(super) batches_us: Vec<f64>,
    pub(super) wrong: u64,
    /// Checksum of the result.
    pub(super) checksum: u64,
}

impl Sweep {
    /// An all-reduce without a codec, of sizes in whole multiples of `parts`.
    pub(super) fn new(
        asked: &SweepArgs,
        dtype: Dtype,
        parts: usize,
        ranks_as: RanksAs,
    ) -> Result<Self, CommandFailure> {
        Ok(Self {
            dtype,
            reduction: asked.op,
            sizes_elems: asked.sizes.elems(dtype, parts)?,
            iterations: asked.iterations,
            warmup: asked.warmup,
            graph: asked.graph,
            in_place: asked.in_place,
            memory: asked.memory(),
            one_process: ranks_as == RanksAs::Threads,
            seed: asked.seed.unwrap_or_else(|| fastrand::u64(..)),
            ..Self::probe(Algorithm::Auto)
        })
    }

    /// A fast all-reduce of one size, which shows whether an algorithm works.
    pub(super) fn probe(algorithm: Algorithm) -> Self {
        Self {
            collective: CollectiveCommand::AllReduce,
            root: 0,
            transport: Mover::Kernels(Transport::Auto),
            dtype: Dtype::F32,
            reduction: Reduction::Sum,
            algorithm,
            codec: Codec::None,
            sizes_elems: vec![16 << 10],
            iterations: Some(1),
            warmup: 0,
            graph: false,
            in_place: false,
            along: None,
            bound: false,
            memory: OperandMemory::Symmetric,
            one_process: false,
            seed: fastrand::u64(..),
        }
    }

    pub(super) fn options(&self) -> AllReduceOptions {
        AllReduceOptions::default().reduction(self.reduction).algorithm(self.algorithm).codec(self.codec)
    }

    pub(super) fn largest_bytes(&self) -> usize {
        self.sizes_elems.iter().max().map_or(0, |elems| elems * self.dtype.bytes())
    }
}
