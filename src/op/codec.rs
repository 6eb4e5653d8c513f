//! The codecs of an all-reduce: how values are sent in fewer bits.

use super::Algorithm;
use crate::kernel::args;
use crate::settings::named;
use crate::types::{Dtype, Reduction, codec_name};

/// How an all-reduce sends its values: as they are, or in fewer bits, for messages that are bound by the links. Sums and
/// averages of f16 and bf16.
///
/// A codec cuts the message into groups of 32 elements. A group is sent as quantised values of 8, 6 or 4 bits and one
/// scale in bf16, which the group's largest magnitude decides. So an error is relative to the largest element of a group.
/// Values are summed in single precision in rank order. Between more than two ranks a value is quantised twice: as an
/// input, and as a sum. All ranks have equal bits. The bits depend only on the element's group, whose start is a multiple
/// of 32 in the message.
///
/// A NaN or an infinity on any rank, or a sum beyond single precision, makes its group NaN on all ranks. A magnitude above
/// 3.37e38 may become infinite, or make its group NaN. The least scale is 2^-126. So a quantised value may be off by 2^-127
/// (FP8: by 2^-136), where that is more than the bound of the codec. Groups of zeros give +0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// No codec: values are sent as they are.
    #[default]
    None,
    /// Floats of 8 bits (e4m3): 8.5 bits an element. The error is at most 1/16 of the element, for small elements at most
    /// 2^-18 of the largest magnitude in the group. For groups whose elements differ much in size.
    Fp8,
    /// Integers of 8 bits: 8.5 bits an element. The error is at most 1/251 of the largest magnitude in the group.
    Int8,
    /// Integers of 6 bits: 6.5 bits an element. The error is at most 1/61.4 of the largest magnitude in the group.
    Int6,
    /// Integers of 4 bits: 4.5 bits an element. The error is at most 1/13.8 of the largest magnitude in the group.
    Int4,
}

impl Codec {
    /// Every codec, `None` first.
    pub const ALL: [Self; 5] = [Self::None, Self::Fp8, Self::Int8, Self::Int6, Self::Int4];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match codec_name(self.number()) {
            Some(name) => name,
            None => "none",
        }
    }

    /// The algorithm that runs a call with this codec and no algorithm named: one-shot between two ranks, where it moves
    /// no more bytes than two-shot, else two-shot. Without a codec the communicator's table chooses: `Auto`.
    pub const fn algorithm(self, world_size: usize) -> Algorithm {
        match self {
            Self::None => Algorithm::Auto,
            _ if world_size <= 2 => Algorithm::OneShotSentinel,
            _ => Algorithm::TwoShotSentinel,
        }
    }

    /// The number in the argument blocks.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::None => args::kCodecNone,
            Self::Fp8 => args::kCodecFp8,
            Self::Int8 => args::kCodecInt8,
            Self::Int6 => args::kCodecInt6,
            Self::Int4 => args::kCodecInt4,
        }
    }

    /// Packets of 16 bytes for a unit of 512 elements: quantised values, and a scale of 16 bits for each group.
    pub(crate) const fn unit_packets(self) -> u64 {
        let bits = match self {
            Self::None => 16,
            Self::Fp8 | Self::Int8 => 8,
            Self::Int6 => 6,
            Self::Int4 => 4,
        };
        (args::kUnitElems * bits / 128 + args::kUnitElems / args::kGroupElems / 8) as u64
    }

    /// Whether the codec supports this reduction of this type.
    pub const fn carries(self, dtype: Dtype, reduction: Reduction) -> bool {
        matches!(self, Self::None)
            || (matches!(dtype, Dtype::F16 | Dtype::BF16) && matches!(reduction, Reduction::Sum | Reduction::Average))
    }
}

named!(Codec, "the codec", Self::ALL);
