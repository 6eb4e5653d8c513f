//! Tests of `crates/cli/src/mixed/engine.rs`, whose module they are: the planned collectives, run on whole numbers of all ranks.

use super::super::oracle::GridOracle;
use super::*;

const POISON: i64 = 1 << 40;

/// The memory of one rank.
struct Memory {
    place: OraclePosition,
    input: Vec<i64>,
    output: Vec<i64>,
}

impl Memory {
    fn part(&self, stretch: &OperandStretch) -> Vec<i64> {
        match stretch {
            OperandStretch::Input(range) => self.input[range.clone()].to_vec(),
            OperandStretch::Output(range) => self.output[range.clone()].to_vec(),
        }
    }
}

/// The outputs of the members with these inputs, in their order.
fn collective(collective: CollectiveCommand, given: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let sum: Vec<i64> = (0..given[0].len()).map(|elem| given.iter().map(|given| given[elem]).sum()).collect();
    let share = sum.len() / given.len();
    let of = |member: usize| match collective {
        CollectiveCommand::AllReduce => sum.clone(),
        CollectiveCommand::AllGather => given.concat(),
        CollectiveCommand::ReduceScatter => sum[member * share..(member + 1) * share].to_vec(),
        other => panic!("{other:?}"),
    };
    (0..given.len()).map(of).collect()
}

fn run(operation: MixedOperation, [tensor, data]: [usize; 2], count: usize) {
    // The ranks of a host as a mesh numbers them.
    let places: Vec<OraclePosition> = (0..tensor * data)
        .map(|rank| OraclePosition { tensor_rank: rank % tensor, data_rank: rank / tensor })
        .collect();
    let oracle = GridOracle::new(operation, 5, count, &places, data);
    let mut ranks: Vec<Memory> = (0..places.len())
        .map(|rank| Memory { place: places[rank], input: oracle.input(rank), output: vec![POISON; oracle.lens()[1]] })
        .collect();
    let plans: Vec<Vec<PlannedGrid>> =
        places.iter().map(|place| plan(operation, (place.data_rank, data), count).unwrap()).collect();
    for (step, PlannedGrid { collective: what, level, .. }) in plans[0].iter().enumerate() {
        let group = |place: &OraclePosition| if *level == Level::Tensor { place.data_rank } else { place.tensor_rank };
        for number in 0..if *level == Level::Tensor { data } else { tensor } {
            let members: Vec<usize> = (0..ranks.len()).filter(|rank| group(&ranks[*rank].place) == number).collect();
            assert!(members.len() > 1, "{operation} has no collective over one rank");
            let given: Vec<Vec<i64>> =
                members.iter().map(|rank| ranks[*rank].part(&plans[*rank][step].operands[0])).collect();
            for (rank, got) in members.iter().zip(collective(*what, &given)) {
                let OperandStretch::Output(range) = plans[*rank][step].operands[1].clone() else {
                    panic!("into the input")
                };
                ranks[*rank].output[range].copy_from_slice(&got);
            }
        }
    }
    for (rank, memory) in ranks.iter().enumerate() {
        assert_eq!(memory.output, oracle.output(rank), "{operation} of {count} on {tensor} x {data}, rank {rank}");
    }
}

#[test]
fn the_collectives_make_what_the_operation_is() {
    for count in [1, 7, 64] {
        run(MixedOperation::AllReduce, [3, 1], count);
        run(MixedOperation::AllGather, [1, 4], count);
        run(MixedOperation::ReduceScatter, [1, 2], count);
        for grid in [[2, 2], [2, 3], [4, 2]] {
            run(MixedOperation::AllReduceAllGather, grid, count);
            run(MixedOperation::ReduceScatterAllReduce, grid, count);
        }
    }
}

#[test]
fn collectives_are_said_in_words() {
    let words = |operation| words(&plan(operation, (0, 2), 8).unwrap());
    assert_eq!(words(MixedOperation::AllReduceAllGather), "all-reduce (tensor), all-gather (data)");
    assert_eq!(words(MixedOperation::ReduceScatter), "reduce-scatter (data)");
}
