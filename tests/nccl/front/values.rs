//! Elements of NCCL's types with small integer values, which every type holds exactly.

use std::ffi::c_int;

use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::half::{bf16, f16};

/// The numbers of NCCL's types: int8 to float8e5m2.
pub(crate) const TYPES: std::ops::Range<c_int> = 0..12;

macro_rules! by_type {
    ($dtype:expr, $name:ident => $value:expr) => {
        match $dtype {
            0 => {
                type $name = i8;
                $value
            }
            1 => {
                type $name = u8;
                $value
            }
            2 => {
                type $name = i32;
                $value
            }
            3 => {
                type $name = u32;
                $value
            }
            4 => {
                type $name = i64;
                $value
            }
            5 => {
                type $name = u64;
                $value
            }
            6 => {
                type $name = f16;
                $value
            }
            7 => {
                type $name = f32;
                $value
            }
            8 => {
                type $name = f64;
                $value
            }
            9 => {
                type $name = bf16;
                $value
            }
            10 => {
                type $name = F8E4M3;
                $value
            }
            11 => {
                type $name = F8E5M2;
                $value
            }
            other => panic!("no type has the number {other}"),
        }
    };
}

/// A type with values of `f64`.
trait Value: Copy {
    fn encode(value: f64) -> Self;
    fn decode(self) -> f64;
}

macro_rules! values {
    ($encode:expr, $decode:expr; $($type:ty)*) => {$(
        impl Value for $type {
            fn encode(value: f64) -> Self {
                let encode: fn(f64) -> Self = $encode;
                encode(value)
            }

            fn decode(self) -> f64 {
                let decode: fn(Self) -> f64 = $decode;
                decode(self)
            }
        }
    )*};
}

values!(|value| value as Self, |value| value as f64; i8 u8 i32 u32 i64 u64 f32);
values!(|value| value, |value| value; f64);
values!(Self::from_f64, |value| value.to_f64(); f16 bf16 F8E4M3 F8E5M2);

pub(crate) fn bytes_of(dtype: c_int) -> usize {
    by_type!(dtype, T => size_of::<T>())
}

/// Memory of a program with elements of a type, aligned for every type.
#[derive(Clone)]
pub(crate) struct Memory {
    words: Vec<u64>,
    dtype: c_int,
    len: usize,
}

impl Memory {
    pub(crate) fn new(dtype: c_int, values: &[f64]) -> Self {
        let len = values.len();
        let mut memory = Self { words: vec![0; (len * bytes_of(dtype)).div_ceil(8) + 1], dtype, len };
        by_type!(dtype, T => {
            let place = memory.words.as_mut_ptr().cast::<T>();
            for (index, value) in values.iter().enumerate() {
                unsafe { place.add(index).write(<T as Value>::encode(*value)) };
            }
        });
        memory
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        let read =
            |index| by_type!(self.dtype, T => unsafe { self.words.as_ptr().cast::<T>().add(index).read() }.decode());
        (0..self.len).map(read).collect()
    }

    /// The address of an element.
    pub(crate) fn at(&mut self, index: usize) -> *mut std::ffi::c_void {
        let offset = index * bytes_of(self.dtype);
        unsafe { self.words.as_mut_ptr().cast::<u8>().add(offset) }.cast()
    }

    pub(crate) fn start(&mut self) -> *mut std::ffi::c_void {
        self.at(0)
    }
}

/// The value of an element of a rank: 0, 1 or 2, and 0 or 1 where sums of many ranks must be exact.
pub(crate) fn value(seed: u64, rank: usize, index: usize, most: u64) -> f64 {
    let mut mixed = seed ^ ((rank as u64) << 32) ^ index as u64;
    mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 33) % (most + 1)) as f64
}

/// The result of a reduction in a type: `sum`, `prod`, `max`, `min` and `avg` by their numbers.
pub(crate) fn reduced(dtype: c_int, op: c_int, values: impl Iterator<Item = f64> + Clone) -> f64 {
    let ranks = values.clone().count() as f64;
    let exact = match op {
        0 => values.sum(),
        1 => values.product(),
        2 => values.fold(f64::MIN, f64::max),
        3 => values.fold(f64::MAX, f64::min),
        4 => values.sum::<f64>() / ranks,
        other => panic!("no reduction has the number {other}"),
    };
    rounded(dtype, exact)
}

/// A number as a type has it.
pub(crate) fn rounded(dtype: c_int, number: f64) -> f64 {
    by_type!(dtype, T => <T as Value>::encode(number).decode())
}
