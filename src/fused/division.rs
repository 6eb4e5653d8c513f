//! The division of a tensor among the ranks.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::op::Cut;

/// A tensor that is cut along one dimension, a part for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// The shape of the whole.
    pub(super) shape: Vec<usize>,
    /// The dimension along which the tensor is cut.
    pub(super) dim: usize,
    /// The length of each rank's part along that dimension.
    pub(super) lens: Vec<usize>,
}

/// The most bytes of one buffer of a plan. A plan has at most three buffers, so the rounded sum of all does not overflow.
const MOST_BYTES: usize = isize::MAX as usize / 4;

/// Refuses shapes whose byte counts would overflow, for elements of at most four bytes and a buffer with this shape for each of
/// `world` ranks.
pub(super) fn check_bytes(shape: &[usize], world: usize) -> Result<()> {
    // A dimension of 0 counts as 1, because the other dimensions are also multiplied without it.
    let elems = shape.iter().try_fold(1usize, |all, len| all.checked_mul((*len).max(1)));
    let bytes = elems.and_then(|elems| elems.checked_mul(4)?.checked_mul(world.max(1)));
    match bytes {
        Some(bytes) if bytes <= MOST_BYTES => Ok(()),
        _ => {
            let limit = format!("4 bytes an element for each of {world} ranks must be at most {MOST_BYTES}");
            Err(Error::invalid("the shape", format!("{shape:?}"), limit))
        }
    }
}

impl Division {
    /// From the shape of this rank's part.
    pub(super) fn of_part(
        part: &[usize],
        dim: usize,
        rows: Option<&[usize]>,
        rank: usize,
        world: usize,
    ) -> Result<Self> {
        let len = length(part, dim)?;
        let lens = match rows {
            None => vec![len; world],
            Some(rows) => check_rows(rows, world)?,
        };
        if lens[rank] != len {
            let what = format!("dimension {dim} of {part:?}");
            return Err(Error::invalid(&what, len, format!("rows[{rank}] is {}", lens[rank])));
        }
        Self::new(part, dim, lens)
    }

    /// From the shape of the whole.
    pub(super) fn of_whole(whole: &[usize], dim: usize, rows: Option<&[usize]>, world: usize) -> Result<Self> {
        let len = length(whole, dim)?;
        let lens = match rows {
            None => {
                // Fails if the world size does not divide the dimension.
                Cut::of_whole(whole, dim, world)?;
                vec![len / world; world]
            }
            Some(rows) => check_rows(rows, world)?,
        };
        let division = Self::new(whole, dim, lens)?;
        match division.shape[dim] {
            sum if sum == len => Ok(division),
            sum => Err(Error::invalid("the sum of rows", sum, format!("dimension {dim} of {whole:?} is {len}"))),
        }
    }

    fn new(shape: &[usize], dim: usize, lens: Vec<usize>) -> Result<Self> {
        let mut shape = shape.to_vec();
        let sum = lens.iter().try_fold(0usize, |sum, len| sum.checked_add(*len));
        let sum = sum.ok_or_else(|| {
            Error::invalid("the sum of rows", format!("{lens:?}"), format!("it must be at most {}", usize::MAX))
        })?;
        shape[dim] = sum;
        check_bytes(&shape, lens.len())?;
        let division = Self { shape, dim, lens };
        if !division.is_equal() && !division.is_contiguous() {
            let what = format!("parts of lengths {:?} along dimension {dim} of {:?}", division.lens, division.shape);
            return Err(Error::unsupported(what, "dimensions before the cut one must be 1"));
        }
        Ok(division)
    }

    /// Whether all parts are equally long.
    pub(super) fn is_equal(&self) -> bool {
        self.lens.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whether each part is contiguous in the whole.
    pub(super) fn is_contiguous(&self) -> bool {
        self.shape[..self.dim].iter().all(|len| *len == 1)
    }

    /// Whether the cut dimension is the last, so that each row is cut.
    pub(super) fn cuts_rows(&self) -> bool {
        self.dim + 1 == self.shape.len()
    }

    /// Elements of the whole.
    pub(super) fn elems(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements for each unit of length along the cut dimension.
    fn unit(&self) -> usize {
        let others = self.shape.iter().enumerate().filter(|(dim, _)| *dim != self.dim);
        others.map(|(_, len)| len).product()
    }

    /// Elements of a part.
    pub(super) fn part_elems(&self, rank: usize) -> usize {
        self.lens[rank] * self.unit()
    }

    /// Elements of the largest part.
    pub(super) fn largest_part(&self) -> usize {
        self.lens.iter().max().unwrap_or(&0) * self.unit()
    }

    /// The range of a contiguous part in the whole, in elements.
    pub(super) fn part(&self, rank: usize) -> std::ops::Range<usize> {
        let start = self.lens[..rank].iter().sum::<usize>() * self.unit();
        start..start + self.part_elems(rank)
    }

    /// The shape of an equal part.
    pub(super) fn part_shape(&self, rank: usize) -> SmallVec<[usize; 8]> {
        let mut shape = SmallVec::from_slice(&self.shape);
        shape[self.dim] = self.lens[rank];
        shape
    }

    /// This division, for a tensor whose last dimension has length `len`, or is removed for `None`.
    pub(super) fn with_last(&self, len: Option<usize>) -> Self {
        let mut shape = self.shape.clone();
        shape.pop();
        shape.extend(len);
        Self { shape, dim: self.dim, lens: self.lens.clone() }
    }
}

fn length(shape: &[usize], dim: usize) -> Result<usize> {
    if shape.len() < 2 {
        return Err(Error::invalid("the number of dimensions", shape.len(), "a matrix has 2 or more"));
    }
    let len = shape.get(dim).copied();
    len.ok_or_else(|| Error::invalid("the dimension", dim, format!("the shape {shape:?} has {}", shape.len())))
}

fn check_rows(rows: &[usize], world: usize) -> Result<Vec<usize>> {
    match rows.len() == world {
        true => Ok(rows.to_vec()),
        false => Err(Error::invalid("the length of rows", rows.len(), format!("the world size is {world}"))),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/fused/division.rs"]
mod tests;
