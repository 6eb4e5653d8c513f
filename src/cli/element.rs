//! From a type's name to a Rust type, and the sums that results are held to.

use half::{bf16, f16};
use symmetra::Element;

/// Runs `$body` with `$Type` as the Rust type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $Type:ident => $body:expr) => {
        match $dtype {
            symmetra::Dtype::F32 => {
                type $Type = f32;
                $body
            }
            symmetra::Dtype::F64 => {
                type $Type = f64;
                $body
            }
            symmetra::Dtype::F16 => {
                type $Type = half::f16;
                $body
            }
            symmetra::Dtype::BF16 => {
                type $Type = half::bf16;
                $body
            }
            symmetra::Dtype::I32 => {
                type $Type = i32;
                $body
            }
            symmetra::Dtype::I64 => {
                type $Type = i64;
                $body
            }
            other => Err($crate::failure::Failure::failed(format!("this command knows nothing of {other}"))),
        }
    };
}

/// An element that can be drawn at random and summed as the library promises to.
pub(crate) trait Summand: Element {
    /// A random value. Floats have either sign and span twelve binary orders of magnitude, so that
    /// the order of a sum shows in its bits; integers are of any value, so that sums wrap.
    fn draw(random: &mut fastrand::Rng) -> Self;

    /// The sum in order, in single precision for the narrow types, rounded once; integers wrap.
    fn sum(values: impl Iterator<Item = Self>) -> Self;

    /// Whether it is the same value to the bit, or both are no number.
    fn matches(self, other: Self) -> bool;
}

/// The first value plus the others: starting from zero would turn a sum of -0 into +0.
fn fold<W>(mut values: impl Iterator<Item = W>, zero: W, add: impl Fn(W, W) -> W) -> W {
    let first = values.next().unwrap_or(zero);
    values.fold(first, add)
}

/// Smallest exponent drawn, and how many there are.
const EXPONENTS: (i32, u64) = (-8, 12);

macro_rules! float {
    ($float:ty, $bits:ty, $wide:ty, mantissa $mantissa:literal, bias $bias:literal, round $round:expr) => {
        impl Summand for $float {
            fn draw(random: &mut fastrand::Rng) -> Self {
                let drawn = random.u64(..);
                let (lowest, count) = EXPONENTS;
                let exponent = (lowest + $bias) as u64 + ((drawn & 0xff) * count >> 8);
                let mantissa = drawn >> (64 - $mantissa);
                let sign = drawn >> 8 & 1;
                let width = <$bits>::BITS - 1;
                Self::from_bits((sign << width | exponent << $mantissa | mantissa) as $bits)
            }

            fn sum(values: impl Iterator<Item = Self>) -> Self {
                $round(fold(values.map(<$wide>::from), 0.0, |sum, value| sum + value))
            }

            fn matches(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }
        }
    };
}

float!(f32, u32, f32, mantissa 23, bias 127, round std::convert::identity);
float!(f64, u64, f64, mantissa 52, bias 1023, round std::convert::identity);
float!(f16, u16, f32, mantissa 10, bias 15, round Self::from_f32);
float!(bf16, u16, f32, mantissa 7, bias 127, round Self::from_f32);

macro_rules! integer {
    ($integer:ty) => {
        impl Summand for $integer {
            fn draw(random: &mut fastrand::Rng) -> Self {
                random.u64(..) as Self
            }

            fn sum(values: impl Iterator<Item = Self>) -> Self {
                fold(values, 0, Self::wrapping_add)
            }

            fn matches(self, other: Self) -> bool {
                self == other
            }
        }
    };
}

integer!(i32);
integer!(i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_sums_round_once() {
        // 256 + 1 is not a bf16, but 256 + 1 + 1 is 258.
        let values = [256.0, 1.0, 1.0].map(bf16::from_f32);
        assert_eq!(bf16::sum(values.into_iter()).to_f32(), 258.0);
        assert_eq!(f32::sum([-0.0f32, -0.0].into_iter()).to_bits(), (-0.0f32).to_bits());
        assert_eq!(i32::sum([i32::MAX, 1].into_iter()), i32::MIN);
    }

    #[test]
    fn drawn_floats_are_of_the_promised_size() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..1000 {
            for value in [
                f32::draw(&mut random).abs(),
                f16::draw(&mut random).to_f32().abs(),
                bf16::draw(&mut random).to_f32().abs(),
            ] {
                assert!((1.0 / 256.0..16.0).contains(&value), "{value}");
            }
            assert!((1.0 / 256.0..16.0).contains(&f64::draw(&mut random).abs()));
        }
    }
}
