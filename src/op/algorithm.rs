//! The algorithms of an all-reduce.

use super::Op;
use crate::kernel::args;
use crate::settings::named;
use crate::types::{Dtype, Reduction, algorithm_name};

/// An all-reduce algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The choice of the communicator's table.
    #[default]
    Auto,
    /// Every rank sends its input to every other rank, in packets of 8 data bytes and two epochs (the LL protocol of NCCL).
    /// Any type. Lowest latency for the smallest messages.
    OneShotLL,
    /// One-shot in packets of 16 data bytes. A packet that has not arrived is a NaN pattern that is never sent
    /// (Lamport style, as in TensorRT-LLM). Floating types.
    OneShotSentinel,
    /// Reduce-scatter and all-gather in LL packets, both pushed without a barrier. Any type.
    TwoShotLL,
    /// Two-shot in sentinel packets: the NaN pattern of [`OneShotSentinel`](Self::OneShotSentinel). Floating types.
    TwoShotSentinel,
    /// Each rank reads its share of all inputs and writes the sum into all outputs, between two barriers. Symmetric or
    /// registered memory; any type.
    TwoShotZeroCopy,
    /// A reduce-scatter and an all-gather in which every rank passes chunks to the next rank through queues (after Patarasuk
    /// and Yuan, as in NCCL). Results are written directly into the next rank's output if peers can address it. Any type.
    /// Highest bandwidth for the largest messages.
    ///
    /// The message has one chunk a rank. The reduction of chunk c starts at rank c, goes round the ring, and is rounded
    /// at every rank; a partial sum that overflows the type stays infinite. No averages of integers, because partial
    /// sums would wrap.
    Ring,
    /// Each rank exchanges the whole message with partners at distance 1, 2, 4 and so on (Thakur, Rabenseifner and Gropp),
    /// in LL packets. Ranks beyond a power of two fold in and out. Any type.
    ///
    /// Each exchange rounds the sum: first of two neighbours, then of two neighbouring pairs, and so on. No averages of
    /// integers.
    RecursiveDoubling,
    /// Every rank sums all inputs by multicast ([`Config::multicast`](crate::Config::multicast)), after PyTorch's symmetric
    /// memory: one read of each packet from the switch. The input is a symmetric buffer, and the output is another. Sums of
    /// f32, f16, bf16, integers of 32 and 64 bits, and 8-bit floats.
    ///
    /// The bits of floats may differ from rank to rank, so more than two ranks need
    /// [`Determinism::Free`](crate::Determinism::Free).
    ///
    /// 8-bit floats are added in f16, which rounds every addition; other algorithms add them in f32. A partial sum beyond 65504
    /// stays infinite. So [`Determinism::Exact`](crate::Determinism::Exact) refuses them for two ranks too, and the library
    /// never chooses multicast for them. CUDA devices need compute capability 10.0 or 10.3, and a build for the device's own
    /// architecture: 100a or 103a in `SYMMETRA_CUDA_ARCHS`.
    MulticastOneShot,
    /// Every rank sums its share of all inputs by multicast and stores the share in all outputs by multicast (NVLink SHARP,
    /// as in NCCL and PyTorch's symmetric memory), between two barriers. Both operands are symmetric buffers. Sums of the
    /// types of [`MulticastOneShot`](Self::MulticastOneShot).
    ///
    /// All ranks have equal bits. On GPUs the switch decides the order of a sum, so floats over more than two ranks need
    /// [`Determinism::PerRun`](crate::Determinism::PerRun) there. On the host device sums are in rank order.
    MulticastTwoShot,
}

impl Algorithm {
    /// The algorithms that every communicator has, in the order of their numbers, without `Auto` and without the algorithms
    /// of [`MULTICAST`](Self::MULTICAST).
    pub const ALL: [Self; 7] = [
        Self::OneShotLL,
        Self::OneShotSentinel,
        Self::TwoShotLL,
        Self::TwoShotSentinel,
        Self::TwoShotZeroCopy,
        Self::Ring,
        Self::RecursiveDoubling,
    ];

    /// The algorithms that a communicator has where [multicast](crate::Communicator::multicast) is open. Their numbers follow
    /// those of [`ALL`](Self::ALL).
    pub const MULTICAST: [Self; 2] = [Self::MulticastOneShot, Self::MulticastTwoShot];

    /// Every algorithm, `Auto` first, in the order of the numbers that C++ callers use.
    pub fn every() -> impl Iterator<Item = Self> + Clone {
        [Self::Auto].into_iter().chain(Self::ALL).chain(Self::MULTICAST)
    }

    /// Whether the algorithm works by multicast.
    pub(crate) const fn is_multicast(self) -> bool {
        matches!(self, Self::MulticastOneShot | Self::MulticastTwoShot)
    }

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match algorithm_name(self.number()) {
            Some(name) => name,
            None => "auto",
        }
    }

    /// Whether the algorithm supports this type.
    pub const fn carries(self, dtype: Dtype) -> bool {
        match self {
            Self::OneShotSentinel | Self::TwoShotSentinel => dtype.is_float(),
            Self::MulticastOneShot | Self::MulticastTwoShot => {
                let integer = matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64);
                integer || (dtype.is_float() && !matches!(dtype, Dtype::F64))
            }
            _ => true,
        }
    }

    /// Whether peers must be able to address the operands.
    pub const fn needs_reach(self) -> bool {
        matches!(self, Self::TwoShotZeroCopy) || self.is_multicast()
    }

    /// Whether the algorithm has a kernel that both sums and norms, for this operation on rows.
    pub(crate) fn norms(self, op: &Op) -> bool {
        match self {
            Self::OneShotSentinel => !op.scatters_rows(),
            Self::TwoShotSentinel => true,
            Self::TwoShotZeroCopy => op.gathers_rows(),
            _ => false,
        }
    }

    /// Whether results have the bits of a sum in rank order, rounded once, as [`Determinism::Exact`](crate::Determinism::Exact) requires. True for
    /// integers and for two ranks, which have one possible sum. 8-bit floats by multicast are rounded twice.
    pub const fn is_exact(self, dtype: Dtype, world_size: usize) -> bool {
        let in_rank_order = !matches!(self, Self::Ring | Self::RecursiveDoubling) && !self.is_multicast();
        let of_one_sum = if self.is_multicast() && dtype.is_f8() { 1 } else { 2 };
        in_rank_order || !dtype.is_float() || world_size <= of_one_sum
    }

    /// Whether the algorithm supports this reduction of this type. Partial sums of integers wrap, so ring and recursive
    /// doubling support no averages of integers. Multicast supports only sums.
    pub const fn reduces(self, dtype: Dtype, reduction: Reduction) -> bool {
        if self.is_multicast() {
            return matches!(reduction, Reduction::Sum) && self.carries(dtype);
        }
        !matches!(self, Self::Ring | Self::RecursiveDoubling)
            || dtype.is_float()
            || !matches!(reduction, Reduction::Average)
    }

    /// The number in the argument blocks.
    pub(crate) const fn number(self) -> u32 {
        match self {
            // Never reaches a kernel: the selection replaces it.
            Self::Auto => u32::MAX,
            Self::OneShotLL => args::kOneShotLL,
            Self::OneShotSentinel => args::kOneShotSentinel,
            Self::TwoShotLL => args::kTwoShotLL,
            Self::TwoShotSentinel => args::kTwoShotSentinel,
            Self::TwoShotZeroCopy => args::kTwoShotZeroCopy,
            Self::Ring => args::kRing,
            Self::RecursiveDoubling => args::kRecursiveDoubling,
            Self::MulticastOneShot => args::kMulticastOneShot,
            Self::MulticastTwoShot => args::kMulticastTwoShot,
        }
    }
}

named!(Algorithm, "the algorithm", Self::every());
