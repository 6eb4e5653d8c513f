//! Tests of `crates/bench/src/norm/expected.rs`, whose module they are.

use symmetra::half::bf16;

use super::*;

#[test]
fn every_wrong_element_is_counted() {
    let inputs = Inputs::<bf16>::new(7, 3 * 100, 100, [1, 4]);
    let sum = inputs.sum(Algorithm::OneShotSentinel);
    assert_eq!([Some(Algorithm::OneShotSentinel), None].map(|by| inputs.wrong_sums(&sum, 0, by)), [0, 0]);
    // A unit of the last place is no error where the order is unknown; half of a sum is.
    let mut off = sum.clone();
    off[5] = bf16::from_bits(off[5].to_bits() ^ 1);
    assert_eq!([Some(Algorithm::OneShotSentinel), None].map(|by| inputs.wrong_sums(&off, 0, by)), [1, 0]);
    off[5] = bf16::from_f32(1e6);
    assert_eq!(inputs.wrong_sums(&off, 0, None), 1);

    let (mut x, operations) = (inputs.residual().to_vec(), 3);
    for _ in 0..operations {
        x = x.iter().zip(&sum).map(|(x, sum)| bf16::from_f32(x.to_f32() + sum.to_f32())).collect();
    }
    assert!(inputs.expected(&sum, operations) == [x.clone(), normed(&x, inputs.weight(), NORM)]);
    assert!(inputs.expected(&sum, operations - 1)[0] != x);
}

#[test]
fn sums_of_a_share_are_those_of_its_elements() {
    let inputs = Inputs::<bf16>::new(8, 40, 10, [0, 2]);
    let sum = inputs.sum(Algorithm::TwoShotSentinel);
    for by in [Some(Algorithm::TwoShotSentinel), None] {
        assert_eq!(inputs.wrong_sums(&sum[20..], 20, by), 0);
        assert!(inputs.wrong_sums(&sum[20..], 10, by) > 10);
    }
}
