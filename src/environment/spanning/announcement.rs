//! What a rank is about to do between hosts, told before: an engine trusts sizes, and ends the process
//! where they differ.

use std::fmt;

use crate::types::{Dtype, Reduction};

/// A step between hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    /// 0 for objects, of which each rank has its own number of bytes; else one more than the reduction's.
    kind: u64,
    dtype: u64,
    pub(super) bytes: u64,
}

impl Announcement {
    pub(super) fn objects(bytes: usize) -> Self {
        Self { kind: 0, dtype: 0, bytes: bytes as u64 }
    }

    pub(super) fn all_reduce(dtype: Dtype, reduction: Reduction, elems: usize) -> Self {
        let (kind, bytes) = (1 + reduction as u64, elems * dtype.bytes());
        Self { kind, dtype: dtype as u64, bytes: bytes as u64 }
    }

    /// As it travels.
    pub(super) fn to_words(self) -> [u64; 3] {
        [self.kind, self.dtype, self.bytes]
    }

    pub(super) fn from_words([kind, dtype, bytes]: [u64; 3]) -> Self {
        Self { kind, dtype, bytes }
    }

    /// Whether two ranks may go on.
    pub(super) fn fits(&self, other: &Self) -> bool {
        self == other || (self.kind == 0 && other.kind == 0)
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: u64| u32::try_from(number).ok();
        let reduction = self.kind.checked_sub(1).and_then(number).and_then(Reduction::from_number);
        let dtype = number(self.dtype).and_then(Dtype::from_number);
        match (reduction, dtype) {
            (Some(reduction), Some(dtype)) => {
                write!(out, "an all-reduce ({reduction}) of {} bytes of {dtype}", self.bytes)
            }
            _ => out.write_str("an exchange of objects"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_may_differ_in_length() {
        let sum = |elems| Announcement::all_reduce(Dtype::F16, Reduction::Sum, elems);
        assert!(sum(3).fits(&sum(3)) && Announcement::objects(1).fits(&Announcement::objects(9)));
        let others = [sum(4), Announcement::all_reduce(Dtype::F16, Reduction::Max, 3), Announcement::objects(6)];
        assert!(!others.iter().any(|other| sum(3).fits(other) || other.fits(&sum(3))));
        assert!(!sum(3).fits(&Announcement::all_reduce(Dtype::BF16, Reduction::Sum, 3)));
        assert!(Announcement::from_words(sum(3).to_words()) == sum(3));
        assert_eq!(sum(3).to_string(), "an all-reduce (sum) of 6 bytes of f16");
        assert_eq!(Announcement::objects(6).to_string(), "an exchange of objects");
    }
}
