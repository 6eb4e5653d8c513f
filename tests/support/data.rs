//! Random inputs that depend on rank and index, and their expected reductions.

use half::{bf16, f16};
use reference::data::reduced_by;
use reference::element::{Real, Summand};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Algorithm, Reduction};

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
pub trait Sample: Summand + PartialEq + std::fmt::Debug {
    /// An ordinary value from random bits: finite, of varied size and sign, so that sums round and depend on their
    /// order.
    fn sample(bits: u64) -> Self;

    fn bits(self) -> u64 {
        let mut bits = [0; 8];
        bits[..size_of::<Self>()].copy_from_slice(bytemuck::bytes_of(&self));
        u64::from_le_bytes(bits)
    }

    fn is_nan(self) -> bool {
        self.wide().is_nan()
    }
}

/// A value with a sign, 24 random bits, and a size from 2^-6 to 2^6.
fn ordinary(bits: u64) -> f64 {
    let fraction = 1.0 + (bits & 0xFF_FFFF) as f64 / f64::from(1 << 24);
    let size = f64::from((bits >> 24 & 15) as i32 - 6).min(6.0).exp2();
    if bits >> 40 & 1 == 1 { -fraction * size } else { fraction * size }
}

macro_rules! samples {
    ($($type:ty: $bits:ident => $sample:expr;)*) => {$(
        impl Sample for $type {
            fn sample($bits: u64) -> Self {
                $sample
            }
        }
    )*};
}

samples! {
    f32: bits => ordinary(bits) as f32;
    f64: bits => ordinary(bits);
    f16: bits => Self::of_single(ordinary(bits) as f32);
    bf16: bits => Self::of_single(ordinary(bits) as f32);
    F8E4M3: bits => Self::of_single(ordinary(bits) as f32);
    F8E5M2: bits => Self::of_single(ordinary(bits) as f32);
    i8: bits => bits as Self;
    u8: bits => bits as Self;
    i32: bits => bits as Self;
    u32: bits => bits as Self;
    i64: bits => bits as Self;
    u64: bits => bits;
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
        if algorithm.is_exact(T::DTYPE, world) {
            return self.result(reduction)[start..start + count].to_vec();
        }
        let element = |index: usize| {
            let values: Vec<T> = self.inputs.iter().map(|input| input[start + index]).collect();
            reduced_by(algorithm, reduction, &values, [index, count])
        };
        (0..count).map(element).collect()
    }

    /// The start of the window of `count` elements for a case.
    pub fn start(&self, case: u64, count: usize) -> usize {
        (mix(case) % (self.sums.len() - count + 1) as u64) as usize
    }
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
