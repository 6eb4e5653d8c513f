//! Element types, reductions and transports.

use crate::kernel::args;
use crate::settings::named;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Dtype {
    /// IEEE single precision.
    F32 = args::kF32,
    /// IEEE double precision.
    F64 = args::kF64,
    /// IEEE half precision.
    F16 = args::kF16,
    /// bfloat16: the upper half of a single.
    BF16 = args::kBF16,
    /// 32-bit two's complement.
    I32 = args::kI32,
    /// 64-bit two's complement.
    I64 = args::kI64,
    /// 8-bit two's complement.
    I8 = args::kI8,
    /// 8-bit unsigned.
    U8 = args::kU8,
    /// 32-bit unsigned.
    U32 = args::kU32,
    /// 64-bit unsigned.
    U64 = args::kU64,
    /// e4m3 of the OCP (e4m3fn): 4 bits of exponent, 3 of fraction. No infinities: the largest value is 448.
    F8E4M3 = args::kF8E4M3,
    /// e5m2 of the OCP: 5 bits of exponent, 2 of fraction. The largest finite value is 57344.
    F8E5M2 = args::kF8E5M2,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; args::kElementTypes as usize] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::BF16,
        Self::I32,
        Self::I64,
        Self::I8,
        Self::U8,
        Self::U32,
        Self::U64,
        Self::F8E4M3,
        Self::F8E5M2,
    ];

    /// Size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
        }
    }

    /// Whether the type is floating point.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16) || self.is_f8()
    }

    /// Whether the type is an 8-bit float.
    pub(crate) const fn is_f8(self) -> bool {
        matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u32 == number)
    }
}

named!(Dtype, "the type", Self::ALL);

/// How the values of all ranks are combined.
///
/// Values are combined in rank order and the result is rounded once. Exceptions are all-reduces of floating types by
/// [`Algorithm::Ring`](crate::Algorithm::Ring) and
/// [`Algorithm::RecursiveDoubling`](crate::Algorithm::RecursiveDoubling), all-reduces by a [`Codec`](crate::Codec), and
/// calls that [NCCL](crate::environment::Backend::Nccl) serves. 8-bit floats, f16, bf16 and f32 are reduced in single
/// precision, f64 in double precision. Results of 8-bit floats saturate: values beyond the largest finite value,
/// including infinities, become that value with their sign. Sums and products of integers wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum.
    #[default]
    Sum = args::kSum,
    /// The product.
    Product = args::kProduct,
    /// The least value: `minimum` of IEEE 754-2019. A NaN on any rank makes the result a NaN; -0 is less than +0.
    Min = args::kMin,
    /// The greatest value: `maximum` of IEEE 754-2019. A NaN on any rank makes the result a NaN; +0 is greater than -0.
    Max = args::kMax,
    /// The sum divided by the world size. Floating types divide before they round to the type; integers truncate toward
    /// zero. Integers of 32 bits and less are summed in 64 bits, so only averages of 64-bit integers can wrap.
    Average = args::kAverage,
}

impl Reduction {
    /// Every reduction.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Average];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Average => "avg",
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reduction| *reduction as u32 == number)
    }
}

named!(Reduction, "the reduction", Self::ALL);

/// A Rust type that a collective can carry. Sealed: exactly the types of [`Dtype`].
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The [`Dtype`] of this type.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements! {
    f32 => F32 f64 => F64 half::f16 => F16 half::bf16 => BF16
    i32 => I32 i64 => I64 i8 => I8 u8 => U8 u32 => U32 u64 => U64
    float8::F8E4M3 => F8E4M3 float8::F8E5M2 => F8E5M2
}

/// How an exchange (every collective but all-reduce) moves data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Chosen by size, world size, memory and, in a reduction, type; `explain_exchange` prints the choice.
    #[default]
    Auto,
    /// Packets through scratch, which prove their own arrival: each packet has a flag (NCCL's LL protocol), or contains
    /// no word that is the sentinel. Any memory. Lowest latency.
    Packets,
    /// Zero-copy: directly between the operands, between two barriers. Needs symmetric or adopted memory, or a graph
    /// that registers plain memory. If ranks know only their own counts (gather, scatter, batches and variable
    /// all-to-all), received data must go to symmetric memory. If this is violated on some rank, later calls of every
    /// rank fail with [`Error::Unsupported`](crate::Error::Unsupported), which names that rank.
    Direct,
    /// By multicast: all-gathers and broadcasts into symmetric buffers, reduce-scatters of symmetric buffers, by sums of the
    /// types of [`Algorithm::MulticastOneShot`](crate::Algorithm::MulticastOneShot). Needs
    /// [`Config::multicast`](crate::Config::multicast); other exchanges are refused.
    Multicast,
}

impl Transport {
    /// The transports that every communicator has.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Packets, Self::Direct];

    /// Every transport, in the order of the numbers that C++ callers use.
    pub const EVERY: [Self; 4] = [Self::Auto, Self::Packets, Self::Direct, Self::Multicast];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Packets => "packets",
            Self::Direct => "direct",
            Self::Multicast => "multicast",
        }
    }
}

named!(Transport, "the transport", Self::EVERY);

/// Ranks know only their own counts: the counts that they exchange decide the transport.
pub(crate) const WAY_LEARNED: u32 = 0x10;
/// A call without elements: no data move, whichever operands the call has.
pub(crate) const WAY_NOTHING: u32 = 0x11;
/// Summed or stored by multicast.
pub(crate) const WAY_MULTICAST: u32 = 0x12;
/// An all-reduce within groups of consecutive ranks, by packets.
pub(crate) const WAY_APART: u32 = 0x13;
/// Moved by the copy engines; the caller defines the bits below.
pub(crate) const WAY_COPY_ENGINES: u32 = 0x20;

/// The name of an all-reduce algorithm, given its number in the argument blocks.
pub(crate) const fn algorithm_name(number: u32) -> Option<&'static str> {
    Some(match number {
        args::kOneShotLL => "one-shot-ll",
        args::kOneShotSentinel => "one-shot-sentinel",
        args::kTwoShotLL => "two-shot-ll",
        args::kTwoShotSentinel => "two-shot-sentinel",
        args::kTwoShotZeroCopy => "two-shot-zero-copy",
        args::kRing => "ring",
        args::kRecursiveDoubling => "recursive-doubling",
        args::kMulticastOneShot => "multicast-one-shot",
        args::kMulticastTwoShot => "multicast-two-shot",
        WAY_APART => "packets, of a few ranks each",
        _ => return None,
    })
}

/// The name of a codec, given its number in the argument blocks.
pub(crate) const fn codec_name(number: u32) -> Option<&'static str> {
    Some(match number {
        args::kCodecFp8 => "fp8",
        args::kCodecInt8 => "int8",
        args::kCodecInt6 => "int6",
        args::kCodecInt4 => "int4",
        _ => return None,
    })
}

/// The name of a transport, given its number in the argument blocks or one of `WAY_*`.
pub(crate) const fn exchange_name(number: u32) -> Option<&'static str> {
    Some(match number {
        args::kExchangePackets | args::kReducePackets => "packets",
        args::kRelayPackets => "relayed packets",
        args::kReduceSentinels => "sentinel packets",
        args::kExchangeEscaped => "escaped packets",
        args::kExchangePush | args::kReducePull => "direct access",
        args::kExchangeRelay => "direct relay",
        WAY_MULTICAST => "multicast",
        WAY_LEARNED => "packets or direct access",
        _ if number & WAY_COPY_ENGINES != 0 => "copy engines",
        _ => return None,
    })
}

/// Evaluates an expression in which `$type` names the element type of a `Dtype`.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $value:expr) => {
        with_type!($dtype, $type => $value;
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16, I32 i32, I64 i64, I8 i8, U8 u8, U32 u32, U64 u64,
            F8E4M3 float8::F8E4M3, F8E5M2 float8::F8E5M2)
    };
    ($dtype:expr, $type:ident => $value:expr; $($name:ident $rust:ty),*) => {
        match $dtype {
            $($crate::types::Dtype::$name => {
                type $type = $rust;
                $value
            })*
        }
    };
}
pub(crate) use with_type;

#[cfg(test)]
#[path = "../tests/unit/types.rs"]
mod tests;
