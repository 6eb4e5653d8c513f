//! Tests of `src/environment/layout.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

#[test]
fn sixteen_ranks_as_the_guides_draw_them() {
    let layout = ParallelLayout::new(16, 4, 2, 2).unwrap();
    let groups = |parallelism| layout.groups(parallelism);
    assert_eq!(groups(Parallelism::Tensor)[1], [4, 5, 6, 7]);
    assert_eq!(groups(Parallelism::Pipeline)[..2], [vec![0, 4], vec![1, 5]]);
    assert_eq!(groups(Parallelism::Pipeline)[7], [11, 15]);
    assert_eq!(groups(Parallelism::Data), (0..8).map(|rank| vec![rank, rank + 8]).collect::<Vec<_>>());
    let experts = [vec![0, 1, 2, 3, 8, 9, 10, 11], vec![4, 5, 6, 7, 12, 13, 14, 15]];
    assert_eq!(groups(Parallelism::Expert), experts);
}

/// The rule by another road: nested loops over the dimensions.
fn by_loops(world: usize, sizes: [usize; 3], parallelism: Parallelism) -> Vec<Vec<usize>> {
    let [tensor, pipeline, data] = sizes;
    let external = world / (tensor * pipeline * data);
    let rank = |e: usize, d: usize, p: usize, t: usize| t + tensor * (p + pipeline * (d + data * e));
    let mut groups = Vec::new();
    for e in 0..external {
        match parallelism {
            Parallelism::Tensor => {
                for d in 0..data {
                    for p in 0..pipeline {
                        groups.push((0..tensor).map(|t| rank(e, d, p, t)).collect());
                    }
                }
            }
            Parallelism::Pipeline => {
                for d in 0..data {
                    for t in 0..tensor {
                        groups.push((0..pipeline).map(|p| rank(e, d, p, t)).collect());
                    }
                }
            }
            Parallelism::Data => {
                for p in 0..pipeline {
                    for t in 0..tensor {
                        groups.push((0..data).map(|d| rank(e, d, p, t)).collect());
                    }
                }
            }
            Parallelism::Expert => {
                for p in 0..pipeline {
                    let ranks = (0..data).flat_map(|d| (0..tensor).map(move |t| (d, t)));
                    groups.push(ranks.map(|(d, t)| rank(e, d, p, t)).collect());
                }
            }
        }
    }
    groups.sort();
    groups
}

proptest! {
    #[test]
    fn groups_follow_the_rule(tensor in 1usize..=4, pipeline in 1usize..=4, data in 1usize..=4, external in 1usize..=2) {
        let world = tensor * pipeline * data * external;
        let layout = ParallelLayout::new(world, tensor, pipeline, data).unwrap();
        for parallelism in Parallelism::ALL {
            let mut groups = layout.groups(parallelism);
            for group in &groups {
                prop_assert_eq!(group.len(), layout.size(parallelism));
                for rank in group {
                    prop_assert_eq!(&layout.group_of(parallelism, *rank), group);
                }
            }
            groups.sort();
            prop_assert_eq!(groups, by_loops(world, [tensor, pipeline, data], parallelism));
        }
    }
}

#[test]
fn impossible_products_show_the_arithmetic() {
    let message = ParallelLayout::new(8, 4, 2, 2).unwrap_err().to_string();
    assert!(message.contains("8") && message.contains("2 data x 2 pipeline x 4 tensor = 16 ranks"), "{message}");
    assert!(ParallelLayout::new(8, 3, 1, 1).is_err());
    assert!(ParallelLayout::new(8, 0, 1, 1).unwrap_err().to_string().contains("tensor_parallel_size is 0"));
    assert!(ParallelLayout::new(8, usize::MAX, 2, 1).unwrap_err().to_string().contains("64 bits"));
    assert_eq!(ParallelLayout::new(8, 8, 1, 1).unwrap().group_of(Parallelism::Tensor, 8), [0usize; 0]);
}
