//! The model: its weights, its result on one rank, and the error bound of a result.

use std::ops::Range;

use float8::F8E4M3;

use super::reference::{multiply, widen};

/// The number that norms add to a mean square.
pub(crate) const EPSILON: f32 = 1e-6;

/// Blocks of `x -> x + relu(norm(x) W1) W2`, with `x` of `batch` rows, and a norm at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// The number of blocks.
    pub(crate) blocks: usize,
    /// Columns of `x`.
    pub(crate) hidden: usize,
    /// Columns of `norm(x) W1`.
    pub(crate) intermediate: usize,
    /// Rows of `x`.
    pub(crate) batch: usize,
    /// The seed of weights and inputs.
    pub(crate) seed: u64,
    /// Whether `norm(x) W1` is a product of e4m3 codes.
    pub(crate) fp8: bool,
}

impl Model {
    /// Columns of `W1` of a block, row after row. They preserve the mean square of the normed rows. With `fp8` the weights
    /// are those that the codes stand for.
    pub(crate) fn first(&self, block: usize, columns: Range<usize>) -> Vec<f32> {
        let mut weights = self.draw(2 * block as u64, 0..self.hidden, columns, self.intermediate, self.largest_first());
        if self.fp8 {
            let scale = self.weight_scale();
            weights.iter_mut().for_each(|weight| *weight = F8E4M3::from_f32(*weight / scale).to_f32() * scale);
        }
        weights
    }

    /// The codes of columns of `W1` of a block, column after column. A code times [`Model::weight_scale`] is a weight.
    pub(crate) fn first_codes(&self, block: usize, columns: Range<usize>) -> Vec<F8E4M3> {
        let (weights, width) = (self.first(block, columns.clone()), columns.len());
        let column = |column| weights.iter().skip(column).step_by(width);
        (0..width).flat_map(column).map(|weight| F8E4M3::from_f32(*weight / self.weight_scale())).collect()
    }

    /// The scale of the codes of `W1`: a power of two, so that codes times the scale are exact.
    pub(crate) fn weight_scale(&self) -> f32 {
        scale(self.largest_first())
    }

    /// The scale of the codes of normed rows, a power of two. No code saturates: an element over the root mean square is
    /// at most the root of the row's length, and a norm's weight is at most 1.25.
    pub(crate) fn row_scale(&self) -> f32 {
        scale(1.25 * (self.hidden as f32).sqrt())
    }

    /// The bound of the elements of `W1`.
    fn largest_first(&self) -> f32 {
        (3.0 / self.hidden as f32).sqrt()
    }

    /// Rows of `W2` of a block. The factor 2 compensates for the ReLU before it.
    pub(crate) fn second(&self, block: usize, rows: Range<usize>) -> Vec<f32> {
        let scale = (6.0 / self.intermediate as f32).sqrt();
        self.draw(2 * block as u64 + 1, rows, 0..self.hidden, self.hidden, scale)
    }

    /// The weight of a norm, about 1: norm b is before block b, and the last norm after all blocks.
    pub(crate) fn norm(&self, norm: usize) -> Vec<f32> {
        let weight = self.draw((1 << 21) + norm as u64, 0..1, 0..self.hidden, self.hidden, 0.25);
        weight.into_iter().map(|value| 1.0 + value).collect()
    }

    /// The batch of a data parallel replica.
    pub(crate) fn input(&self, replica: usize) -> Vec<f32> {
        self.draw((1 << 20) + replica as u64, 0..self.batch, 0..self.hidden, self.hidden, 3f32.sqrt())
    }

    /// Part of a matrix with `width` columns. Each element, uniform in `-scale..scale`, depends only on the seed, the
    /// matrix and its place, so that a rank can make its shard alone.
    fn draw(&self, matrix: u64, rows: Range<usize>, columns: Range<usize>, width: usize, scale: f32) -> Vec<f32> {
        let element = |place: u64| {
            // The finaliser of SplitMix64.
            let mut bits = (self.seed ^ matrix << 40).wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            scale * (((bits ^ bits >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0)
        };
        rows.flat_map(|row| columns.clone().map(move |column| (row * width + column) as u64)).map(element).collect()
    }

    /// The result of the whole model for a replica's batch, in f64.
    pub(crate) fn reference(&self, replica: usize) -> Vec<f64> {
        let x = (0..self.blocks).fold(widen(&self.input(replica)), |x, block| {
            let h = rms_norm(&x, &self.norm(block));
            let mut inner = multiply(&h, &widen(&self.first(block, 0..self.intermediate)), self.hidden);
            inner.iter_mut().for_each(|value| *value = value.max(0.0));
            let sum = multiply(&inner, &widen(&self.second(block, 0..self.intermediate)), self.intermediate);
            x.iter().zip(&sum).map(|(x, sum)| x + sum).collect()
        });
        rms_norm(&x, &self.norm(self.blocks))
    }

    /// The largest [`error`](super::reference::error) of a correct result.
    ///
    /// A sum of n products rounds n times, each time by at most u = 2^-24 of a partial sum, in any order of ranks and
    /// kernels. Such errors are independent to first order, so together about u sqrt(n) of the result (Higham and Mary,
    /// SIAM J. Sci. Comput. 41, 2019). The addition of the residual and the norm round at most 8 times: the addition, the
    /// products with the weight and the factor, and the factor's mean, epsilon, root and quotient; the sum of squares is a
    /// tree, whose errors the root halves. A block adds a share of about 1 to the mean square of `x`, and of its input's
    /// error to the error of `x`, so the error relative to `x` does not grow but by the new roundings. These add in
    /// squares. Eight standard deviations leave room for the largest of all elements. A shard that is wrong, missing or
    /// summed twice has an error of about 1 / sqrt(blocks).
    ///
    /// With `fp8` the weights of the reference are those of the codes, so only the codes of normed rows are inexact. The
    /// reference does not round these rows: a rounding of f32 before a code may choose the next code, and the next
    /// blocks' codes would differ too. Between two powers of two the codes are 1/8 of the lower power apart, so an error is
    /// uniform within 1/16 of that power and has a deviation of q = 1 / (8 sqrt(12)) of an element at most. Errors of
    /// elements are independent, so q is also the deviation of a product, of its ReLU and of the block's share, each over
    /// its own root mean square. Before block b the mean square of `x` is about b + 1, and a share's is 1. So block b adds
    /// q^2 / (b + 2) to the square of the error relative to `x`. Elements under the smallest normal code, 1/64 of a
    /// scale, have errors far below q of the row. Eight standard deviations again. A scale that is off by the factor 2
    /// changes all shares by their whole or half.
    pub(crate) fn bound(&self) -> f64 {
        let roundings = self.blocks * (self.hidden + self.intermediate) + (self.blocks + 1) * 8;
        let f32s = roundings as f64 * 0.5f64.powi(48);
        let code = 1.0 / (64.0 * 12.0);
        let codes = (0..self.blocks).map(|block| code / (block + 2) as f64).sum::<f64>();
        8.0 * (f32s + if self.fp8 { codes } else { 0.0 }).sqrt()
    }
}

/// The least power of two that brings numbers up to `largest` into the range of e4m3, which ends at 448.
fn scale(largest: f32) -> f32 {
    (largest / 448.0).log2().ceil().exp2()
}

/// Each row of `x` over its root mean square, times `weight`.
pub(crate) fn rms_norm(x: &[f64], weight: &[f32]) -> Vec<f64> {
    let row = |row: &[f64]| {
        let mean_square = row.iter().map(|value| value * value).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean_square + f64::from(EPSILON)).sqrt();
        row.iter().zip(weight).map(|(value, weight)| value * f64::from(*weight) * factor).collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).flat_map(row).collect()
}
