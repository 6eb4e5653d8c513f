//! Tests of `src/experts/survivors.rs`, whose module they are.

use super::*;

#[test]
fn survivors_keep_their_experts_and_share_the_rest() {
    let lists = [vec![0, 1, 2], vec![3, 4], vec![5, 6, 7], vec![8, 3]];
    // Expert 3 has another copy.
    assert_eq!(placed_anew(&lists, &[0, 2, 3], 9), [vec![0, 1, 2], vec![5, 6, 7], vec![8, 3, 4]]);
    assert_eq!(placed_anew(&lists, &[1, 3], 9), [vec![3, 4, 0, 2, 6], vec![8, 3, 1, 5, 7]]);
    assert_eq!(placed_anew(&lists, &[2], 9), [vec![5, 6, 7, 0, 1, 2, 3, 4, 8]]);
    assert_eq!(placed_anew(&lists, &[0, 1, 2, 3], 9), lists);
}
