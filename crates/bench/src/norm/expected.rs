//! Random data of every rank, and the expected results of operations: a residual to which every operation adds the same
//! sum, and the norm of the last operation.

use symmetra::{Algorithm, Reduction};

use harness::norms::NormKind;
use reference::data::Data;
use reference::element::Real;
use reference::found::unlike;
use reference::norm::{biased, with_residual};

/// The data of one number of tokens.
pub(super) struct NormInputs<T> {
    data: Data,
    ranks: usize,
    own: Vec<T>,
    residual: Vec<T>,
    weight: Vec<T>,
    bias: Option<Vec<T>>,
    norm: NormKind,
}

impl<T: Real> NormInputs<T> {
    /// The inputs of `rank`, of `elems` elements in rows as long as the weight.
    pub(super) fn new(norm: NormKind, seed: u64, elems: usize, hidden: usize, [rank, ranks]: [usize; 2]) -> Self {
        let data = Data { seed, elems };
        Self {
            data,
            ranks,
            own: data.of(rank),
            residual: Data { seed: seed ^ 1, elems }.of(0),
            weight: Data { seed: seed ^ 2, elems: hidden }.of(0),
            bias: norm.bias(Data { seed: seed ^ 3, elems: hidden }),
            norm,
        }
    }

    /// The input of this rank.
    pub(super) fn own(&self) -> &[T] {
        &self.own
    }

    /// The residual of all rows.
    pub(super) fn residual(&self) -> &[T] {
        &self.residual
    }

    pub(super) fn weight(&self) -> &[T] {
        &self.weight
    }

    /// The bias, if the norm has any.
    pub(super) fn bias(&self) -> Option<&[T]> {
        self.bias.as_deref()
    }

    /// The sum of the inputs of all ranks by an algorithm.
    pub(super) fn sum(&self, algorithm: Algorithm) -> Vec<T> {
        self.data.reduced(Reduction::Sum, self.ranks, algorithm, 0).collect()
    }

    /// Counts the sums of the elements from `first` on that differ from the expected sum. If the algorithm is known the
    /// comparison is bitwise, else a sum may differ by one unit roundoff of the sum of magnitudes for each rank: the
    /// bound for rounding after each addition, in any order.
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

    /// The results of `operations` operations with this sum: the final residual, and the norm of the last operation.
    pub(super) fn expected(&self, sum: &[T], operations: u32) -> [Vec<T>; 2] {
        let x = (0..operations).fold(self.residual.clone(), |x, _| with_residual(sum, Some(&x)));
        let y = biased(&x, &self.weight, self.bias(), self.norm.norm(0.0));
        [x, y]
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/norm_expected.rs"]
mod tests;
