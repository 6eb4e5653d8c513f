//! Random data of every rank, drawn from seeds, and the comparison of results with an independent reference.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use symmetra::{Algorithm, Reduction};

use super::bounds::{Bounds, GROUP};
use crate::element::Summand;

/// Names the data of one size of one run.
#[derive(Clone, Copy)]
pub struct Data {
    pub seed: u64,
    pub elems: usize,
}

impl Data {
    fn random(self, rank: usize) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.elems, rank).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// A rank's input.
    pub fn of<T: Summand>(self, rank: usize) -> Vec<T> {
        let mut random = self.random(rank);
        (0..self.elems).map(|_| T::draw(&mut random)).collect()
    }

    /// The result of the algorithm for the inputs of all ranks, from element `start` on.
    pub fn reduced<T: Summand>(
        self,
        reduction: Reduction,
        ranks: usize,
        algorithm: Algorithm,
        start: usize,
    ) -> impl Iterator<Item = T> {
        let mut randoms: Vec<Rng> = (0..ranks).map(|rank| self.random(rank)).collect();
        for random in &mut randoms {
            (0..start).map(|_| T::draw(random)).for_each(|_| ());
        }
        let mut values = Vec::with_capacity(ranks);
        (start..self.elems).map(move |index| {
            values.clear();
            values.extend(randoms.iter_mut().map(T::draw));
            reduced_by(algorithm, reduction, &values, [index, self.elems])
        })
    }

    /// How many elements of `result` differ from the result of the algorithm for the inputs of all ranks, from element
    /// `start` on.
    pub fn count_wrong<T: Summand>(
        self,
        reduction: Reduction,
        ranks: usize,
        algorithm: Algorithm,
        start: usize,
        result: &[T],
    ) -> u64 {
        let right = self.reduced::<T>(reduction, ranks, algorithm, start);
        result.iter().zip(right).filter(|(element, right)| !right.matches(**element)).count() as u64
    }

    /// How many elements of an all-reduce by a codec are further from the exact result than the codec allows.
    pub fn count_beyond<T: Summand>(self, bounds: &Bounds, ranks: usize, result: &[T]) -> u64 {
        let inputs: Vec<Vec<T>> = (0..ranks).map(|rank| self.of::<T>(rank)).collect();
        let of_group = |(number, group): (usize, &[T])| {
            let of_rank =
                |input: &Vec<T>| input[number * GROUP..][..group.len()].iter().map(|value| value.wide()).collect();
            bounds.count_beyond(&inputs.iter().map(of_rank).collect::<Vec<_>>(), group)
        };
        result.chunks(GROUP).enumerate().map(of_group).sum()
    }

    /// How many elements of `result` differ from a rank's input, from element `start` on.
    pub fn count_unlike<T: Summand>(self, rank: usize, start: usize, result: &[T]) -> u64 {
        let mut random = self.random(rank);
        (0..start).map(|_| T::draw(&mut random)).for_each(|_| ());
        result.iter().filter(|element| !T::draw(&mut random).matches(**element)).count() as u64
    }
}

/// The result of an algorithm for one element. `values` has the element of every rank. `place`: the number of the
/// element, and the number of elements.
pub fn reduced_by<T: Summand>(algorithm: Algorithm, reduction: Reduction, values: &[T], place: [usize; 2]) -> T {
    match algorithm {
        Algorithm::Ring if values.len() > 1 => around(reduction, values, place),
        Algorithm::RecursiveDoubling if values.len() > 1 => doubled(reduction, values.to_vec()),
        _ => T::reduce(reduction, values.iter().copied()),
    }
}

/// The result of a ring. The sum starts at the rank with the number of the element's chunk and is rounded at every rank.
fn around<T: Summand>(reduction: Reduction, values: &[T], [index, elems]: [usize; 2]) -> T {
    // A call takes 8 GiB at most, and chunks are of whole packets of 16 bytes.
    let (call, packet, ranks) = ((1 << 33) / size_of::<T>(), 16 / size_of::<T>(), values.len());
    let elems = call.min(elems - index / call * call);
    let first = index % call / packet / elems.div_ceil(packet).div_ceil(ranks);
    let at = |step: usize| values[(first + step) % ranks];
    let partial = (1..ranks - 1).fold(at(0), |partial, step| pair(reduction, [partial, at(step)]));
    T::reduce_over(reduction, [partial, at(ranks - 1)].into_iter(), ranks)
}

/// The reduction of two of several values, rounded: a partial sum is not an average yet.
fn pair<T: Summand>(reduction: Reduction, both: [T; 2]) -> T {
    let reduction = if reduction == Reduction::Average { Reduction::Sum } else { reduction };
    T::reduce(reduction, both.into_iter())
}

/// The result by recursive doubling: ranks beyond a power of two join the first ones, then
/// neighbours, neighbouring pairs and so on, rounded every time.
fn doubled<T: Summand>(reduction: Reduction, mut values: Vec<T>) -> T {
    let mut core = 1 << values.len().ilog2();
    for beyond in core..values.len() {
        values[beyond - core] = pair(reduction, [values[beyond - core], values[beyond]]);
    }
    while core > 2 {
        core /= 2;
        (0..core).for_each(|rank| values[rank] = pair(reduction, [values[2 * rank], values[2 * rank + 1]]));
    }
    T::reduce_over(reduction, values[..2].iter().copied(), values.len())
}

/// A checksum that is equal for equal bits, in every process of this program.
pub fn checksum<T: bytemuck::Pod>(values: &[T]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytemuck::cast_slice(values));
    hasher.finish()
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/data.rs"]
mod tests;
