//! Inputs at the edges of their types, mixed with random inputs.

use half::{bf16, f16};
use symmetra::float8::{F8E4M3, F8E5M2};

use super::data::{Data, Random, Sample, mix};

/// A floating type that is made from its bits.
pub trait Bits: Sample {
    const WIDTH: u32;
    fn of_bits(bits: u64) -> Self;
    /// Bits of positive infinity, which e4m3 does not have: every exponent bit, no fraction.
    const INFINITY: u64;
    /// Bits of the greatest number, where results saturate to it.
    const SATURATED: Option<u64>;
}

macro_rules! bits {
    ($($type:ty, $unsigned:ty, $infinity:expr, $saturated:expr;)*) => {$(
        impl Bits for $type {
            const WIDTH: u32 = <$unsigned>::BITS;
            const INFINITY: u64 = $infinity;
            const SATURATED: Option<u64> = $saturated;
            fn of_bits(bits: u64) -> Self {
                Self::from_bits(bits as $unsigned)
            }
        }
    )*};
}

bits! {
    f32, u32, 0x7F80_0000, None;
    f64, u64, 0x7FF0_0000_0000_0000, None;
    f16, u16, 0x7C00, None;
    bf16, u16, 0x7F80, None;
    F8E4M3, u8, 0x78, Some(0x7E);
    F8E5M2, u8, 0x7C, Some(0x7B);
}

fn specials<T: Bits>() -> Vec<u64> {
    let sign = 1u64 << (T::WIDTH - 1);
    let least_normal = T::INFINITY & T::INFINITY.wrapping_neg();
    let one = (T::INFINITY / 2) & T::INFINITY;
    let quiet = T::INFINITY | (least_normal >> 1);
    let all = u64::MAX >> (64 - T::WIDTH);
    let mut specials = vec![
        0,
        1,                // the least denormal
        least_normal - 1, // the greatest denormal
        least_normal,
        one,
        one + 1,
        T::INFINITY - 1, // the greatest number
        T::INFINITY - least_normal,
        T::INFINITY,
        T::INFINITY + 1, // a signalling NaN
        quiet,
        (all & !sign) - 1, // of e4m3 the greatest number
        all & !sign,       // the NaN with every bit of the fraction
    ];
    specials.extend(specials.clone().iter().map(|bits| bits | sign)); // the last: all ones, the sentinel
    specials
}

/// Inputs of special values in random positions; most of these have ordinary values on other ranks.
pub fn special_data<T: Bits>(world: usize, len: usize) -> Data<T> {
    let specials = specials::<T>();
    let input = |rank: usize| {
        let mut random = Random(mix(rank as u64 * 77 + u64::from(T::WIDTH)));
        let value = |index: usize| match (index + rank) % 3 {
            0 => T::of_bits(*random.pick(&specials)),
            1 if index.is_multiple_of(2) => T::of_bits(random.next()),
            _ => T::sample(random.next()),
        };
        (0..len).map(value).collect()
    };
    Data::of((0..world).map(input).collect())
}

/// Integer inputs at the ends of the type and next to zero, in random positions.
pub fn extreme_data<T: Sample>(world: usize, len: usize) -> Data<T> {
    let highest = 1u64 << (8 * size_of::<T>() - 1);
    let extremes = [0, 1, u64::MAX, highest, highest - 1, highest + 1, highest - 2];
    let input = |rank: usize| {
        let mut random = Random(mix(rank as u64 * 77 + size_of::<T>() as u64));
        let value = |index: usize| match (index + rank) % 3 {
            2 => T::sample(random.next()),
            _ => T::sample(*random.pick(&extremes)),
        };
        (0..len).map(value).collect()
    };
    Data::of((0..world).map(input).collect())
}
