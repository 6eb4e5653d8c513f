//! Random data of every rank, and how far a result may be from the reference.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use symmetra::Reduction;
use symmetra::op::{Source, Stretch};

use reference::bounds::{Bounds, GROUP};
use reference::element::Summand;

/// Data repeat after this many elements, a prime: so a message of a gigabyte is checked within
/// seconds, and no offset that a defect might have maps the data onto themselves.
const PERIOD: usize = 4_194_301;

/// The data of all ranks for one size, made without the libraries that are measured.
pub(super) struct Data<T> {
    ranks: Vec<Vec<T>>,
    elems: usize,
}

impl<T: Summand> Data<T> {
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

    /// A value that no result has, so that an element that was not written is found.
    pub(super) fn poison(elems: usize) -> Vec<T> {
        vec![bytemuck::pod_read_unaligned(&[0xa5; 8][..size_of::<T>()]); elems]
    }

    /// How many elements of `result` differ in a bit from the contents that `stretches` describe. Sums are in rank
    /// order, rounded once.
    pub(super) fn count_unequal(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        self.count(result, stretches, |right, element, _| right.matches(element))
    }

    /// How many elements of `result` differ from the contents that `stretches` describe. A sum may be off by one unit
    /// roundoff of the sum of magnitudes for each rank: the bound for rounding after every addition, in any order.
    pub(super) fn count_far(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        let ranks = self.ranks.len() as f64;
        self.count(result, stretches, |right, element, summed| {
            let magnitude = || -> f64 { summed.iter().map(|value| value.wide().abs()).sum() };
            right.matches(element)
                || (!summed.is_empty() && (right.wide() - element.wide()).abs() <= ranks * T::ROUNDOFF * magnitude())
        })
    }

    /// How many elements of an all-reduce by a codec are further from the exact sum than the codec allows, in every
    /// `of`th group of elements from group `part` on: ranks whose bits are equal share this work.
    pub(super) fn count_beyond(&self, bounds: &Bounds, result: &[T], [part, of]: [usize; 2]) -> u64 {
        let of_group = |(number, group): (usize, &[T])| {
            let value = |values: &Vec<T>, index: usize| values[(number * GROUP + index) % values.len()].wide();
            let of_rank = |values| (0..group.len()).map(|index| value(values, index)).collect();
            bounds.count_beyond(&self.ranks.iter().map(of_rank).collect::<Vec<_>>(), group)
        };
        let missing = self.elems.abs_diff(result.len()) as u64;
        missing + result.chunks(GROUP).enumerate().skip(part).step_by(of).map(of_group).sum::<u64>()
    }

    /// `right` gets the expected element, the actual one, and the values of which the expected element is the sum, if any.
    fn count(&self, result: &[T], stretches: &[Stretch], right: impl Fn(T, T, &[T]) -> bool) -> u64 {
        let len = stretches.iter().map(|stretch| stretch.count).sum::<usize>();
        let mut wrong = len.abs_diff(result.len()) as u64;
        let mut summed = Vec::with_capacity(self.ranks.len());
        for Stretch { at, source, start, count } in stretches {
            let here = &result[(*at).min(result.len())..(at + count).min(result.len())];
            let period = self.elems.clamp(1, PERIOD);
            for item in 0..period.min(here.len()) {
                let index = (start + item) % period;
                summed.clear();
                let must = match source {
                    Source::Rank(rank) => self.ranks[*rank][index],
                    Source::Reduced => {
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

#[cfg(test)]
#[path = "../../../tests/bench/unit/data.rs"]
mod tests;
