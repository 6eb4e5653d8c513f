//! The data of every rank, from seeds alone, and the comparison of a result with what it must be: no
//! byte of it went through the library.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use symmetra::Reduction;

use crate::element::Summand;

/// Names the data of one size of one run.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub(super) seed: u64,
    pub(super) elems: usize,
}

impl Data {
    fn random(self, rank: usize) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.elems, rank).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// A rank's input.
    pub(super) fn of<T: Summand>(self, rank: usize) -> Vec<T> {
        let mut random = self.random(rank);
        (0..self.elems).map(|_| T::draw(&mut random)).collect()
    }

    /// How many elements of `result` are not the reduction over all ranks.
    pub(super) fn count_wrong<T: Summand>(self, reduction: Reduction, ranks: usize, result: &[T]) -> u64 {
        let mut randoms: Vec<Rng> = (0..ranks).map(|rank| self.random(rank)).collect();
        let mut wrong = self.elems.abs_diff(result.len()) as u64;
        for element in result {
            let right = T::reduce(reduction, randoms.iter_mut().map(T::draw));
            wrong += u64::from(!right.matches(*element));
        }
        wrong
    }
}

/// Equal for equal bits, in every process of this program.
pub(super) fn checksum<T: bytemuck::Pod>(values: &[T]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytemuck::cast_slice(values));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_wrong_element() {
        let data = Data { seed: 3, elems: 100 };
        let inputs: Vec<Vec<f32>> = (0..3).map(|rank| data.of(rank)).collect();
        assert_ne!(inputs[0], inputs[1]);
        let mut sum: Vec<f32> = (0..100).map(|item| inputs[0][item] + inputs[1][item] + inputs[2][item]).collect();
        assert_eq!(data.count_wrong(Reduction::Sum, 3, &sum), 0);
        let right = checksum(&sum);
        sum[7] = f32::from_bits(sum[7].to_bits() ^ 1);
        sum[99] = f32::NAN;
        assert_eq!(data.count_wrong(Reduction::Sum, 3, &sum), 2);
        assert_eq!(data.count_wrong(Reduction::Sum, 3, &sum[..50]), 51);
        assert_ne!(checksum(&sum), right);
    }
}
