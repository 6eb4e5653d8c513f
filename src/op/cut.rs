//! A row-major tensor, cut along one dimension into a part for every rank.

use crate::error::{Error, Result};
use crate::types::Dtype;

/// A tensor cut along one dimension: `rows` rows of `parts` parts side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Product of the dimensions before the cut one.
    rows: usize,
    /// Elements of one part in one row.
    part_elems: usize,
    parts: usize,
}

impl Cut {
    /// A tensor of one dimension.
    pub(crate) fn line(part_elems: usize, parts: usize) -> Self {
        Self { rows: 1, part_elems, parts }
    }

    /// A tensor whose parts have this shape.
    pub(crate) fn of_parts(shape: &[usize], dim: usize, parts: usize) -> Result<Self> {
        Self::of(shape, dim, parts, Ok)
    }

    /// A tensor of this shape, cut into `parts`.
    pub(crate) fn of_whole(shape: &[usize], dim: usize, parts: usize) -> Result<Self> {
        Self::of(shape, dim, parts, |len| match len.is_multiple_of(parts) {
            true => Ok(len / parts),
            false => {
                let limit = format!("it must be a multiple of the world size, {parts}");
                Err(Error::invalid(&format!("dimension {dim} of {shape:?}"), len, limit))
            }
        })
    }

    /// `part` gives the length of a part along the dimension, from its length in the shape.
    fn of(shape: &[usize], dim: usize, parts: usize, part: impl Fn(usize) -> Result<usize>) -> Result<Self> {
        let Some(len) = shape.get(dim) else {
            return Err(Error::invalid("the dimension", dim, format!("the shape {shape:?} has {}", shape.len())));
        };
        let product = |first: usize, dims: &[usize]| dims.iter().try_fold(first, |all, dim| all.checked_mul(*dim));
        let sizes = product(1, &shape[..dim]).zip(product(part(*len)?, &shape[dim + 1..]));
        let cut = sizes.map(|(rows, part_elems)| Self { rows, part_elems, parts });
        cut.filter(|cut| cut.whole_elems().is_some() && (cut.rows > 0 || cut.most_row_bytes().is_some()))
            .ok_or_else(|| Error::invalid("the shape", format!("{shape:?}"), "it has more elements than there can be"))
    }

    /// Bytes of a row of the whole, of the largest elements. A tensor without rows has no elements, with any other dimensions.
    fn most_row_bytes(self) -> Option<usize> {
        self.part_elems.checked_mul(self.parts)?.checked_mul(size_of::<u64>())
    }

    /// Elements of one part.
    pub(crate) fn part_elems(self) -> Option<usize> {
        self.rows.checked_mul(self.part_elems)
    }

    /// Elements of all parts.
    pub(crate) fn whole_elems(self) -> Option<usize> {
        self.part_elems()?.checked_mul(self.parts)
    }

    /// Whether every part is contiguous in the whole.
    pub(crate) fn is_line(self) -> bool {
        self.rows <= 1
    }

    /// The number of contiguous pieces of a part in the whole.
    #[cfg(feature = "nccl")]
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Offset of a part in the whole.
    pub(crate) fn offset_bytes(self, part: usize, dtype: Dtype) -> u64 {
        (part * self.part_elems * dtype.bytes()) as u64
    }

    /// How many parts there are.
    pub(crate) fn parts(self) -> usize {
        self.parts
    }

    /// Bytes of a row of a part, with `parts` side by side in the whole; 0 if parts are contiguous.
    pub(super) fn row_bytes(self, dtype: Dtype) -> u64 {
        if self.is_line() { 0 } else { (self.part_elems * dtype.bytes()) as u64 }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/op/cut.rs"]
mod tests;
