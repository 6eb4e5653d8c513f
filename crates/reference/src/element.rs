//! Elements as random values, and the reductions with which results are compared.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use symmetra::{Element, Reduction};

/// An element that can be drawn at random and reduced by the library's rules.
pub trait Summand: Element + Wide {
    /// A random value. Floats have either sign and span twelve binary orders of magnitude, so that
    /// the order of a sum shows in its bits; integers are of any value, so that sums wrap.
    fn draw(random: &mut fastrand::Rng) -> Self;

    /// The reduction in order, in single precision for the narrow types, rounded once; 8-bit floats saturate, integers
    /// wrap.
    fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self;

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

            fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self {
                let ranks = values.len() as $wide;
                let values = values.map(<$wide>::from);
                // No value drawn is a NaN or a zero, for which min and max have rules of their own.
                let all = match reduction {
                    Reduction::Product => values.reduce(|a, b| a * b),
                    Reduction::Min => values.reduce(<$wide>::min),
                    Reduction::Max => values.reduce(<$wide>::max),
                    Reduction::Average => values.reduce(|a, b| a + b).map(|sum| sum / ranks),
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
float!(F8E4M3, u8, f32, mantissa 3, bias 7, lowest -6, round Self::from_f32);
float!(F8E5M2, u8, f32, mantissa 2, bias 15, lowest -8, round Self::from_f32);

macro_rules! integer {
    ($integer:ty, $sum:ty) => {
        impl Summand for $integer {
            fn draw(random: &mut fastrand::Rng) -> Self {
                random.u64(..) as Self
            }

            fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self {
                let ranks = values.len() as $sum;
                let all = match reduction {
                    Reduction::Product => values.reduce(Self::wrapping_mul),
                    Reduction::Min => values.min(),
                    Reduction::Max => values.max(),
                    Reduction::Average => {
                        values.map(<$sum>::from).reduce(<$sum>::wrapping_add).map(|sum| (sum / ranks) as Self)
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

/// An element as a number, for distances.
pub trait Wide: Copy {
    /// Half the distance from 1 to the next number; 0 for integers, which are exact.
    const ROUNDOFF: f64;
    fn wide(self) -> f64;
}

macro_rules! wide {
    ($($element:ty, $digits:expr;)*) => {$(
        impl Wide for $element {
            const ROUNDOFF: f64 = $digits;
            fn wide(self) -> f64 {
                self.into()
            }
        }
    )*};
}

wide! {
    f32, f32::EPSILON as f64 / 2.0;
    f64, f64::EPSILON / 2.0;
    f16, 1.0 / 2048.0;
    bf16, 1.0 / 256.0;
    F8E4M3, 1.0 / 16.0;
    F8E5M2, 1.0 / 8.0;
}

macro_rules! exact {
    ($($element:ty)*) => {$(
        impl Wide for $element {
            const ROUNDOFF: f64 = 0.0;
            fn wide(self) -> f64 {
                self as f64
            }
        }
    )*};
}

exact! { i8 u8 i32 u32 i64 u64 }

#[cfg(test)]
#[path = "../../../tests/reference/unit/element.rs"]
mod tests;
