//! Random values that repeat.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use fastrand::Rng;

/// Values repeat after this many, a prime: no two rows of a matrix are equal, and no offset that a defect might have maps
/// the values onto themselves. Drawing all values of a gigabyte would take minutes.
pub(crate) const PERIOD: usize = 4_194_301;

/// The random values of a matrix or a message.
pub(crate) struct Pattern<T>(Vec<T>);

impl<T: Copy> Pattern<T> {
    /// Values of `elems` elements, which follow from `drawn_from`.
    pub(crate) fn new(drawn_from: impl Hash, elems: usize, mut draw: impl FnMut(&mut Rng) -> T) -> Self {
        let mut hasher = DefaultHasher::new();
        drawn_from.hash(&mut hasher);
        let mut random = Rng::with_seed(hasher.finish());
        Self((0..elems.min(PERIOD)).map(|_| draw(&mut random)).collect())
    }

    /// These elements.
    pub(crate) fn elems(&self, range: Range<usize>) -> Vec<T> {
        let mut elems = Vec::with_capacity(range.len());
        let mut next = range.start % self.0.len().max(1);
        while elems.len() < range.len() && !self.0.is_empty() {
            let here = &self.0[next..];
            elems.extend_from_slice(&here[..here.len().min(range.len() - elems.len())]);
            next = 0;
        }
        elems
    }

    /// The values of a period, or of all elements if there are fewer.
    pub(crate) fn values(&self) -> &[T] {
        &self.0
    }
}
