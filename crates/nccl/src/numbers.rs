//! The numbers of element types, reductions and ranks.

use std::ffi::c_int;

use symmetra::{Dtype, Reduction};

use crate::error::{Result, argument};

/// The element types in the order of their numbers in NCCL.
const DTYPES: [Dtype; 12] = [
    Dtype::I8,
    Dtype::U8,
    Dtype::I32,
    Dtype::U32,
    Dtype::I64,
    Dtype::U64,
    Dtype::F16,
    Dtype::F32,
    Dtype::F64,
    Dtype::BF16,
    Dtype::F8E4M3,
    Dtype::F8E5M2,
];

/// The element type with a number of NCCL.
pub(crate) fn dtype(number: c_int) -> Result<Dtype> {
    let found = usize::try_from(number).ok().and_then(|index| DTYPES.get(index));
    found.copied().ok_or_else(|| argument("the type", number, format!("types are 0 to {}", DTYPES.len() - 1)))
}

/// The reductions in the order of their numbers in NCCL.
const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min, Reduction::Average];

/// The first number of a reduction that the program makes.
pub(crate) const FIRST_USER_REDUCTION: c_int = REDUCTIONS.len() as c_int;

/// The reduction with a number of NCCL. `None`: no reduction of NCCL.
pub(crate) fn reduction(number: c_int) -> Option<Reduction> {
    usize::try_from(number).ok().and_then(|index| REDUCTIONS.get(index)).copied()
}

/// The rank with a number, of `ranks` ranks.
pub(crate) fn rank(what: &str, number: c_int, ranks: usize) -> Result<usize> {
    let found = usize::try_from(number).ok().filter(|rank| *rank < ranks);
    found.ok_or_else(|| argument(what, number, format!("ranks are 0 to {}", ranks - 1)))
}
