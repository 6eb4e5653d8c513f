//! The norm by its definition, independent of the library's code.

use symmetra::RmsNorm;
use symmetra::half::{bf16, f16};

use crate::element::Summand;

/// A type of rows.
pub trait Rows: Summand {
    fn single(self) -> f32;
    fn of_single(value: f32) -> Self;
}

macro_rules! rows {
    ($($type:ty, $wide:expr, $narrow:expr;)*) => {$(
        impl Rows for $type {
            fn single(self) -> f32 {
                $wide(self)
            }
            fn of_single(value: f32) -> Self {
                $narrow(value)
            }
        }
    )*};
}

rows! {
    f32, std::convert::identity, std::convert::identity;
    f16, f16::to_f32, f16::from_f32;
    bf16, bf16::to_f32, bf16::from_f32;
}

/// Adds the residual.
pub fn with_residual<T: Rows>(sum: &[T], residual: &[T]) -> Vec<T> {
    sum.iter().zip(residual).map(|(sum, residual)| T::of_single(sum.single() + residual.single())).collect()
}

/// Norms rows as long as the weight.
pub fn normed<T: Rows>(x: &[T], weight: &[T], norm: RmsNorm) -> Vec<T> {
    let row = |row: &[T]| {
        let mean = sum_of_squares(row) / row.len() as f32;
        let scale = 1.0 / (mean + norm.epsilon).sqrt();
        let element = |(x, w): (&T, &T)| T::of_single((x.single() * (w.single() + norm.weight_offset)) * scale);
        row.iter().zip(weight).map(element).collect::<Vec<T>>()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

/// Rows of `hidden` elements, padded with zeros.
pub fn padded<T: Rows>(y: &[T], hidden: usize, width: usize) -> Vec<T> {
    let zeros = vec![T::of_single(0.0); width - hidden];
    y.chunks(hidden).flat_map(|row| row.iter().chain(&zeros).copied()).collect()
}

/// Trees of the packets of 16 bytes, added into 1024 columns in turn; a tree of the columns.
fn sum_of_squares<T: Rows>(row: &[T]) -> f32 {
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
