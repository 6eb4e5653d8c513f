//! Elements as random values, and the reductions with which results are compared.

use std::cmp::Ordering;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use symmetra::{Element, Narrow, Reduction};

use crate::quantised::nearest;

/// An element that can be drawn at random and reduced by the library's rules.
pub trait Summand: Element + WideElement {
    /// A random value. Floats have either sign and span twelve binary orders of magnitude, so that
    /// the order of a sum shows in its bits; integers are of any value, so that sums wrap.
    fn draw(random: &mut fastrand::Rng) -> Self;

    /// The reduction in order, in single precision for the narrow types, rounded once; 8-bit floats saturate, integers
    /// wrap. Of minima and maxima -0 is less than 0, and a NaN wins. An average divides by `ranks`.
    fn reduce_over(reduction: Reduction, values: impl Iterator<Item = Self>, ranks: usize) -> Self;

    /// The reduction of one value of each rank.
    fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self {
        let ranks = values.len();
        Self::reduce_over(reduction, values, ranks)
    }

    /// Whether both have the same bits, or both are NaN.
    fn matches(self, other: Self) -> bool;
}

/// How many exponents are drawn.
const EXPONENTS: u64 = 12;

/// Values are drawn from 2 to the power of `lowest`, at which the type has no denormals.
macro_rules! float {
    ($float:ty, $bits:ty, $wide:ty, mantissa $mantissa:literal, bias $bias:literal, lowest $lowest:literal, round $round:expr) => {
        impl Summand for $float {
            fn draw(random: &mut fastrand::Rng) -> Self {
                let drawn = random.u64(..);
                let exponent = ($lowest + $bias) as u64 + ((drawn & 0xff) * EXPONENTS >> 8);
                let mantissa = drawn >> (64 - $mantissa);
                let sign = drawn >> 8 & 1;
                let width = <$bits>::BITS - 1;
                Self::from_bits((sign << width | exponent << $mantissa | mantissa) as $bits)
            }

            fn reduce_over(reduction: Reduction, values: impl Iterator<Item = Self>, ranks: usize) -> Self {
                let picked = |a: $wide, b: $wide, order: Ordering| match a.total_cmp(&b) {
                    _ if a.is_nan() || b.is_nan() => <$wide>::NAN,
                    found if found == order => a,
                    _ => b,
                };
                let values = values.map(<$wide>::from);
                let all = match reduction {
                    Reduction::Product => values.reduce(|a, b| a * b),
                    Reduction::Min => values.reduce(|a, b| picked(a, b, Ordering::Less)),
                    Reduction::Max => values.reduce(|a, b| picked(a, b, Ordering::Greater)),
                    Reduction::Average => values.reduce(|a, b| a + b).map(|sum| sum / ranks as $wide),
                    _ => values.reduce(|a, b| a + b),
                };
                $round(all.unwrap_or_default())
            }

            fn matches(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || (<$wide>::from(self).is_nan() && <$wide>::from(other).is_nan())
            }
        }
    };
}

float!(f32, u32, f32, mantissa 23, bias 127, lowest -8, round std::convert::identity);
float!(f64, u64, f64, mantissa 52, bias 1023, lowest -8, round std::convert::identity);
float!(f16, u16, f32, mantissa 10, bias 15, lowest -8, round Self::from_f32);
float!(bf16, u16, f32, mantissa 7, bias 127, lowest -8, round Self::from_f32);
float!(F8E4M3, u8, f32, mantissa 3, bias 7, lowest -6, round Self::of_single);
float!(F8E5M2, u8, f32, mantissa 2, bias 15, lowest -8, round Self::of_single);

macro_rules! integer {
    ($integer:ty, $sum:ty) => {
        impl Summand for $integer {
            fn draw(random: &mut fastrand::Rng) -> Self {
                random.u64(..) as Self
            }

            fn reduce_over(reduction: Reduction, values: impl Iterator<Item = Self>, ranks: usize) -> Self {
                let all = match reduction {
                    Reduction::Product => values.reduce(Self::wrapping_mul),
                    Reduction::Min => values.min(),
                    Reduction::Max => values.max(),
                    Reduction::Average => {
                        let sum = values.map(<$sum>::from).reduce(<$sum>::wrapping_add);
                        sum.map(|sum| (sum / ranks as $sum) as Self)
                    }
                    _ => values.reduce(Self::wrapping_add),
                };
                all.unwrap_or_default()
            }

            fn matches(self, other: Self) -> bool {
                self == other
            }
        }
    };
}

integer!(i8, i64);
integer!(u8, u64);
integer!(i32, i64);
integer!(u32, u64);
integer!(i64, i64);
integer!(u64, u64);

/// An element as a number, for distances and examples.
pub trait WideElement: Copy {
    /// Half the distance from 1 to the next number; 0 for integers, which are exact.
    const ROUNDOFF: f64;
    fn wide(self) -> f64;
    /// A whole number that the type has.
    fn whole(value: i64) -> Self;
}

macro_rules! wide {
    ($($element:ty, $roundoff:expr, $wide:expr, $whole:expr;)*) => {$(
        impl WideElement for $element {
            const ROUNDOFF: f64 = $roundoff;
            fn wide(self) -> f64 {
                $wide(self)
            }
            fn whole(value: i64) -> Self {
                $whole(value)
            }
        }
    )*};
}

wide! {
    f32, f32::EPSILON as f64 / 2.0, f64::from, |value| value as Self;
    f64, f64::EPSILON / 2.0, f64::from, |value| value as Self;
    f16, 1.0 / 2048.0, f64::from, |value| Self::from_f64(value as f64);
    bf16, 1.0 / 256.0, f64::from, |value| Self::from_f64(value as f64);
    F8E4M3, 1.0 / 16.0, |value: Self| value.to_f32().into(), |value| Self::of_single(value as f32);
    F8E5M2, 1.0 / 8.0, |value: Self| value.to_f32().into(), |value| Self::of_single(value as f32);
    i8, 0.0, f64::from, |value| value as Self;
    u8, 0.0, f64::from, |value| value as Self;
    i32, 0.0, f64::from, |value| value as Self;
    u32, 0.0, f64::from, |value| value as Self;
    i64, 0.0, |value| value as f64, |value| value;
    u64, 0.0, |value| value as f64, |value| value as Self;
}

/// A floating type, with conversions from and to single precision.
pub trait Real: Summand {
    fn single(self) -> f32;
    /// The nearest value; 8-bit floats saturate.
    fn of_single(value: f32) -> Self;
}

macro_rules! real {
    ($($float:ty, $single:expr, $of_single:expr;)*) => {$(
        impl Real for $float {
            fn single(self) -> f32 {
                $single(self)
            }
            fn of_single(value: f32) -> Self {
                $of_single(value)
            }
        }
    )*};
}

real! {
    f32, std::convert::identity, std::convert::identity;
    f16, Self::to_f32, Self::from_f32;
    bf16, Self::to_f32, Self::from_f32;
    F8E4M3, |value: Self| value.to_f32(), |value| Self::from_bits(nearest(Narrow::E4M3, value));
    F8E5M2, |value: Self| value.to_f32(), |value| Self::from_bits(nearest(Narrow::E5M2, value));
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/element.rs"]
mod tests;
