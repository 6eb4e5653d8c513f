//! Random data of every rank, and how far a result may be from the reference.

use symmetra::Reduction;
use symmetra::op::{Source, Stretch};

use crate::pattern::{PERIOD, Pattern};
use reference::bounds::{Bounds, GROUP};
use reference::element::Summand;

/// The data of all ranks for one size, made without the libraries that are measured.
pub(crate) struct CollectiveData<T> {
    ranks: Vec<Pattern<T>>,
    elems: usize,
}

impl<T: Summand> CollectiveData<T> {
    pub(crate) fn new(seed: u64, elems: usize, ranks: usize) -> Self {
        let of_rank = |rank: usize| Pattern::new((seed, elems, rank), elems, T::draw);
        Self { ranks: (0..ranks).map(of_rank).collect(), elems }
    }

    /// A rank's input.
    pub(crate) fn of(&self, rank: usize) -> Vec<T> {
        self.ranks[rank].elems(0..self.elems)
    }

    /// A value that no result has, so that an element that was not written is found.
    pub(crate) fn poison(elems: usize) -> Vec<T> {
        vec![bytemuck::pod_read_unaligned(&[0xa5; 8][..size_of::<T>()]); elems]
    }

    /// How many elements of `result` differ in a bit from the contents that `stretches` describe. Sums are in rank
    /// order, rounded once.
    pub(crate) fn count_unequal(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        self.count(result, stretches, |right, element, _| right.matches(element))
    }

    /// How many elements of `result` differ from the contents that `stretches` describe. A sum may be off by one unit
    /// roundoff of the sum of magnitudes for each rank: the bound for rounding after every addition, in any order.
    pub(crate) fn count_far(&self, result: &[T], stretches: &[Stretch]) -> u64 {
        let ranks = self.ranks.len() as f64;
        self.count(result, stretches, |right, element, summed| {
            let magnitude = || -> f64 { summed.iter().map(|value| value.wide().abs()).sum() };
            right.matches(element)
                || (!summed.is_empty() && (right.wide() - element.wide()).abs() <= ranks * T::ROUNDOFF * magnitude())
        })
    }

    /// How many elements of an all-reduce by a codec are further from the exact sum than the codec allows, in every
    /// `of`th group of elements from group `part` on: ranks whose bits are equal share this work.
    pub(crate) fn count_beyond(&self, bounds: &Bounds, result: &[T], [part, of]: [usize; 2]) -> u64 {
        let of_group = |(number, group): (usize, &[T])| {
            let start = number * GROUP;
            let of_rank = |values: &Pattern<T>| {
                values.elems(start..start + group.len()).into_iter().map(|value| value.wide()).collect()
            };
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
                    Source::Rank(rank) => self.ranks[*rank].values()[index],
                    Source::Reduced => {
                        summed.extend(self.ranks.iter().map(|values| values.values()[index]));
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
#[path = "../../../../tests/bench/unit/data.rs"]
mod tests;
