//! Random data of every rank, and what operations must leave: a residual that the same sum is added to by every operation,
//! and the norm of the last.

use symmetra::{Algorithm, Reduction};

use super::NORM;
use reference::data::Data;
use reference::found::unlike;
use reference::norm::{Rows, normed, with_residual};

/// The data of one number of tokens.
pub(super) struct Inputs<T> {
    data: Data,
    ranks: usize,
    own: Vec<T>,
    residual: Vec<T>,
    weight: Vec<T>,
}

impl<T: Rows> Inputs<T> {
    /// Those of `rank`, of so many elements in rows as long as the weight.
    pub(super) fn new(seed: u64, elems: usize, hidden: usize, [rank, ranks]: [usize; 2]) -> Self {
        let data = Data { seed, elems };
        Self {
            data,
            ranks,
            own: data.of(rank),
            residual: Data { seed: seed ^ 1, elems }.of(0),
            weight: Data { seed: seed ^ 2, elems: hidden }.of(0),
        }
    }

    /// The input of this rank.
    pub(super) fn own(&self) -> &[T] {
        &self.own
    }

    /// Of all rows.
    pub(super) fn residual(&self) -> &[T] {
        &self.residual
    }

    pub(super) fn weight(&self) -> &[T] {
        &self.weight
    }

    /// What an algorithm must make of the inputs of all ranks.
    pub(super) fn sum(&self, algorithm: Algorithm) -> Vec<T> {
        self.data.reduced(Reduction::Sum, self.ranks, algorithm, 0).collect()
    }

    /// How many sums, those of the elements from `first` on, are not those of an algorithm; where it is unknown, those that
    /// are further from the sum than rounding after each addition, in any order, may lead: one unit roundoff of the sum of
    /// magnitudes for each rank.
    pub(super) fn wrong_sums(&self, found: &[T], first: usize, algorithm: Option<Algorithm>) -> u64 {
        let elems = first..first + found.len();
        let right = &self.sum(algorithm.unwrap_or_default())[elems.clone()];
        if algorithm.is_some() {
            return unlike(found, right);
        }
        let mut magnitudes = vec![0.0; found.len()];
        for rank in 0..self.ranks {
            let values: Vec<T> = self.data.of(rank);
            magnitudes.iter_mut().zip(&values[elems.clone()]).for_each(|(sum, value)| *sum += value.wide().abs());
        }
        let slack = self.ranks as f64 * T::ROUNDOFF;
        let near = |found: T, right: T, magnitude| (found.wide() - right.wide()).abs() <= slack * magnitude;
        let all = found.iter().zip(right).zip(magnitudes);
        all.filter(|((found, right), magnitude)| !near(**found, **right, *magnitude)).count() as u64
    }

    /// What so many operations make of this sum: the residual that they leave, and the norm of the last.
    pub(super) fn expected(&self, sum: &[T], operations: u32) -> [Vec<T>; 2] {
        let x = (0..operations).fold(self.residual.clone(), |x, _| with_residual(sum, &x));
        let y = normed(&x, &self.weight, NORM);
        [x, y]
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/norm_expected.rs"]
mod tests;
