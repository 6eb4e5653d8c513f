//! Random data of every rank, and how far a result may be from what is made of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use half::{bf16, f16};
use symmetra::Reduction;

use super::course::{Source, Stretch};
use crate::element::Summand;

/// Data repeat after this many elements, a prime: so a message of a gigabyte is checked within
/// seconds, and no offset that a defect might have maps the data onto themselves.
const PERIOD: usize = 4_194_301;

/// The data of all ranks for one size, and what becomes of them: no byte of it went through a library.
pub(super) struct Data<T> {
    ranks: Vec<Vec<T>>,
    elems: usize,
}

impl<T: Summand + Wide> Data<T> {
    pub(super) fn new(seed: u64, elems: usize, ranks: usize) -> Self {
        let draw = |rank: usize| {
            let mut hasher = DefaultHasher::new();
            (seed, elems, rank).hash(&mut hasher);
            let mut random = Rng::with_seed(hasher.finish());
            (0..elems.min(PERIOD)).map(|_| T::draw(&mut random)).collect()
        };
        Self { ranks: (0..ranks).map(draw).collect(), elems }
    }

    /// A rank's input.
    pub(super) fn of(&self, rank: usize) -> Vec<T> {
        self.ranks[rank].iter().copied().cycle().take(self.elems).collect()
    }

    /// What no result is: an element that nobody writes is found.
    pub(super) fn poison(elems: usize) -> Vec<T> {
        vec![bytemuck::pod_read_unaligned(&[0xa5; 8][..size_of::<T>()]); elems]
    }

    /// How many elements of `result` differ in a bit from what these stretches say; sums are in rank
    /// order, rounded once.
    pub(super) fn count_unequal(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        self.count(result, stretches, |right, element, _| right.matches(element))
    }

    /// The same, but for elements of sums that are no further from those than a sum may be that is rounded
    /// after every addition, in any order: by one unit roundoff of the sum of magnitudes for each rank.
    pub(super) fn count_far(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        let ranks = self.ranks.len() as f64;
        self.count(result, stretches, |right, element, summed| {
            let magnitude = || -> f64 { summed.iter().map(|value| value.wide().abs()).sum() };
            right.matches(element)
                || (!summed.is_empty() && (right.wide() - element.wide()).abs() <= ranks * T::ROUNDOFF * magnitude())
        })
    }

    /// `right` is given what it must be, what it is, and the values whose sum it must be, if it is one.
    fn count(&self, result: &[T], stretches: &[Stretch], right: impl Fn(T, T, &[T]) -> bool) -> u64 {
        let len = stretches.iter().map(|stretch| stretch.at.len()).sum::<usize>();
        let mut wrong = len.abs_diff(result.len()) as u64;
        let mut summed = Vec::with_capacity(self.ranks.len());
        for Stretch { at, source, start } in stretches {
            let here = &result[at.start.min(result.len())..at.end.min(result.len())];
            let period = self.elems.clamp(1, PERIOD);
            for item in 0..period.min(here.len()) {
                let index = (start + item) % period;
                summed.clear();
                let must = match source {
                    Source::Rank(rank) => self.ranks[*rank][index],
                    Source::Sum => {
                        summed.extend(self.ranks.iter().map(|values| values[index]));
                        T::reduce(Reduction::Sum, summed.iter().copied())
                    }
                };
                wrong += here.iter().skip(item).step_by(period).filter(|is| !right(must, **is, &summed)).count() as u64;
            }
        }
        wrong
    }
}

/// An element as a number, for distances.
pub(super) trait Wide: Copy {
    /// Half the distance from 1 to the next number; 0 for integers, which are exact.
    const ROUNDOFF: f64;
    fn wide(self) -> f64;
}

macro_rules! wide {
    ($($element:ty, $digits:expr;)*) => {$(
        impl Wide for $element {
            const ROUNDOFF: f64 = $digits;
            fn wide(self) -> f64 {
                self.into()
            }
        }
    )*};
}

wide! {
    f32, f32::EPSILON as f64 / 2.0;
    f64, f64::EPSILON / 2.0;
    f16, 1.0 / 2048.0;
    bf16, 1.0 / 256.0;
    i8, 0.0;
    u8, 0.0;
    i32, 0.0;
    u32, 0.0;
}

macro_rules! wide_long {
    ($($element:ty)*) => {$(
        impl Wide for $element {
            const ROUNDOFF: f64 = 0.0;
            fn wide(self) -> f64 {
                self as f64
            }
        }
    )*};
}

wide_long! { i64 u64 }

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(elems: usize) -> Vec<Stretch> {
        vec![Stretch { at: 0..elems, source: Source::Sum, start: 0 }]
    }

    #[test]
    fn a_result_is_equal_near_or_far() {
        let data = Data::<f32>::new(3, 1000, 3);
        let inputs: Vec<_> = (0..3).map(|rank| data.of(rank)).collect();
        let counts =
            |result: &[f32]| (data.count_unequal(result, &sum_of(1000)), data.count_far(result, &sum_of(1000)));
        assert_ne!(inputs[0], inputs[1]);
        let mut sum: Vec<f32> = (0..1000).map(|item| inputs[0][item] + inputs[1][item] + inputs[2][item]).collect();
        assert_eq!(counts(&sum), (0, 0));
        sum[7] = f32::from_bits(sum[7].to_bits() ^ 1);
        assert_eq!(counts(&sum), (1, 0));
        sum[999] = f32::NAN;
        sum[0] += 1.0;
        assert_eq!(counts(&sum), (3, 2));
        assert_eq!(counts(&Data::poison(1000)).1, 1000);
        assert_eq!(counts(&sum[..999]).1, 2);
    }

    #[test]
    fn what_was_moved_is_equal_or_wrong() {
        let data = Data::<f32>::new(3, 100, 3);
        let of = |source, at: std::ops::Range<usize>, start| Stretch { at, source: Source::Rank(source), start };
        let stretches = [of(2, 0..50, 50), of(0, 50..150, 0)];
        let mut result = [&data.of(2)[50..], &data.of(0)].concat();
        assert_eq!((data.count_unequal(&result, &stretches), data.count_far(&result, &stretches)), (0, 0));
        result[60] = f32::from_bits(result[60].to_bits() ^ 1);
        assert_eq!((data.count_unequal(&result, &stretches), data.count_far(&result, &stretches)), (1, 1));
        assert_eq!(data.count_far(&result[..100], &stretches), 51);
    }

    #[test]
    fn data_repeat_after_their_period() {
        let elems = PERIOD + 10;
        let data = Data::<i32>::new(5, elems, 2);
        let (one, two) = (data.of(0), data.of(1));
        assert_eq!((one.len(), one[..10].to_vec()), (elems, one[PERIOD..].to_vec()));
        let mut sum: Vec<i32> = one.iter().zip(&two).map(|(one, two)| one.wrapping_add(*two)).collect();
        assert_eq!(data.count_unequal(&sum, &sum_of(elems)), 0);
        let end = [Stretch { at: 0..20, source: Source::Sum, start: PERIOD - 10 }];
        assert_eq!(data.count_unequal(&sum[PERIOD - 10..], &end), 0);
        sum[PERIOD + 3] ^= 1;
        assert_eq!((data.count_unequal(&sum, &sum_of(elems)), data.count_far(&sum, &sum_of(elems))), (1, 1));
        assert_eq!(data.count_unequal(&sum[PERIOD - 10..], &end), 1);
    }
}
