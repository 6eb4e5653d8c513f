//! Products on one rank, and how far a result is from the right one.

/// The values in f64.
pub(crate) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
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
