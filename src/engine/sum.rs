//! Sums of what arrived, by the rule of the kernels: in rank order, floating types but f64 in
//! single precision, rounded once, one NaN for all; integers wrap.

use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};

use crate::types::{Dtype, Element};

/// Sums `blocks`, as long as `sum` each, into `sum`.
pub(crate) fn sum<T: Element>(blocks: &[T], sum: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => fold::<f32, f32>(cast_slice(blocks), cast_slice_mut(sum), |x| x, |a, b| a + b, round_f32),
        Dtype::F64 => fold::<f64, f64>(cast_slice(blocks), cast_slice_mut(sum), |x| x, |a, b| a + b, round_f64),
        Dtype::F16 => fold::<f16, f32>(cast_slice(blocks), cast_slice_mut(sum), f16::to_f32, |a, b| a + b, round_f16),
        Dtype::BF16 => {
            fold::<bf16, f32>(cast_slice(blocks), cast_slice_mut(sum), bf16::to_f32, |a, b| a + b, round_bf16)
        }
        // Sums that wrap are the same with and without a sign.
        Dtype::I8 | Dtype::U8 => wrap(cast_slice(blocks), cast_slice_mut(sum), u8::wrapping_add),
        Dtype::I32 | Dtype::U32 => wrap(cast_slice(blocks), cast_slice_mut(sum), u32::wrapping_add),
        Dtype::I64 | Dtype::U64 => wrap(cast_slice(blocks), cast_slice_mut(sum), u64::wrapping_add),
    }
}

fn wrap<T: Copy>(blocks: &[T], sum: &mut [T], add: impl Fn(T, T) -> T) {
    fold(blocks, sum, |value| value, add, |sum| sum);
}

fn fold<T: Copy, Wide: Copy>(
    blocks: &[T],
    sum: &mut [T],
    widen: impl Fn(T) -> Wide,
    add: impl Fn(Wide, Wide) -> Wide,
    round: impl Fn(Wide) -> T,
) {
    let elems = sum.len();
    for (index, sum) in sum.iter_mut().enumerate() {
        let mut ranks = blocks.iter().skip(index).step_by(elems).map(|value| widen(*value));
        if let Some(first) = ranks.next() {
            *sum = round(ranks.fold(first, &add));
        }
    }
}

fn round_f32(sum: f32) -> f32 {
    if sum.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { sum }
}

fn round_f64(sum: f64) -> f64 {
    if sum.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { sum }
}

fn round_f16(sum: f32) -> f16 {
    if sum.is_nan() { f16::from_bits(0x7FFF) } else { f16::from_f32(sum) }
}

fn round_bf16(sum: f32) -> bf16 {
    if sum.is_nan() { bf16::from_bits(0x7FFF) } else { bf16::from_f32(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_rank_order_and_rounds_once() {
        let mut total = [0.0f32; 2];
        sum(&[1e8f32, 1.0, -1e8, 2.0, 1.0, 3.0], &mut total);
        assert_eq!(total, [1.0, 6.0]);
        let mut half = [bf16::ZERO];
        // Rounded after every step it would stay at 256.
        sum(&[256.0, 1.0, 1.0].map(bf16::from_f32), &mut half);
        assert_eq!(half[0].to_f32(), 258.0);
        let mut integer = [0i32];
        sum(&[i32::MAX, 1], &mut integer);
        assert_eq!(integer, [i32::MIN]);
        let mut nan = [0.0f64];
        sum(&[f64::INFINITY, f64::NEG_INFINITY], &mut nan);
        assert_eq!(nan[0].to_bits(), 0x7FF8_0000_0000_0000);
        sum::<f32>(&[], &mut []);
    }
}
