//! Random whole numbers whose sums are exact in every type, and the expected output of each rank, derived only from the
//! places of ranks in the mesh.

use fastrand::Rng;
use symmetra::Reduction;
use symmetra::mixed::MixedOperation;

use reference::mesh::MeshCall;

/// The place of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct OraclePosition {
    pub(super) tensor_rank: usize,
    pub(super) data_rank: usize,
}

/// One call of all ranks.
pub(super) struct GridOracle {
    operation: MixedOperation,
    seed: u64,
    /// Elements of `x`, or of a slice, of each data rank.
    rows: Vec<usize>,
    /// The data rank of each rank.
    data_ranks: Vec<usize>,
}

impl GridOracle {
    /// `count`: elements of `x`, or of a slice. `places`: the places of all ranks of the world.
    pub(super) fn new(
        operation: MixedOperation,
        seed: u64,
        count: usize,
        places: &[OraclePosition],
        data_size: usize,
    ) -> Self {
        let data_ranks = places.iter().map(|place| place.data_rank).collect();
        Self { operation, seed, rows: vec![count; data_size], data_ranks }
    }

    fn call(&self) -> MeshCall<'_> {
        let Self { operation, rows, data_ranks, .. } = self;
        MeshCall { operation: *operation, reduction: Reduction::Sum, rows, data_ranks }
    }

    /// Elements of `x`, or of a slice.
    pub(super) fn count(&self) -> usize {
        self.rows[0]
    }

    /// Elements of the input and of the output, equal on every rank.
    pub(super) fn lens(&self) -> [usize; 2] {
        self.call().elems(0)
    }

    /// -1, 0 or 1; every other rank has 0, so that sums of 16 ranks are at most 8, which every type can represent.
    pub(super) fn input(&self, rank: usize) -> Vec<i64> {
        let mut random = Rng::with_seed(self.seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..self.lens()[0]).map(|elem| if (elem + rank).is_multiple_of(2) { random.i64(-1..=1) } else { 0 }).collect()
    }

    /// The expected output of a rank.
    pub(super) fn output(&self, rank: usize) -> Vec<i64> {
        let inputs: Vec<Vec<i64>> = (0..self.data_ranks.len()).map(|rank| self.input(rank)).collect();
        self.call().output(&inputs, rank)
    }
}
