//! The norm by its definition, independent of the library's code.

use symmetra::Norm;

use crate::element::Real;

/// The sum plus the residual.
pub fn with_residual<T: Real>(sum: &[T], residual: Option<&[T]>) -> Vec<T> {
    let Some(residual) = residual else { return sum.to_vec() };
    sum.iter().zip(residual).map(|(sum, residual)| T::of_single(sum.single() + residual.single())).collect()
}

/// Norms rows as long as the weight.
pub fn normed<T: Real, W: Real>(x: &[T], weight: &[W], norm: impl Into<Norm>) -> Vec<T> {
    biased(x, weight, None, norm)
}

/// Norms rows as long as the weight, and adds a bias.
pub fn biased<T: Real, W: Real>(x: &[T], weight: &[W], bias: Option<&[W]>, norm: impl Into<Norm>) -> Vec<T> {
    let norm = norm.into();
    let row = |row: &[T]| {
        let mut values: Vec<f32> = row.iter().map(|x| x.single()).collect();
        if let Norm::Layer(_) = norm {
            let mean = sum::<T>(&values) / row.len() as f32;
            values.iter_mut().for_each(|x| *x -= mean);
        }
        let squares: Vec<f32> = values.iter().map(|x| x * x).collect();
        let mean = sum::<T>(&squares) / row.len() as f32;
        let scale = 1.0 / (mean + norm.epsilon()).sqrt();
        let element = |(number, x): (usize, f32)| {
            let scaled = (x * (weight[number].single() + norm.weight_offset())) * scale;
            T::of_single(bias.map_or(scaled, |bias| scaled + bias[number].single()))
        };
        values.into_iter().enumerate().map(element).collect::<Vec<T>>()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

/// Rows of `hidden` elements, padded with zeros.
pub fn padded<T: Real>(y: &[T], hidden: usize, width: usize) -> Vec<T> {
    let zeros = vec![T::of_single(0.0); width - hidden];
    y.chunks(hidden).flat_map(|row| row.iter().chain(&zeros).copied()).collect()
}

/// The sum of a row of type T: trees of the packets of 16 bytes, added into 1024 columns in turn; a tree of the columns.
fn sum<T: Real>(row: &[f32]) -> f32 {
    let values = 16 / size_of::<T>();
    let mut columns = vec![0.0; 1024];
    for (packet, column) in row.chunks(values).zip((0..columns.len()).cycle()) {
        let mut whole = vec![0.0; values];
        whole[..packet.len()].copy_from_slice(packet);
        columns[column] += tree(whole);
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
