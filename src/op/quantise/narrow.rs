//! Formats of quantised values, and layouts of their scales.

use crate::kernel::args;
use crate::settings::named;
use crate::types::Dtype;

/// The format of quantised values. Values are rounded to nearest, ties to even, and saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Narrow {
    /// 8 bits, at most 448. A NaN is 0x7F.
    E4M3 = args::kNarrowE4M3,
    /// 8 bits, at most 57344. A NaN is 0x7F.
    E5M2 = args::kNarrowE5M2,
    /// 4 bits, at most 6. Two values a byte, the even element in the low bits. A NaN becomes 6.
    E2M1 = args::kNarrowE2M1,
    /// Integers of 8 bits. A NaN becomes 0, and makes its scale NaN, unless the scale is static.
    I8 = args::kNarrowI8,
}

impl Narrow {
    /// Every format, in the order of their numbers.
    pub const ALL: [Self; args::kNarrows as usize] = [Self::E4M3, Self::E5M2, Self::E2M1, Self::I8];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::E4M3 => "e4m3",
            Self::E5M2 => "e5m2",
            Self::E2M1 => "e2m1",
            Self::I8 => "int8",
        }
    }

    /// The element type of an operand of such values. Pairs of 4-bit values are bytes.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::E4M3 => Dtype::F8E4M3,
            Self::E5M2 => Dtype::F8E5M2,
            Self::E2M1 => Dtype::U8,
            Self::I8 => Dtype::I8,
        }
    }
}

named!(Narrow, "the format of quantised values", Self::ALL);

/// Where the scale of group g of a row is. `rows` is the number of rows, and n the number of groups of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum ScaleLayout {
    /// The scales of a row follow each other: place row n + g.
    #[default]
    Rows = args::kScalesRows,
    /// The scales of a group of all rows follow each other: place g rows + row. Scales in f32.
    Columns = args::kScalesColumns,
    /// Words of four groups, in columns that begin at a multiple of four words: byte g % 4 of word
    /// (g / 4) (rows rounded up to 4) + row. The last column has `rows` words. Other bytes become zero. Scales in e8m0.
    PackedColumns = args::kScalesPackedColumns,
    /// Blocks of 128 rows by 4 groups, as block-scaled GEMMs of GPUs read them: byte
    /// ((row / 128) (n rounded up to 4) / 4 + g / 4) 512 + (row % 32) 16 + (row % 128 / 32) 4 + g % 4. The memory holds
    /// whole blocks; bytes without a row or a group are not modified. Scales of one byte.
    Swizzled128x4 = args::kScalesSwizzled128x4,
}

impl ScaleLayout {
    /// Every layout, in the order of their numbers.
    pub const ALL: [Self; args::kScaleLayouts as usize] =
        [Self::Rows, Self::Columns, Self::PackedColumns, Self::Swizzled128x4];

    /// The name used in messages, and as the end of a [`Quantisation`](crate::Quantisation)'s name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Columns => "columns",
            Self::PackedColumns => "packed",
            Self::Swizzled128x4 => "swizzled",
        }
    }
}

named!(ScaleLayout, "the layout of scales", Self::ALL);
