//! Collectives over meshes of tensor and data parallelism, by the table of their operations.

use std::ops::Range;

use symmetra::Reduction;
use symmetra::mixed::MixedOperation;

/// A call of all ranks of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshCall<'a> {
    pub operation: MixedOperation,
    pub reduction: Reduction,
    /// The elements of `x`, or of the slice, of each data rank.
    pub rows: &'a [usize],
    /// The data rank of each rank.
    pub data_ranks: &'a [usize],
}

impl MeshCall<'_> {
    fn scatters(&self) -> bool {
        matches!(self.operation, MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce)
    }

    fn gathers(&self) -> bool {
        matches!(self.operation, MixedOperation::AllGather | MixedOperation::AllReduceAllGather)
    }

    /// Elements of the input and of the output of a rank.
    pub fn elems(&self, rank: usize) -> [usize; 2] {
        let (own, all) = (self.rows[self.data_ranks[rank]], self.rows.iter().sum());
        [if self.scatters() { all } else { own }, if self.gathers() { all } else { own }]
    }

    /// The output of a rank for the inputs of all ranks: whole numbers, of which every order of a reduction is exact.
    pub fn output(&self, inputs: &[Vec<i64>], rank: usize) -> Vec<i64> {
        let own = self.data_ranks[rank];
        if self.gathers() {
            let slice = |at: usize| {
                let of_slice = inputs.iter().zip(self.data_ranks).filter(|(_, data_rank)| **data_rank == at);
                self.reduced(&of_slice.map(|(input, _)| input.as_slice()).collect::<Vec<_>>(), 0..self.rows[at])
            };
            return (0..self.rows.len()).flat_map(slice).collect();
        }
        let start = if self.scatters() { self.rows[..own].iter().sum() } else { 0 };
        let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
        self.reduced(&inputs, start..start + self.rows[own])
    }

    /// The reduction of some elements; of an all-gather those of the first rank, because all are equal.
    fn reduced(&self, inputs: &[&[i64]], elems: Range<usize>) -> Vec<i64> {
        let of = |elem: usize| {
            let values = inputs.iter().map(|input| input[elem]);
            match self.reduction {
                _ if !self.operation.reduces() => inputs[0][elem],
                Reduction::Product => values.product(),
                Reduction::Min => values.min().unwrap_or_default(),
                Reduction::Max => values.max().unwrap_or_default(),
                Reduction::Average => values.sum::<i64>() / inputs.len() as i64,
                _ => values.sum(),
            }
        };
        elems.map(of).collect()
    }
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/mesh.rs"]
mod tests;
