//! The reference of a norm, by its definition: every step in single precision, the squares of a row in the order that
//! the documentation of the kernels states.

use half::{bf16, f16};

use super::data::Sample;

/// A type of rows.
pub trait Narrow: Sample {
    fn wide(self) -> f32;
    fn of_wide(value: f32) -> Self;
}

macro_rules! narrow {
    ($($type:ty, $wide:expr, $narrow:expr;)*) => {$(
        impl Narrow for $type {
            fn wide(self) -> f32 {
                $wide(self)
            }
            fn of_wide(value: f32) -> Self {
                $narrow(value)
            }
        }
    )*};
}

narrow! {
    f32, std::convert::identity, std::convert::identity;
    f16, f16::to_f32, f16::from_f32;
    bf16, bf16::to_f32, bf16::from_f32;
}

/// Columns of the sum over a row.
const COLUMNS: usize = 1024;

/// The norm of a row, without its residual.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    pub weight: &'a [f32],
    pub epsilon: f32,
    pub weight_offset: f32,
    pub width: usize,
}

/// The sum plus the residual.
pub fn with_residual<T: Narrow>(sum: &[T], residual: Option<&[T]>) -> Vec<T> {
    let Some(residual) = residual else { return sum.to_vec() };
    sum.iter().zip(residual).map(|(sum, residual)| T::of_wide(sum.wide() + residual.wide())).collect()
}

/// The normed rows.
pub fn normed<T: Narrow>(x: &[T], norm: Norm<'_>) -> Vec<T> {
    x.chunks(norm.weight.len()).flat_map(|row| normed_row(row, norm)).collect()
}

fn normed_row<T: Narrow>(row: &[T], norm: Norm<'_>) -> Vec<T> {
    let mean = sum_of_squares(row) / row.len() as f32;
    let scale = 1.0 / (mean + norm.epsilon).sqrt();
    let value = |(x, weight): (&T, &f32)| T::of_wide((x.wide() * (weight + norm.weight_offset)) * scale);
    let mut normed: Vec<T> = row.iter().zip(norm.weight).map(value).collect();
    normed.resize(norm.width, T::of_wide(0.0));
    normed
}

/// Packets of 16 bytes, each a tree; columns of the packets 1024 apart, in ascending order; a tree of columns.
pub fn sum_of_squares<T: Narrow>(row: &[T]) -> f32 {
    let mut columns = [0.0f32; COLUMNS];
    for (number, packet) in row.chunks(16 / size_of::<T>()).enumerate() {
        let mut squares: Vec<f32> = packet.iter().map(|x| x.wide() * x.wide()).collect();
        squares.resize(16 / size_of::<T>(), 0.0);
        columns[number % COLUMNS] += tree(&squares);
    }
    tree(&columns)
}

/// Neighbours first: halves of a power of two of values, added last.
fn tree(values: &[f32]) -> f32 {
    match values {
        [value] => *value,
        _ => tree(&values[..values.len() / 2]) + tree(&values[values.len() / 2..]),
    }
}
