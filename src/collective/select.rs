//! Which algorithm serves which message: a pure table of world, bytes, type and reach, so that
//! every rank picks alike. The crossovers were measured on 2 and 4 H200 (NVLink 4, no multicast) and, for the
//! host, on a CPU of two cores; those for more GPUs are carried over. `explain` prints them.

use std::fmt;
use std::str::FromStr;

use crate::device::DeviceKind;
use crate::error::Error;
use crate::kernel::args;
use crate::types::Dtype;

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
}

impl Algorithm {
    /// Every algorithm that runs, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::OneShotLL, Self::OneShotSentinel, Self::TwoShotLL, Self::TwoShotSentinel, Self::TwoShotZeroCopy];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::OneShotLL => "one-shot-ll",
            Self::OneShotSentinel => "one-shot-sentinel",
            Self::TwoShotLL => "two-shot-ll",
            Self::TwoShotSentinel => "two-shot-sentinel",
            Self::TwoShotZeroCopy => "two-shot-zero-copy",
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

/// Whether peers can address both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Symmetric or registered.
    Direct,
    /// Plain: everything is pushed.
    Pushed,
}

/// One range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Largest message of the range, in bytes.
    pub up_to_bytes: u64,
    /// What serves it.
    pub algorithm: Algorithm,
    /// Why.
    pub reason: &'static str,
}

/// Up to which size one-shot LL, one-shot sentinel and the pushed two-shot are fastest.
#[derive(Clone, Copy)]
struct Crossovers {
    ll: u64,
    one_shot: u64,
    two_shot: u64,
}

const fn crossovers(kind: DeviceKind, world: usize) -> Crossovers {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match (kind, world) {
        // A CPU has no latency to hide: the fewer copies the better.
        (DeviceKind::Host, _) => Crossovers { ll: KIB, one_shot: 4 * KIB, two_shot: 4 * KIB },
        (DeviceKind::Cuda, 0..=2) => Crossovers { ll: 0, one_shot: 512 * KIB, two_shot: 4 * MIB },
        (DeviceKind::Cuda, 3..=4) => Crossovers { ll: 0, one_shot: 128 * KIB, two_shot: 4 * MIB },
        (DeviceKind::Cuda, _) => Crossovers { ll: 0, one_shot: 32 * KIB, two_shot: 4 * MIB },
    }
}

/// The table's rows for one kind of call, smallest messages first; a row no larger than the one
/// before serves nothing. Ends with `u64::MAX`.
fn table(kind: DeviceKind, world: usize, dtype: Dtype, reach: Reach) -> [Range; 4] {
    let Crossovers { ll, one_shot, two_shot } = crossovers(kind, world);
    let row = |up_to_bytes, algorithm, reason| Range { up_to_bytes, algorithm, reason };
    let (one, two, last) = if dtype.is_float() {
        (Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, two_shot)
    } else {
        // LL packets are half empty: the crossovers come at half the size.
        (Algorithm::OneShotLL, Algorithm::TwoShotLL, two_shot / 2)
    };
    [
        row(ll, Algorithm::OneShotLL, "fewest instructions a packet"),
        row(if dtype.is_float() { one_shot } else { one_shot / 2 }, one, "one hop"),
        row(last, two, "two hops move less than every rank to every rank"),
        match reach {
            Reach::Direct => row(u64::MAX, Algorithm::TwoShotZeroCopy, "no copy through scratch"),
            Reach::Pushed => row(u64::MAX, two, "plain memory goes through scratch, in several calls if need be"),
        },
    ]
}

/// The ranges that serve something, merged where neighbours agree.
pub(crate) fn ranges(kind: DeviceKind, world: usize, dtype: Dtype, reach: Reach) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for row in table(kind, world, dtype, reach) {
        match ranges.last_mut() {
            _ if row.up_to_bytes == 0 => {}
            Some(last) if row.up_to_bytes <= last.up_to_bytes => {}
            Some(last) if row.algorithm == last.algorithm => *last = row,
            _ => ranges.push(row),
        }
    }
    ranges
}

/// The algorithm for one message. Allocates nothing.
pub(crate) fn select(kind: DeviceKind, world: usize, dtype: Dtype, reach: Reach, bytes: u64) -> Algorithm {
    let rows = table(kind, world, dtype, reach);
    rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap_or(&rows[3]).algorithm
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_message_has_an_algorithm_that_carries_it(world in 2usize..=16, bytes in 0u64..1 << 40, direct: bool) {
            let reach = if direct { Reach::Direct } else { Reach::Pushed };
            for kind in [DeviceKind::Host, DeviceKind::Cuda] {
                for dtype in Dtype::ALL {
                    let algorithm = select(kind, world, dtype, reach, bytes);
                    prop_assert!(algorithm.carries(dtype));
                    prop_assert!(direct || !algorithm.needs_reach());
                    let rows = ranges(kind, world, dtype, reach);
                    prop_assert!(rows.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
                    prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
                    let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
                    prop_assert_eq!(row.algorithm, algorithm);
                }
            }
        }
    }

    #[test]
    fn names_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse::<Algorithm>().unwrap(), algorithm);
        }
        assert!("fastest".parse::<Algorithm>().is_err());
    }
}
