//! Element ranges of buffers.

use std::fmt::Debug;
use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, Result};

pub(super) fn within(bounds: impl RangeBounds<usize> + Debug, len: usize) -> Result<Range<usize>> {
    let start = match bounds.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match bounds.end_bound() {
        Bound::Included(last) => last.checked_add(1),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        _ => Err(Error::invalid("the range", format!("{bounds:?}"), format!("there are {len} elements"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_every_kind() {
        assert_eq!(within(.., 5), Ok(0..5));
        assert_eq!(within(2.., 5), Ok(2..5));
        assert_eq!(within(..=2, 5), Ok(0..3));
        assert_eq!(within((Bound::Excluded(1), Bound::Unbounded), 5), Ok(2..5));
        assert_eq!(within(5..5, 5), Ok(5..5));
        assert_eq!(within(.., 0), Ok(0..0));
        let words = |error: Result<Range<usize>>| error.unwrap_err().to_string();
        assert_eq!(words(within(3..6, 5)), "invalid argument: the range is 3..6, but there are 5 elements");
        assert!(
            within(..=usize::MAX, 5).is_err() && within((Bound::Excluded(usize::MAX), Bound::Unbounded), 5).is_err()
        );
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = within(3..2, 5);
        assert!(reversed.is_err());
    }
}
