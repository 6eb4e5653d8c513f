use super::used;
use crate::op::{ALL_GATHER, ALL_REDUCE, BROADCAST, Op, REDUCE, REDUCE_SCATTER};

/// Elements that a call of `op` uses of operands with these lengths.
fn of(op: &Op, input: usize, output: usize, world: usize) -> Option<[usize; 2]> {
    used(op, input, output, world).ok()
}

#[test]
fn the_input_gives_the_count_except_where_it_has_a_part_for_each_rank_or_is_absent() {
    for (count, world) in [(0, 1), (1, 2), (5, 3), (1000, 8)] {
        for more in [0, 1, 77] {
            for op in [&ALL_REDUCE, &REDUCE] {
                assert_eq!(of(op, count, count + more, world), Some([count, count]));
            }
            assert_eq!(of(&ALL_GATHER, count, count * world + more, world), Some([count, count * world]));
            assert_eq!(of(&REDUCE_SCATTER, count * world + more, count, world), Some([count * world, count]));
            assert_eq!(of(&BROADCAST, count + more, count, world), Some([count, count]));
        }
    }
}

#[test]
fn an_operand_that_is_too_short_is_refused_with_its_length() {
    assert_eq!(of(&ALL_REDUCE, 5, 4, 2), None);
    assert_eq!(of(&REDUCE, 5, 0, 2), None);
    assert_eq!(of(&ALL_GATHER, 5, 14, 3), None);
    assert_eq!(of(&REDUCE_SCATTER, 14, 5, 3), None);
    assert_eq!(of(&BROADCAST, 4, 5, 3), None);
    assert_eq!(of(&ALL_GATHER, usize::MAX / 2 + 1, usize::MAX, 2), None);
    let message = used(&ALL_GATHER, 5, 14, 3).unwrap_err().to_string();
    assert!(message.contains("the output's length is 14") && message.contains("5 elements over 3 ranks"), "{message}");
}
