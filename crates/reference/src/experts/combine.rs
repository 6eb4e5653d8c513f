//! The output of a rank after a combine.

use symmetra::Determinism;
use symmetra::experts::ExpertConfig;

use super::arrivals::{Arrivals, RoutedPair, is_by_token};
use crate::element::Real;

/// The output of a combine before the call.
#[derive(Clone, Copy, Debug)]
pub struct SumsBefore<'a, T> {
    /// `[tokens, hidden]`, of all tokens of the rank.
    pub rows: &'a [T],
    /// Whether the rows are added to the sums.
    pub adds: bool,
    /// The number of tokens that take part.
    pub tokens: usize,
}

/// The output of `rank`. `result(rank, row)`: the result of the experts of a rank for a received row. Exact sums are in
/// the order of a token's experts. Other sums are first made and rounded on each rank, then added in the order of ranks.
pub fn combined<T: Real, R: AsRef<[T]>>(
    form: &ExpertConfig,
    arrivals: &[Arrivals],
    rank: usize,
    before: SumsBefore<'_, T>,
    result: impl Fn(usize, usize) -> R,
) -> Vec<T> {
    let mut of_tokens: Vec<Vec<(usize, RoutedPair)>> = vec![Vec::new(); before.tokens];
    for (from, arrivals) in arrivals.iter().enumerate() {
        let own = arrivals.pairs.iter().filter(|pair| pair.source == rank);
        own.for_each(|pair| of_tokens[pair.token].push((from, *pair)));
    }
    let add = |sums: &mut [f32], (from, pair): &(usize, RoutedPair), weight: f32| {
        let result = result(*from, pair.row);
        sums.iter_mut().zip(result.as_ref()).for_each(|(sum, value)| *sum += value.single() * weight);
    };
    let mut output = before.rows.to_vec();
    for (mut pairs, output) in of_tokens.into_iter().zip(output.chunks_mut(form.hidden)) {
        let mut sums = vec![0f32; form.hidden];
        if is_by_token(form) {
            // The experts of a rank have summed already.
            for of_rank in pairs.chunk_by(|one, other| one.0 == other.0) {
                add(&mut sums, &of_rank[0], 1.0);
            }
        } else if form.determinism == Some(Determinism::Exact) {
            pairs.sort_by_key(|(_, pair)| pair.k);
            pairs.iter().for_each(|pair| add(&mut sums, pair, pair.1.weight));
        } else {
            for of_rank in pairs.chunk_by(|one, other| one.0 == other.0) {
                let mut part = vec![0f32; form.hidden];
                of_rank.iter().for_each(|pair| add(&mut part, pair, pair.1.weight));
                sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += T::of_single(part).single());
            }
        }
        for (output, sum) in output.iter_mut().zip(sums) {
            *output = T::of_single(if before.adds { sum + output.single() } else { sum });
        }
    }
    output
}
