//! Random inputs that depend on rank and index, and their expected reductions. The reference uses only the rule: rank
//! order, single precision except f64, one rounding, 8-bit floats that saturate, wrapping integers. The ring and recursive doubling have their own
//! orders and round at every rank.

use std::cmp::Ordering;

use half::{bf16, f16};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Algorithm, Element, Reduction};

use super::narrow;

/// A generator with equal numbers on every platform (SplitMix64).
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// In `0..limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Shuffles items; equal seeds have equal orders.
pub fn shuffle<T>(seed: u64, items: &mut [T]) {
    let mut random = Random(mix(seed));
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last + 1));
    }
}

/// An element type of the tests.
pub trait Sample: Element + PartialEq + std::fmt::Debug {
    /// An ordinary value from random bits: finite, of varied size and sign, so that sums round and depend on their
    /// order.
    fn sample(bits: u64) -> Self;
    /// The reference reduction over ranks.
    fn reduce(reduction: Reduction, inputs: impl ExactSizeIterator<Item = Self>) -> Self;
    /// The average over `ranks`, given the last two partial sums.
    fn average(last: [Self; 2], ranks: usize) -> Self;
    fn bits(self) -> u64;
    fn is_nan(self) -> bool;
}

/// A value with a sign, 24 random bits, and a size from 2^-6 to 2^6.
fn ordinary(bits: u64) -> f64 {
    let fraction = 1.0 + (bits & 0xFF_FFFF) as f64 / f64::from(1 << 24);
    let size = f64::from((bits >> 24 & 15) as i32 - 6).min(6.0).exp2();
    if bits >> 40 & 1 == 1 { -fraction * size } else { fraction * size }
}

macro_rules! floating {
    ($($type:ty, $wide:ty, $narrow:expr, $widen:expr;)*) => {$(
        impl Sample for $type {
            fn sample(bits: u64) -> Self {
                $narrow(ordinary(bits) as $wide)
            }
            fn reduce(reduction: Reduction, inputs: impl ExactSizeIterator<Item = Self>) -> Self {
                let ranks = inputs.len() as $wide;
                // The order of min and max: zeros by their sign; NaNs win.
                let picked = |a: $wide, b: $wide, order: Ordering| match a.total_cmp(&b) {
                    _ if a.is_nan() || b.is_nan() => <$wide>::NAN,
                    found if found == order => a,
                    _ => b,
                };
                let values = inputs.map($widen);
                let all = match reduction {
                    Reduction::Product => values.reduce(|a, b| a * b),
                    Reduction::Min => values.reduce(|a, b| picked(a, b, Ordering::Less)),
                    Reduction::Max => values.reduce(|a, b| picked(a, b, Ordering::Greater)),
                    Reduction::Average => values.reduce(|a, b| a + b).map(|sum| sum / ranks),
                    _ => values.reduce(|a, b| a + b),
                };
                $narrow(all.unwrap())
            }
            fn average([first, second]: [Self; 2], ranks: usize) -> Self {
                $narrow(($widen(first) + $widen(second)) / ranks as $wide)
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn is_nan(self) -> bool {
                $widen(self).is_nan()
            }
        }
    )*};
}

macro_rules! integer {
    ($($type:ty, $unsigned:ty, $wide:ty, $wrapped:ty;)*) => {$(
        impl Sample for $type {
            fn sample(bits: u64) -> Self {
                bits as Self
            }
            fn reduce(reduction: Reduction, mut inputs: impl ExactSizeIterator<Item = Self>) -> Self {
                let ranks = inputs.len() as $wide;
                match reduction {
                    Reduction::Product => inputs.fold(1, Self::wrapping_mul),
                    Reduction::Min => inputs.min().unwrap(),
                    Reduction::Max => inputs.max().unwrap(),
                    Reduction::Average => {
                        let sum = inputs.try_fold(0, |sum: $wide, value| sum.checked_add(value.into()));
                        // Only 64-bit integers are as wide as their sum, which wraps.
                        (sum.unwrap() as $wrapped / ranks as $wrapped) as Self
                    }
                    _ => inputs.fold(0, Self::wrapping_add),
                }
            }
            fn average(_: [Self; 2], _: usize) -> Self {
                unimplemented!("averages of integers are not made of partial sums")
            }
            fn bits(self) -> u64 {
                (self as $unsigned).into()
            }
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

floating! {
    f32, f32, std::convert::identity, std::convert::identity;
    f64, f64, std::convert::identity, std::convert::identity;
    f16, f32, f16::from_f32, f16::to_f32;
    bf16, f32, bf16::from_f32, bf16::to_f32;
    F8E4M3, f32, narrow::e4m3, |value: F8E4M3| value.to_f32();
    F8E5M2, f32, narrow::e5m2, |value: F8E5M2| value.to_f32();
}
integer! {
    i8, u8, i128, i64;
    u8, u8, u128, u64;
    i32, u32, i128, i64;
    u32, u32, u128, u64;
    i64, u64, i128, i64;
    u64, u64, u128, u64;
}

/// A long random input for every rank, and its reductions. A case uses a window of it.
pub struct Data<T> {
    pub inputs: Vec<Vec<T>>,
    pub sums: Vec<T>,
    /// The reductions other than the sum, in the order of their numbers.
    others: Vec<Vec<T>>,
}

impl<T: Sample> Data<T> {
    pub fn new(seed: u64, world: usize, len: usize) -> Self {
        let value = |rank: usize, index: usize| T::sample(mix(mix(seed ^ (rank as u64) << 48) ^ index as u64));
        Self::of((0..world).map(|rank| (0..len).map(|index| value(rank, index)).collect()).collect())
    }

    pub fn of(inputs: Vec<Vec<T>>) -> Self {
        let element = |reduction, index: usize| T::reduce(reduction, inputs.iter().map(|input| input[index]));
        let all = |reduction| (0..inputs[0].len()).map(|index| element(reduction, index)).collect();
        let (sums, others) =
            (all(Reduction::Sum), Reduction::ALL[1..].iter().map(|reduction| all(*reduction)).collect());
        Self { inputs, sums, others }
    }

    pub fn result(&self, reduction: Reduction) -> &[T] {
        (reduction as usize).checked_sub(1).map_or(&self.sums, |other| &self.others[other])
    }

    /// The expected result of an algorithm for a message of `count` elements from `start`.
    pub fn expected(&self, algorithm: Algorithm, reduction: Reduction, start: usize, count: usize) -> Vec<T> {
        let world = self.inputs.len();
        let of = |index: usize| self.inputs.iter().map(move |input| input[start + index]);
        if algorithm.is_exact(T::DTYPE, world) {
            return self.result(reduction)[start..start + count].to_vec();
        }
        if algorithm == Algorithm::RecursiveDoubling {
            return (0..count).map(|index| doubled(reduction, of(index).collect())).collect();
        }
        // Chunks are whole packets of 16 bytes; the reduction of chunk c starts at rank c.
        let packet = 16 / size_of::<T>();
        let share = count.div_ceil(packet).div_ceil(world);
        let around = |index: usize| of(index).cycle().skip(index / packet / share);
        let partial = |index: usize| around(index).take(world - 1).reduce(|a, b| pair(reduction, [a, b])).unwrap();
        let last = |index: usize| [partial(index), around(index).nth(world - 1).unwrap()];
        (0..count).map(|index| last_pair(reduction, last(index), world)).collect()
    }

    /// The start of the window of `count` elements for a case.
    pub fn start(&self, case: u64, count: usize) -> usize {
        (mix(case) % (self.sums.len() - count + 1) as u64) as usize
    }
}

/// Reduces two values of several and rounds: a partial sum is not yet an average.
fn pair<T: Sample>(reduction: Reduction, both: [T; 2]) -> T {
    let reduction = if reduction == Reduction::Average { Reduction::Sum } else { reduction };
    T::reduce(reduction, both.into_iter())
}

fn last_pair<T: Sample>(reduction: Reduction, both: [T; 2], world: usize) -> T {
    if reduction == Reduction::Average { T::average(both, world) } else { pair(reduction, both) }
}

/// The result of recursive doubling: ranks beyond a power of two join the first ranks, then neighbours, neighbouring
/// pairs and so on.
fn doubled<T: Sample>(reduction: Reduction, mut values: Vec<T>) -> T {
    let world = values.len();
    let beyond = values.split_off(1 << world.ilog2());
    values.iter_mut().zip(beyond).for_each(|(value, folded)| *value = pair(reduction, [*value, folded]));
    while values.len() > 2 {
        values = values.chunks(2).map(|both| pair(reduction, [both[0], both[1]])).collect();
    }
    last_pair(reduction, [values[0], values[1]], world)
}

/// Asserts equal bits, where any NaN equals any NaN. Names the first difference.
pub fn assert_same<T: Sample>(got: &[T], expected: &[T], context: &dyn std::fmt::Debug) {
    assert_eq!(got.len(), expected.len(), "{context:?}");
    if bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(expected) {
        return;
    }
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got.bits() == expected.bits() || (got.is_nan() && expected.is_nan());
        assert!(
            same,
            "element {index} is {got:?} ({:#x}), not {expected:?} ({:#x}): {context:?}",
            got.bits(),
            expected.bits()
        );
    }
}
