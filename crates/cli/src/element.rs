//! From a type's name to a Rust type, and the reductions that results are held to.

use half::{bf16, f16};
use symmetra::{Element, Reduction};

/// Runs `$body` with `$Type` as the Rust type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $Type:ident => $body:expr) => {
        with_element!($dtype, $Type => $body;
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16, I32 i32, I64 i64, I8 i8, U8 u8, U32 u32, U64 u64)
    };
    ($dtype:expr, $Type:ident => $body:expr; $($name:ident $rust:ty),*) => {
        match $dtype {
            $(symmetra::Dtype::$name => {
                type $Type = $rust;
                $body
            })*
            other => Err($crate::failure::Failure::failed(format!("this command knows nothing of {other}"))),
        }
    };
}

/// An element that can be drawn at random and reduced as the library promises to.
pub(crate) trait Summand: Element {
    /// A random value. Floats have either sign and span twelve binary orders of magnitude, so that
    /// the order of a sum shows in its bits; integers are of any value, so that sums wrap.
    fn draw(random: &mut fastrand::Rng) -> Self;

    /// The reduction in order, in single precision for the narrow types, rounded once; integers wrap.
    fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self;

    /// Whether it is the same value to the bit, or both are no number.
    fn matches(self, other: Self) -> bool;
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

            fn reduce(reduction: Reduction, values: impl ExactSizeIterator<Item = Self>) -> Self {
                let ranks = values.len() as $wide;
                let values = values.map(<$wide>::from);
                // No value drawn is a NaN or a zero, of which min and max have more to say.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_once_and_integers_wrap() {
        fn reduce<T: Summand>(
            reduction: Reduction,
            values: impl IntoIterator<IntoIter: ExactSizeIterator<Item = T>>,
        ) -> T {
            T::reduce(reduction, values.into_iter())
        }
        // 256 + 1 is not a bf16, but 256 + 1 + 1 is 258.
        let values = [256.0, 1.0, 1.0].map(bf16::from_f32);
        assert_eq!(reduce(Reduction::Sum, values).to_f32(), 258.0);
        assert_eq!(reduce(Reduction::Average, values).to_f32(), 86.0);
        assert_eq!(reduce(Reduction::Sum, [-0.0f32, -0.0]).to_bits(), (-0.0f32).to_bits());
        assert_eq!(reduce(Reduction::Sum, [i32::MAX, 1]), i32::MIN);
        assert_eq!(reduce(Reduction::Product, [i8::MIN, -1]), i8::MIN);
        assert_eq!(reduce(Reduction::Average, [200u8, 201, 202]), 201);
        assert_eq!(reduce(Reduction::Average, [-1i64, -2]), -1);
        assert_eq!(reduce(Reduction::Min, [u64::MAX, 1]), 1);
        assert_eq!(reduce(Reduction::Max, [-1.5, 0.25]), 0.25);
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
