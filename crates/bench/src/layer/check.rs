//! The verification of a candidate: each step of its last layer by the definition, at sampled rows and columns, and all
//! final rows by those of another candidate.

use std::cell::OnceCell;
use std::ops::Range;

use symmetra::half::bf16;
use symmetra::{Communicator, Ref, Stream};

use super::NORM;
use super::bounds::{Dot, far, is_sum, unlike};
use super::operands::LayerOperands;
use super::shape::Half;
use super::sides::LayerSide;
use super::weights::Drawn;
use crate::pattern::Pattern;
use reference::found;
use reference::norm::normed;

/// How many rows, and columns of each product, are compared with the definition.
const SAMPLES: usize = 8;

/// The final rows of this rank.
struct Ends {
    kept: Range<usize>,
    x: Vec<bf16>,
    normed_rows: Range<usize>,
    normed: Vec<bf16>,
}

/// The reference of all candidates, for one number of tokens.
pub(super) struct Check<'a> {
    communicator: &'a Communicator,
    operands: &'a LayerOperands,
    drawn: Drawn,
    halves: usize,
    /// The right factors of the last layer.
    factors: [[Pattern<bf16>; 2]; 2],
    /// Sampled rows, in ascending order, equal on all ranks.
    rows: Vec<usize>,
    /// The final rows of the first candidate that was verified.
    first: OnceCell<Ends>,
}

impl<'a> Check<'a> {
    pub(super) fn new(communicator: &'a Communicator, operands: &'a LayerOperands, drawn: Drawn, layers: u32) -> Self {
        let halves = 2 * layers as usize;
        let mut random = fastrand::Rng::with_seed(drawn.seed ^ operands.tokens as u64);
        let (tokens, strata) = (operands.tokens, operands.tokens.min(SAMPLES));
        // One of each stretch of rows, so that the samples include rows of every rank.
        let row = |stratum: usize| random.usize(stratum * tokens / strata..(stratum + 1) * tokens / strata);
        Self {
            communicator,
            operands,
            drawn,
            halves,
            factors: [drawn.factors(halves - 2), drawn.factors(halves - 1)],
            rows: (0..strata).map(row).collect(),
            first: OnceCell::new(),
        }
    }

    /// How many elements are wrong after all layers. Collective; blocks.
    pub(super) fn wrong(&self, side: &LayerSide<'_>, stream: &Stream) -> symmetra::Result<u64> {
        let mut wrong = 0;
        for number in self.halves - 2..self.halves {
            wrong += self.wrong_in_half(side, number, stream)?;
        }
        Ok(wrong + self.wrong_ends(side, stream)?)
    }

    fn wrong_in_half(&self, side: &LayerSide<'_>, number: usize, stream: &Stream) -> symmetra::Result<u64> {
        let (operands, Half { first, second }) = (self.operands, self.drawn.half(number));
        let [firsts, seconds] = &self.factors[number % 2];
        let mut random = fastrand::Rng::with_seed(self.drawn.seed ^ number as u64);
        let mut sample = |columns| -> Vec<usize> { (0..SAMPLES).map(|_| random.usize(0..columns)).collect() };
        let (first_columns, second_columns) = (sample(first.columns), sample(second.columns));
        let column =
            |pattern: &Pattern<bf16>, inner: usize, column: usize| pattern.elems(column * inner..(column + 1) * inner);

        let before = self.fetch(&side.normed, |row| operands.normed_here(number, &side.normed_row(row)), stream)?;
        let products = self.read(first.columns, |elems| operands.first(number, elems), stream)?;
        let mut wrong = 0;
        for at in first_columns {
            let right = column(firsts, first.inner, at);
            let is =
                |(left, line): (&Vec<bf16>, &Vec<bf16>)| Dot::new(left, &right).is(line[at], first.inner, first.relu);
            wrong += before.iter().zip(&products).filter(|both| !is(*both)).count();
        }

        let lefts = self.read(second.inner, |elems| operands.first(number, elems), stream)?;
        let rights: Vec<_> = second_columns.iter().map(|at| column(seconds, second.inner, *at)).collect();
        let dots: Vec<Dot> = lefts.iter().flat_map(|left| rights.iter().map(|right| Dot::new(left, right))).collect();
        let dots = self.of_all_ranks(&dots)?;
        let after = self.fetch(&side.kept, |row| operands.x(number + 1, &(row..row + 1)), stream)?;
        let weight = self.drawn.norm(number);
        for (at, row) in self.rows.iter().copied().enumerate() {
            let here = row..row + 1;
            if side.kept.contains(&row) {
                let residual = operands.x(number, &here)?.read(stream)?;
                let is = |(sample, column): (usize, &usize)| {
                    let dots: Vec<Dot> = dots.iter().map(|dots| dots[at * SAMPLES + sample]).collect();
                    is_sum(after[at][*column], &dots, second.inner, residual[*column])
                };
                wrong += second_columns.iter().enumerate().filter(|sample| !is(*sample)).count();
            }
            if side.normed.contains(&row) {
                let rows = operands.normed_here(number + 1, &side.normed_row(row))?.read(stream)?;
                wrong += found::unlike(&rows, &normed(&after[at], &weight, NORM)) as usize;
            }
        }
        Ok(wrong as u64)
    }

    /// Compares all final rows with those of the first candidate.
    fn wrong_ends(&self, side: &LayerSide<'_>, stream: &Stream) -> symmetra::Result<u64> {
        let (state, hidden) = (self.halves, self.operands.hidden);
        let ends = Ends {
            kept: side.kept.clone(),
            x: self.operands.x(state, &side.kept)?.read(stream)?,
            normed_rows: side.normed.clone(),
            normed: self.operands.normed_here(state, &side.normed_at)?.read(stream)?,
        };
        let Some(first) = self.first.get() else {
            // The cell was empty.
            let _ = self.first.set(ends);
            return Ok(0);
        };
        let share = far(self.halves);
        let unlike = |found: (&[bf16], &Range<usize>), right: (&[bf16], &Range<usize>)| {
            let rows = found.1.start.max(right.1.start)..found.1.end.min(right.1.end);
            let of = |(values, from): (&[bf16], &Range<usize>)| {
                values[elems(&(rows.start - from.start..rows.end - from.start), hidden)].to_vec()
            };
            unlike(&of(found), &of(right), hidden, share)
        };
        Ok(unlike((&ends.x, &ends.kept), (&first.x, &first.kept))
            + unlike((&ends.normed, &ends.normed_rows), (&first.normed, &first.normed_rows)))
    }

    /// The sampled rows of a matrix of `columns` columns.
    fn read<'r>(
        &self,
        columns: usize,
        of_elems: impl Fn(Range<usize>) -> symmetra::Result<Ref<'r, bf16>>,
        stream: &Stream,
    ) -> symmetra::Result<Vec<Vec<bf16>>> {
        self.rows.iter().map(|row| of_elems(elems(&(*row..row + 1), columns))?.read(stream)).collect()
    }

    /// Sampled rows. This rank has the rows in `have`; the others come from the ranks that have them. Collective
    /// unless every rank has all.
    fn fetch<'r>(
        &self,
        have: &Range<usize>,
        of_row: impl Fn(usize) -> symmetra::Result<Ref<'r, bf16>>,
        stream: &Stream,
    ) -> symmetra::Result<Vec<Vec<bf16>>> {
        let rows = self.rows.iter().filter(|row| have.contains(row));
        let own: Vec<Vec<bf16>> = rows.map(|row| of_row(*row)?.read(stream)).collect::<symmetra::Result<_>>()?;
        if have.len() == self.operands.tokens {
            return Ok(own);
        }
        // Rows and shares are in ascending order, so the concatenated rows of all messages are too.
        let all: Vec<bf16> = self.of_all_ranks(&own.concat())?.concat();
        Ok(all.chunks(self.operands.hidden).map(<[bf16]>::to_vec).collect())
    }

    /// The values of every rank. Collective; blocks.
    fn of_all_ranks<V: bytemuck::Pod>(&self, values: &[V]) -> symmetra::Result<Vec<Vec<V>>> {
        let all = self.communicator.group().all_gather_bytes(bytemuck::cast_slice(values))?;
        Ok(all.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect())
    }
}

/// The elements of these rows of `columns` columns.
fn elems(rows: &Range<usize>, columns: usize) -> Range<usize> {
    rows.start * columns..rows.end * columns
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/layer_check.rs"]
mod tests;
