//! Reductions with the rules of the kernels (`kernels/numeric`): in rank order, floating types except f64 in single
//! precision, integers in 64 bits, rounded once, one bit pattern for every NaN.

use bytemuck::{cast_slice, cast_slice_mut};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::types::{Dtype, Element, Reduction};

/// Reduces `blocks`, one from each rank in rank order and each as long as `result`, into `result`.
pub(crate) fn reduce<T: Element>(reduction: Reduction, blocks: &[T], result: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => fold::<f32, f32>(reduction, cast_slice(blocks), cast_slice_mut(result), |x| x, round_f32),
        Dtype::F64 => fold::<f64, f64>(reduction, cast_slice(blocks), cast_slice_mut(result), |x| x, round_f64),
        Dtype::F16 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), f16::to_f32, round_f16),
        Dtype::BF16 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), bf16::to_f32, round_bf16),
        Dtype::F8E4M3 => {
            fold(reduction, cast_slice(blocks), cast_slice_mut(result), |x: F8E4M3| x.to_f32(), round_f8e4m3)
        }
        Dtype::F8E5M2 => {
            fold(reduction, cast_slice(blocks), cast_slice_mut(result), |x: F8E5M2| x.to_f32(), round_f8e5m2)
        }
        Dtype::I8 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), i64::from, |x| x as i8),
        Dtype::U8 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), u64::from, |x| x as u8),
        Dtype::I32 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), i64::from, |x| x as i32),
        Dtype::U32 => fold(reduction, cast_slice(blocks), cast_slice_mut(result), u64::from, |x| x as u32),
        Dtype::I64 => fold::<i64, i64>(reduction, cast_slice(blocks), cast_slice_mut(result), |x| x, |x| x),
        Dtype::U64 => fold::<u64, u64>(reduction, cast_slice(blocks), cast_slice_mut(result), |x| x, |x| x),
    }
}

/// The wide type in which a reduction is computed.
trait Wide: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The smaller value. For floating types `minimum` of IEEE 754-2019: a NaN wins, and -0 is less than +0.
    fn least(self, other: Self) -> Self;
    /// The larger value. For floating types `maximum` of IEEE 754-2019: a NaN wins, and -0 is less than +0.
    fn greatest(self, other: Self) -> Self;
    /// Divides by the number of ranks. Integers truncate toward zero.
    fn over(self, ranks: usize) -> Self;
}

macro_rules! floating {
    ($($wide:ty)*) => {$(
        impl Wide for $wide {
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn least(self, other: Self) -> Self {
                match self == other {
                    true if self.is_sign_negative() => self,
                    true => other,
                    false if self.is_nan() || self < other => self,
                    false => other,
                }
            }
            fn greatest(self, other: Self) -> Self {
                match self == other {
                    true if self.is_sign_negative() => other,
                    true => self,
                    false if self.is_nan() || self > other => self,
                    false => other,
                }
            }
            fn over(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
    )*};
}

macro_rules! integer {
    ($($wide:ty)*) => {$(
        impl Wide for $wide {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
            fn over(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
    )*};
}

floating! { f32 f64 }
integer! { i64 u64 }

fn fold<T: Copy, W: Wide>(
    reduction: Reduction,
    blocks: &[T],
    result: &mut [T],
    widen: impl Fn(T) -> W,
    round: impl Fn(W) -> T,
) {
    match reduction {
        Reduction::Sum => each(blocks, result, widen, W::plus, round),
        Reduction::Product => each(blocks, result, widen, W::times, round),
        Reduction::Min => each(blocks, result, widen, W::least, round),
        Reduction::Max => each(blocks, result, widen, W::greatest, round),
        Reduction::Average => {
            let ranks = blocks.len().checked_div(result.len()).unwrap_or(1);
            each(blocks, result, widen, W::plus, |total| round(total.over(ranks)));
        }
    }
}

fn each<T: Copy, W: Wide>(
    blocks: &[T],
    result: &mut [T],
    widen: impl Fn(T) -> W,
    join: impl Fn(W, W) -> W,
    round: impl Fn(W) -> T,
) {
    let elems = result.len();
    for (index, result) in result.iter_mut().enumerate() {
        let mut ranks = blocks.iter().skip(index).step_by(elems).map(|value| widen(*value));
        if let Some(first) = ranks.next() {
            *result = round(ranks.fold(first, &join));
        }
    }
}

fn round_f32(result: f32) -> f32 {
    if result.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { result }
}

fn round_f64(result: f64) -> f64 {
    if result.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { result }
}

fn round_f16(result: f32) -> f16 {
    if result.is_nan() { f16::from_bits(0x7FFF) } else { f16::from_f32(result) }
}

fn round_bf16(result: f32) -> bf16 {
    if result.is_nan() { bf16::from_bits(0x7FFF) } else { bf16::from_f32(result) }
}

/// Saturates.
fn round_f8e4m3(result: f32) -> F8E4M3 {
    if result.is_nan() { F8E4M3::from_bits(0x7F) } else { F8E4M3::from_f32(result) }
}

/// Saturates.
fn round_f8e5m2(result: f32) -> F8E5M2 {
    if result.is_nan() { F8E5M2::from_bits(0x7F) } else { F8E5M2::from_f32(result) }
}

#[cfg(test)]
#[path = "../../tests/unit/engine/reduce.rs"]
mod tests;
