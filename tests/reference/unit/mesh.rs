//! Tests of `crates/reference/src/mesh.rs`, whose module they are: examples that are worked out by hand.

use super::*;

/// The outputs of the ranks of a mesh of two tensor and two data ranks, whose tensor ranks are neighbours.
fn outputs(operation: MixedOperation, reduction: Reduction, rows: [usize; 2], inputs: [&[i64]; 4]) -> Vec<Vec<i64>> {
    let call = MeshCall { operation, reduction, rows: &rows, data_ranks: &[0, 0, 1, 1] };
    let inputs = inputs.map(<[i64]>::to_vec);
    let output = |rank| {
        let output = call.output(&inputs, rank);
        assert_eq!(call.elems(rank), [inputs[rank].len(), output.len()]);
        output
    };
    (0..4).map(output).collect()
}

#[test]
fn slices_of_data_ranks_are_reduced_and_gathered() {
    let inputs: [&[i64]; 4] = [&[1, 2], &[10, 20], &[3], &[-4]];
    let gathered = |reduction| outputs(MixedOperation::AllReduceAllGather, reduction, [2, 1], inputs);
    assert_eq!(gathered(Reduction::Sum), vec![vec![11, 22, -1]; 4]);
    assert_eq!(gathered(Reduction::Product), vec![vec![10, 40, -12]; 4]);
    assert_eq!(gathered(Reduction::Min), vec![vec![1, 2, -4]; 4]);
    assert_eq!(gathered(Reduction::Max), vec![vec![10, 20, 3]; 4]);
    let call = MeshCall {
        operation: MixedOperation::AllGather,
        reduction: Reduction::Sum,
        rows: &[1, 2],
        data_ranks: &[1, 0],
    };
    assert_eq!(call.output(&[vec![5, 6], vec![7]], 0), [7, 5, 6]);
}

#[test]
fn sums_of_all_ranks_are_scattered_to_data_ranks() {
    let inputs: [&[i64]; 4] = [&[1, 2, 3], &[10, 20, 30], &[100, 200, 300], &[0, 0, 3]];
    let scattered = |reduction| outputs(MixedOperation::ReduceScatterAllReduce, reduction, [1, 2], inputs);
    assert_eq!(scattered(Reduction::Sum), [vec![111], vec![111], vec![222, 336], vec![222, 336]]);
    assert_eq!(scattered(Reduction::Average)[3], [55, 84]);
}

#[test]
fn all_reduces() {
    let call =
        MeshCall { operation: MixedOperation::AllReduce, reduction: Reduction::Sum, rows: &[2], data_ranks: &[0, 0] };
    assert_eq!((call.output(&[vec![1, 2], vec![3, -4]], 1), call.elems(0)), (vec![4, -2], [2, 2]));
}
