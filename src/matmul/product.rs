//! The description of a GEMM, its types and shapes, and the check of supported combinations.

use std::fmt;

use crate::error::{Error, Result};
use crate::settings::setters;
use crate::types::Dtype;

/// The order of a matrix in memory. Its elements are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row after row: elements of a row are neighbours.
    Rows,
    /// Column after column: elements of a column are neighbours.
    Columns,
}

/// An 8-bit float of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum F8 {
    /// [`Dtype::F8E4M3`].
    E4M3,
    /// [`Dtype::F8E5M2`].
    E5M2,
}

impl F8 {
    const fn dtype(self) -> Dtype {
        match self {
            Self::E4M3 => Dtype::F8E4M3,
            Self::E5M2 => Dtype::F8E5M2,
        }
    }
}

/// The types of the factors. Products are accumulated in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numeric {
    /// Factors of f32, with all 24 bits.
    F32,
    /// Factors of f32 that a GPU rounds to 11 bits before it multiplies. The CPU keeps all 24.
    Tf32,
    /// Factors of f16.
    F16,
    /// Factors of bf16.
    BF16,
    /// Factors of 8-bit floats.
    F8 {
        /// The type of the left factor.
        left: F8,
        /// The type of the right factor.
        right: F8,
    },
}

impl Numeric {
    /// The types of the left and the right factor.
    pub const fn dtypes(self) -> [Dtype; 2] {
        match self {
            Self::F32 | Self::Tf32 => [Dtype::F32; 2],
            Self::F16 => [Dtype::F16; 2],
            Self::BF16 => [Dtype::BF16; 2],
            Self::F8 { left, right } => [left.dtype(), right.dtype()],
        }
    }

    /// The types that a result may have; the first is the usual one.
    pub const fn results(self) -> &'static [Dtype] {
        match self {
            Self::F32 | Self::Tf32 => &[Dtype::F32],
            Self::F16 => &[Dtype::F16, Dtype::F32],
            Self::BF16 => &[Dtype::BF16, Dtype::F32],
            Self::F8 { .. } => &[Dtype::BF16, Dtype::F16, Dtype::F32],
        }
    }

    const fn is_f8(self) -> bool {
        matches!(self, Self::F8 { .. })
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tf32 => out.write_str("tf32"),
            Self::F8 { left, right } if left != right => write!(out, "{} x {}", left.dtype(), right.dtype()),
            numeric => write!(out, "{}", numeric.dtypes()[0]),
        }
    }
}

/// The scales of 8-bit floats, in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scaling {
    /// No scales.
    None,
    /// One scale for each factor.
    Tensor,
    /// A scale for each row of the left factor, and for each column of the right factor.
    Rows,
}

/// The shape and the types of a GEMM `result = left right`, except for the number of rows: with `M` rows, `left` is `M x
/// inner`, `right` is `inner x columns`, and `result` is `M x columns`, row after row.
///
/// Each element is `relu(scale sum(left right) + bias)` in f32, rounded once to the result's type. For some shapes cuBLASLt also
/// rounds the sum to that type before it adds a bias. The sum over `inner` is accumulated in f32, in an order that the library
/// chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Product {
    /// Columns of the left factor, and rows of the right factor: `K`.
    pub inner: usize,
    /// Columns of the right factor and of the result: `N`.
    pub columns: usize,
    /// The number of GEMMs of equal shapes in one batched call. Their factors and results are contiguous in memory; bias and
    /// scales are shared.
    pub count: usize,
    /// The types of the factors.
    pub numeric: Numeric,
    /// The scales of 8-bit floats.
    pub scaling: Scaling,
    /// The order of the left factor in memory.
    pub left: Order,
    /// The order of the right factor in memory.
    pub right: Order,
    /// The type of the result.
    pub result: Dtype,
    /// Whether a bias is added to each row: `columns` elements of the result's type.
    pub bias: bool,
    /// Whether elements below 0 become 0, after the bias.
    pub relu: bool,
    /// Whether a GPU may accumulate GEMMs of 8-bit floats with fewer bits, which is faster.
    pub fast_accumulation: bool,
}

setters! { Product {
    inner: usize, columns: usize, count: usize, numeric: Numeric, scaling: Scaling, left: Order, right: Order,
    result: Dtype, bias: bool, relu: bool, fast_accumulation: bool,
} }

/// GEMMs of 8-bit floats need sizes and addresses that are multiples of this, in elements and bytes.
pub(super) const F8_UNIT: usize = 16;

/// The largest size of a matrix: the limit of cuBLASLt's 32-bit shapes.
const MOST: usize = i32::MAX as usize;

impl Product {
    /// A GEMM of a row-major left factor and a weight `[columns][inner]`, as models store weights, with the usual result type:
    /// the factors' type, or bf16 for 8-bit floats.
    pub fn new(inner: usize, columns: usize, numeric: Numeric) -> Self {
        Self {
            inner,
            columns,
            count: 1,
            numeric,
            scaling: Scaling::None,
            left: Order::Rows,
            right: Order::Columns,
            result: numeric.results()[0],
            bias: false,
            relu: false,
            fast_accumulation: false,
        }
    }

    /// The number of elements of left factor, right factor and result, for `rows` rows.
    pub(super) fn elems(&self, rows: usize) -> Option<[usize; 3]> {
        let of = |height: usize, width: usize| height.checked_mul(width)?.checked_mul(self.count);
        Some([of(rows, self.inner)?, of(self.inner, self.columns)?, of(rows, self.columns)?])
    }

    /// The types of left factor, right factor and result.
    pub(super) fn dtypes(&self) -> [Dtype; 3] {
        let [left, right] = self.numeric.dtypes();
        [left, right, self.result]
    }

    /// Checks that any device supports the GEMM.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a size of 0 or above 2^31 - 1, and for scales, fast accumulation or sizes that the
    /// types do not support; [`Error::Unsupported`] for types and layouts that no library supports.
    pub fn check(&self) -> Result<()> {
        for (what, size) in [("inner", self.inner), ("columns", self.columns), ("count", self.count)] {
            if !(1..=MOST).contains(&size) {
                return Err(Error::invalid(what, size, format!("a product takes 1 to {MOST}")));
            }
        }
        let Self { numeric, .. } = self;
        if !numeric.results().contains(&self.result) {
            let known = numeric.results().iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
            return Err(Error::unsupported(
                format!("a product of {numeric} as {}", self.result),
                format!("results are {known}"),
            ));
        }
        if !numeric.is_f8() {
            return match (self.scaling, self.fast_accumulation) {
                (Scaling::None, false) => Ok(()),
                (Scaling::None, true) => Err(Error::invalid("fast_accumulation", true, format!("{numeric} has none"))),
                (scaling, _) => {
                    Err(Error::invalid("scaling", format!("{scaling:?}"), format!("{numeric} has no scales")))
                }
            };
        }
        self.check_f8()
    }

    /// Checks cuBLASLt's requirements for 8-bit floats. They apply to every device, including the CPU.
    fn check_f8(&self) -> Result<()> {
        let what = || format!("a product of {}", self.numeric);
        if self.numeric == (Numeric::F8 { left: F8::E5M2, right: F8::E5M2 }) {
            return Err(Error::unsupported(what(), "one of the factors must be e4m3"));
        }
        if (self.left, self.right) != (Order::Rows, Order::Columns) {
            let reason = "the left factor must lie row after row, and the right factor column after column";
            return Err(Error::unsupported(what(), reason));
        }
        if self.bias && self.result == Dtype::F32 {
            return Err(Error::unsupported(format!("{} with a bias", what()), "the result must be bf16 or f16"));
        }
        if self.count > 1 && self.scaling == Scaling::Rows {
            return Err(Error::unsupported(format!("{} of them with scales of rows", self.count), "count must be 1"));
        }
        for (name, size) in [("inner", self.inner), ("columns", self.columns)] {
            if !size.is_multiple_of(F8_UNIT) {
                return Err(Error::invalid(name, size, format!("{} must have multiples of {F8_UNIT}", what())));
            }
        }
        Ok(())
    }

    /// The number of scales of left and right factor, for `rows` rows.
    pub(super) fn scales(&self, rows: usize) -> Option<[usize; 2]> {
        match self.scaling {
            Scaling::None => None,
            Scaling::Tensor => Some([1, 1]),
            Scaling::Rows => Some([rows, self.columns]),
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a product of {} with K {} and N {}", self.numeric, self.inner, self.columns)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/matmul/product.rs"]
mod tests;
