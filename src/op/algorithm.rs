//! The algorithms of an all-reduce, and what a caller may choose.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kernel::args;
use crate::types::{Dtype, Reduction, algorithm_name};

/// What an all-reduce computes, and how. Made of a [`Reduction`] or an [`Algorithm`] where the other is
/// the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllReduceOptions {
    /// What becomes of the values of all ranks.
    pub reduction: Reduction,
    /// Which way they take.
    pub algorithm: Algorithm,
}

impl From<Reduction> for AllReduceOptions {
    fn from(reduction: Reduction) -> Self {
        Self { reduction, algorithm: Algorithm::Auto }
    }
}

impl From<Algorithm> for AllReduceOptions {
    fn from(algorithm: Algorithm) -> Self {
        Self { reduction: Reduction::Sum, algorithm }
    }
}

/// An all-reduce algorithm, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The table's choice.
    #[default]
    Auto,
    /// Everyone sends everything to everyone, 8 data bytes and two epochs a packet (the LL
    /// protocol of NCCL). Any type. Lowest latency for the smallest messages.
    OneShotLL,
    /// The same with 16 data bytes a packet; a packet that has not arrived is a NaN pattern no
    /// sender sends (Lamport style, as in TensorRT-LLM). Floating types.
    OneShotSentinel,
    /// Reduce-scatter and all-gather, both pushed without a barrier, LL packets. Any type.
    TwoShotLL,
    /// The same with sentinel packets. Floating types.
    TwoShotSentinel,
    /// Each rank reads its share from all inputs and writes the sum into all outputs, between two
    /// barriers. Symmetric or adopted memory; any type.
    TwoShotZeroCopy,
    /// A reduce-scatter and an all-gather in which every rank passes pieces on to the next (after
    /// Patarasuk and Yuan, as in NCCL): through queues, the results straight into the next output
    /// where peers can address it. Any type. Highest bandwidth for the largest messages.
    ///
    /// A result starts at the rank with the number of its chunk, a share of the message a rank, goes
    /// round, and is rounded at every rank: what overflows the type on the way stays infinite. No
    /// averages of integers, whose partial sums would wrap.
    Ring,
    /// Exchanges of everything with one partner after the other, each twice as far away (Thakur,
    /// Rabenseifner and Gropp), LL packets; ranks beyond a power of two fold in and out. Any type.
    ///
    /// A result is one of neighbours, then of neighbouring pairs and so on, rounded every time. No
    /// averages of integers.
    RecursiveDoubling,
}

impl Algorithm {
    /// Every algorithm that runs, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::OneShotLL,
        Self::OneShotSentinel,
        Self::TwoShotLL,
        Self::TwoShotSentinel,
        Self::TwoShotZeroCopy,
        Self::Ring,
        Self::RecursiveDoubling,
    ];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match algorithm_name(self.number()) {
            Some(name) => name,
            None => "auto",
        }
    }

    /// Whether it can carry this type.
    pub const fn carries(self, dtype: Dtype) -> bool {
        match self {
            Self::OneShotSentinel | Self::TwoShotSentinel => dtype.is_float(),
            _ => true,
        }
    }

    /// Whether peers must be able to address the operands.
    pub const fn needs_reach(self) -> bool {
        matches!(self, Self::TwoShotZeroCopy)
    }

    /// Whether its results have the bits of a sum in rank order, rounded once: what
    /// [`Determinism::Exact`] asks for. Integers always do; and of two ranks there is one sum.
    pub const fn is_exact(self, dtype: Dtype, world_size: usize) -> bool {
        !matches!(self, Self::Ring | Self::RecursiveDoubling) || !dtype.is_float() || world_size <= 2
    }

    /// Whether it can carry this reduction of this type: averages of integers cannot be made of partial
    /// sums, which wrap.
    pub const fn reduces(self, dtype: Dtype, reduction: Reduction) -> bool {
        !matches!(self, Self::Ring | Self::RecursiveDoubling)
            || dtype.is_float()
            || !matches!(reduction, Reduction::Average)
    }

    /// Its number in the argument blocks.
    pub(crate) const fn number(self) -> u32 {
        match self {
            // Never reaches a kernel: selection replaces it.
            Self::Auto => u32::MAX,
            Self::OneShotLL => args::kOneShotLL,
            Self::OneShotSentinel => args::kOneShotSentinel,
            Self::TwoShotLL => args::kTwoShotLL,
            Self::TwoShotSentinel => args::kTwoShotSentinel,
            Self::TwoShotZeroCopy => args::kTwoShotZeroCopy,
            Self::Ring => args::kRing,
            Self::RecursiveDoubling => args::kRecursiveDoubling,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = || [Self::Auto].into_iter().chain(Self::ALL);
        all().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<_> = all().map(Self::name).collect();
            Error::invalid("the algorithm", name, format!("it must be one of {}", names.join(", ")))
        })
    }
}
