//! How normed rows are quantised: which elements share a scale, and how values and scales are stored.

mod narrow;
mod rows;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::types::Dtype;

pub use narrow::{Narrow, ScaleLayout};
pub(in crate::op) use rows::unneeded;
pub(crate) use rows::{Quantised, RowFormat, ScaleGroup};

/// Which elements of the normed rows y share a scale, and how scales and values are stored.
///
/// Let a be the largest magnitude of the elements that share a scale. Then, with each step rounded to f32,
/// `value = nearest value of the format to (y inverse)`.
///
/// | | scale | inverse |
/// |---|---|---|
/// | per token, per group | `max(a / most, 2^-126)`; 1 where a is 0, NaN where a is NaN | `1 / scale` |
/// | `Mx` | 2^e with the least e for which a is at most `most 2^e`: no value is clipped | `1 / scale` |
/// | `Nvfp4` | `f = nearest e4m3 to (global scale (a (1 / 6)))` | `global scale / f`; 0 where f is 0 |
///
/// `most` is the largest value of the format: 448, 57344, 6, or 127. Per token, a is NaN where the factor of the norm is
/// infinite.
///
/// The name on the command line and in messages, which [`FromStr`] reads, is like `per-token-e4m3`, `group-128-e4m3`,
/// `group-128-e4m3-columns`, `mxfp8`, `mxfp4-swizzled`, `mx-128-e4m3-packed`, `nvfp4` or `nvfp4-swizzled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantisation {
    /// A scale a row, in f32. Not e2m1.
    PerToken(Narrow),
    /// A scale for each group of a row, in f32. Not e2m1.
    PerGroup {
        /// The format of values.
        to: Narrow,
        /// Elements of a group: a multiple of 16, up to 2^20. The last group of a row may be short.
        elems: usize,
        /// Rows or columns.
        layout: ScaleLayout,
    },
    /// A power of two for each group of a row, in a byte (e8m0): byte b is 2^(b - 127), and 255 is NaN. Not int8.
    Mx {
        /// The format of values.
        to: Narrow,
        /// Elements of a group: a multiple of 16, up to 2^20, that divides the width of a row.
        elems: usize,
        /// Rows, packed columns or swizzled.
        layout: ScaleLayout,
    },
    /// Values in e2m1, and a scale in e4m3 for each 16 elements of a row. A global scale multiplies these scales.
    Nvfp4 {
        /// Rows or swizzled.
        layout: ScaleLayout,
    },
}

/// The elements of a group in the formats of the OCP.
const MX_ELEMS: usize = 32;

impl Quantisation {
    /// e4m3 with a power of two for each 32 elements.
    pub const fn mxfp8() -> Self {
        Self::Mx { to: Narrow::E4M3, elems: MX_ELEMS, layout: ScaleLayout::Rows }
    }

    /// e2m1 with a power of two for each 32 elements.
    pub const fn mxfp4() -> Self {
        Self::Mx { to: Narrow::E2M1, elems: MX_ELEMS, layout: ScaleLayout::Rows }
    }

    /// e4m3 with a power of two for each 128 elements, in packed columns.
    pub const fn packed_groups() -> Self {
        Self::Mx { to: Narrow::E4M3, elems: 128, layout: ScaleLayout::PackedColumns }
    }

    /// Elements of the operand of values, for rows of `width` elements.
    pub fn values_len(self, rows: usize, width: usize) -> usize {
        RowFormat::from(self).values_len(rows, width)
    }

    /// Elements of the operand of scales, for rows of `width` elements.
    pub fn scales_len(self, rows: usize, width: usize) -> usize {
        RowFormat::from(self).scales_len(rows, width)
    }

    /// The element type of the operand of values.
    pub const fn values_dtype(self) -> Dtype {
        match self {
            Self::PerToken(to) | Self::PerGroup { to, .. } | Self::Mx { to, .. } => to.dtype(),
            Self::Nvfp4 { .. } => Narrow::E2M1.dtype(),
        }
    }

    /// The element type of the operand of scales.
    pub const fn scales_dtype(self) -> Dtype {
        match self {
            Self::PerToken(_) | Self::PerGroup { .. } => Dtype::F32,
            Self::Mx { .. } | Self::Nvfp4 { .. } => Dtype::U8,
        }
    }
}

impl From<Quantisation> for RowFormat {
    fn from(how: Quantisation) -> Self {
        match how {
            Quantisation::PerToken(to) => Self::new(ScaleGroup::PerToken, to, 0, ScaleLayout::Rows),
            Quantisation::PerGroup { to, elems, layout } => Self::new(ScaleGroup::PerGroup, to, elems, layout),
            Quantisation::Mx { to, elems, layout } => Self::new(ScaleGroup::Mx, to, elems, layout),
            Quantisation::Nvfp4 { layout } => Self::new(ScaleGroup::Nvfp4, Narrow::E2M1, 0, layout),
        }
    }
}

impl fmt::Display for Quantisation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match *self {
            Self::PerToken(to) => return write!(out, "per-token-{to}"),
            Self::PerGroup { to, elems, layout } => {
                write!(out, "group-{elems}-{to}")?;
                layout
            }
            Self::Mx { to, elems, layout } => {
                match (to, elems) {
                    (Narrow::E4M3, MX_ELEMS) => out.write_str("mxfp8")?,
                    (Narrow::E2M1, MX_ELEMS) => out.write_str("mxfp4")?,
                    _ => write!(out, "mx-{elems}-{to}")?,
                }
                layout
            }
            Self::Nvfp4 { layout } => {
                out.write_str("nvfp4")?;
                layout
            }
        };
        if layout == ScaleLayout::Rows { Ok(()) } else { write!(out, "-{layout}") }
    }
}

impl FromStr for Quantisation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let ended = |layout: &ScaleLayout| name.strip_suffix(layout.name())?.strip_suffix('-');
        let layout = ScaleLayout::ALL.into_iter().find(|layout| ended(layout).is_some()).unwrap_or_default();
        let plain = ended(&layout).unwrap_or(name);
        let mut words = plain.split('-');
        let mut next = || words.next().unwrap_or_default();
        let known = match (next(), next(), next(), next()) {
            ("per", "token", to, "") if plain == name => to.parse().ok().map(Self::PerToken),
            ("mxfp8", "", ..) => Some(Self::Mx { to: Narrow::E4M3, elems: MX_ELEMS, layout }),
            ("mxfp4", "", ..) => Some(Self::Mx { to: Narrow::E2M1, elems: MX_ELEMS, layout }),
            ("nvfp4", "", ..) => Some(Self::Nvfp4 { layout }),
            (kind @ ("group" | "mx"), elems, to, "") => match (elems.parse(), to.parse()) {
                (Ok(elems), Ok(to)) if kind == "group" => Some(Self::PerGroup { to, elems, layout }),
                (Ok(elems), Ok(to)) => Some(Self::Mx { to, elems, layout }),
                _ => None,
            },
            _ => None,
        };
        let known = known.filter(|known| known.to_string() == name).ok_or_else(|| {
            let limit = "it must be like per-token-e4m3, group-128-e4m3, group-128-int8-columns, mxfp8, mxfp4, \
                         mx-128-e4m3-packed, mxfp8-swizzled, nvfp4 or nvfp4-swizzled";
            Error::invalid("the quantisation", name, limit)
        })?;
        RowFormat::from(known).check_form()?;
        Ok(known)
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/op/quantise.rs"]
mod tests;
