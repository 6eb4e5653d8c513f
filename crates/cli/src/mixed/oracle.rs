//! Random whole numbers whose sums are exact in every type, and the expected output of each rank, derived only from the
//! places of ranks in the mesh.

use fastrand::Rng;
use symmetra::Element;
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::half::{bf16, f16};
use symmetra::mixed::MixedOperation;

/// An element type that has small whole numbers.
pub(super) trait Whole: Element + PartialEq {
    fn whole(value: i64) -> Self;
}

macro_rules! whole {
    ($($element:ty: $value:ident => $from:expr;)*) => {$(
        impl Whole for $element {
            fn whole($value: i64) -> Self {
                $from
            }
        }
    )*};
}

whole! {
    f32: value => value as Self;
    f64: value => value as Self;
    f16: value => Self::from_f64(value as f64);
    bf16: value => Self::from_f64(value as f64);
    F8E4M3: value => Self::from_f32(value as f32);
    F8E5M2: value => Self::from_f32(value as f32);
    i8: value => value as Self;
    u8: value => value as Self;
    i32: value => value as Self;
    u32: value => value as Self;
    i64: value => value as Self;
    u64: value => value as Self;
}

/// The place of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) tensor_rank: usize,
    pub(super) data_rank: usize,
}

/// One call of all ranks.
pub(super) struct Oracle {
    pub(super) operation: MixedOperation,
    pub(super) seed: u64,
    /// Elements of `x`, or of a slice.
    pub(super) count: usize,
    /// The places of all ranks of the world.
    pub(super) places: Vec<Place>,
    pub(super) data_ranks: usize,
}

impl Oracle {
    fn is_scattered(&self) -> bool {
        matches!(self.operation, MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce)
    }

    /// Elements of the input and of the output.
    pub(super) fn lens(&self) -> [usize; 2] {
        let all = self.data_ranks * self.count;
        match self.operation {
            MixedOperation::AllReduce => [self.count, self.count],
            _ if self.is_scattered() => [all, self.count],
            _ => [self.count, all],
        }
    }

    /// -1, 0 or 1; every other rank has 0, so that sums of 16 ranks are at most 8, which every type can represent.
    pub(super) fn input(&self, rank: usize) -> Vec<i64> {
        let mut random = Rng::with_seed(self.seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..self.lens()[0]).map(|elem| if (elem + rank).is_multiple_of(2) { random.i64(-1..=1) } else { 0 }).collect()
    }

    /// The expected output of a rank.
    pub(super) fn output(&self, rank: usize) -> Vec<i64> {
        let inputs: Vec<Vec<i64>> = (0..self.places.len()).map(|rank| self.input(rank)).collect();
        let sum = |elem: usize, of: &dyn Fn(usize) -> bool| -> i64 {
            inputs.iter().enumerate().filter(|(rank, _)| of(*rank)).map(|(_, input)| input[elem]).sum()
        };
        let count = self.count;
        let own = self.places[rank].data_rank;
        match self.operation {
            MixedOperation::AllReduce => (0..count).map(|elem| sum(elem, &|_| true)).collect(),
            _ if self.is_scattered() => (0..count).map(|elem| sum(own * count + elem, &|_| true)).collect(),
            _ => (0..self.data_ranks * count)
                .map(|at| sum(at % count, &|rank| self.places[rank].data_rank == at / count))
                .collect(),
        }
    }
}
