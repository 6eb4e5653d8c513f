//! Element types.

use crate::kernel::args;

/// The type of the elements of a tensor.
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
    /// 32-bit two's complement; sums wrap.
    I32 = args::kI32,
    /// 64-bit two's complement; sums wrap.
    I64 = args::kI64,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; 6] = [Self::F32, Self::F64, Self::F16, Self::BF16, Self::I32, Self::I64];

    /// Size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
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
        }
    }

    /// Whether values are floating point.
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::I32 | Self::I64)
    }

    /// The type with this number, which crosses the language boundary.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u32 == number)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

/// A Rust type that a collective can carry. Sealed: exactly the types of [`Dtype`].
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// Its [`Dtype`].
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

elements! { f32 => F32 f64 => F64 half::f16 => F16 half::bf16 => BF16 i32 => I32 i64 => I64 }

/// How an exchange moves data: every collective but all-reduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// By size, world and memory: `explain_exchange` prints which.
    #[default]
    Auto,
    /// Packets that carry the proof of their arrival, through scratch (the LL protocol of NCCL). Any
    /// memory. Lowest latency.
    Packets,
    /// Between the operands themselves, between two barriers; nothing is copied on the way. Needs
    /// symmetric or adopted memory, or a graph that registers plain memory.
    Direct,
}

impl Transport {
    /// Every transport by its name.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Packets, Self::Direct];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Packets => "packets",
            Self::Direct => "direct",
        }
    }

    /// The transport with this number, which crosses the language boundary.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| *transport as u32 == number)
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}
