//! The model: its weights, its result on one rank, and the error bound of a result.

use std::ops::Range;

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
}

impl Model {
    /// Columns of `W1` of a block, row after row. They preserve the mean square of the normed rows.
    pub(crate) fn first(&self, block: usize, columns: Range<usize>) -> Vec<f32> {
        let scale = (3.0 / self.hidden as f32).sqrt();
        self.draw(2 * block as u64, 0..self.hidden, columns, self.intermediate, scale)
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

    /// The largest [`error`] of a correct result.
    ///
    /// A sum of n products rounds n times, each time by at most u = 2^-24 of a partial sum, in any order of ranks and
    /// kernels. Such errors are independent to first order, so together about u sqrt(n) of the result (Higham and Mary,
    /// SIAM J. Sci. Comput. 41, 2019). The addition of the residual and the norm round at most 8 times: the addition, the
    /// products with the weight and the factor, and the factor's mean, epsilon, root and quotient; the sum of squares is a
    /// tree, whose errors the root halves. A block adds a share of about 1 to the mean square of `x`, and of its input's
    /// error to the error of `x`, so the error relative to `x` does not grow but by the new roundings. These add in
    /// squares. Eight standard deviations leave room for the largest of all elements. A shard that is wrong, missing or
    /// summed twice has an error of about 1 / sqrt(blocks).
    pub(crate) fn bound(&self) -> f64 {
        let roundings = self.blocks * (self.hidden + self.intermediate) + (self.blocks + 1) * 8;
        8.0 * (roundings as f64).sqrt() * 0.5f64.powi(24)
    }
}

/// The values in f64.
pub(crate) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
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

/// `x w`, where `x` has rows of `inner` elements.
pub(crate) fn multiply<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign>(
    x: &[T],
    w: &[T],
    inner: usize,
) -> Vec<T> {
    let width = w.len() / inner;
    let mut product = vec![T::default(); x.len() / inner * width];
    for (row, sums) in x.chunks_exact(inner).zip(product.chunks_exact_mut(width)) {
        for (factor, weights) in row.iter().zip(w.chunks_exact(width)) {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += *factor * *weight);
        }
    }
    product
}

/// The largest error of an element, in units of the root mean square of the expected ones. `f64::MAX` for another
/// length or a NaN.
pub(crate) fn error(found: &[f32], expected: &[f64]) -> f64 {
    if found.len() != expected.len() || found.iter().any(|value| !value.is_finite()) {
        return f64::MAX;
    }
    let mean_square = expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64;
    let worst = found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
    let error = worst.fold(0.0, f64::max) / mean_square.sqrt();
    if error.is_finite() { error } else { f64::MAX }
}
