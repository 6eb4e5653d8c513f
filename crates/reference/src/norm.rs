//! The norm by its definition, independent of the library's code.

use symmetra::RmsNorm;

use crate::element::Real;

/// The sum plus the residual.
pub fn with_residual<T: Real>(sum: &[T], residual: Option<&[T]>) -> Vec<T> {
    let Some(residual) = residual else { return sum.to_vec() };
    sum.iter().zip(residual).map(|(sum, residual)| T::of_single(sum.single() + residual.single())).collect()
}

/// Norms rows as long as the weight.
pub fn normed<T: Real, W: Real>(x: &[T], weight: &[W], norm: RmsNorm) -> Vec<T> {
    let row = |row: &[T]| {
        let mean = sum_of_squares(row) / row.len() as f32;
        let scale = 1.0 / (mean + norm.epsilon).sqrt();
        let element = |(x, w): (&T, &W)| T::of_single((x.single() * (w.single() + norm.weight_offset)) * scale);
        row.iter().zip(weight).map(element).collect::<Vec<T>>()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

/// Rows of `hidden` elements, padded with zeros.
pub fn padded<T: Real>(y: &[T], hidden: usize, width: usize) -> Vec<T> {
    let zeros = vec![T::of_single(0.0); width - hidden];
    y.chunks(hidden).flat_map(|row| row.iter().chain(&zeros).copied()).collect()
}

/// Trees of the packets of 16 bytes, added into 1024 columns in turn; a tree of the columns.
fn sum_of_squares<T: Real>(row: &[T]) -> f32 {
    let values = 16 / size_of::<T>();
    let mut columns = vec![0.0; 1024];
    for (packet, column) in row.chunks(values).zip((0..columns.len()).cycle()) {
        let mut squares = vec![0.0; values];
        squares.iter_mut().zip(packet).for_each(|(square, x)| *square = x.single() * x.single());
        columns[column] += tree(squares);
    }
    tree(columns)
}

/// Adds neighbours, then neighbouring pairs and so on: a power of two of values.
fn tree(mut values: Vec<f32>) -> f32 {
    while values.len() > 1 {
        values = values.chunks(2).map(|both| both[0] + both[1]).collect();
    }
    values[0]
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/norm.rs"]
mod tests;
