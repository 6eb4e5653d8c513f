//! Tests of `crates/cli/src/bench/norm/expected.rs`, whose module they are.

use symmetra::half::bf16;

use super::*;

#[test]
fn every_wrong_element_is_counted() {
    let inputs = Inputs::<bf16>::new(7, 3 * 100, 100, [1, 4]);
    let sum = inputs.sum(Algorithm::OneShotSentinel);
    assert_eq!([Some(Algorithm::OneShotSentinel), None].map(|by| inputs.wrong_sums(&sum, by)), [0, 0]);
    // A unit of the last place is no error where the order is unknown; half of a sum is.
    let mut off = sum.clone();
    off[5] = bf16::from_bits(off[5].to_bits() ^ 1);
    assert_eq!([Some(Algorithm::OneShotSentinel), None].map(|by| inputs.wrong_sums(&off, by)), [1, 0]);
    off[5] = bf16::from_f32(1e6);
    assert_eq!(inputs.wrong_sums(&off, None), 1);

    let (mut x, operations) = (inputs.residual().to_vec(), 3);
    for _ in 0..operations {
        x = x.iter().zip(&sum).map(|(x, sum)| bf16::from_f32(x.to_f32() + sum.to_f32())).collect();
    }
    let mut output = normed(&x, inputs.weight(), NORM);
    assert_eq!(inputs.wrong_norms(&sum, operations, [&x, &output]), 0);
    assert!(inputs.wrong_norms(&sum, operations - 1, [&x, &output]) > 100);
    output[299] = bf16::from_bits(output[299].to_bits() ^ 1);
    x[0] = bf16::from_bits(x[0].to_bits() ^ 1);
    assert_eq!(inputs.wrong_norms(&sum, operations, [&x, &output]), 2);
    assert_eq!(inputs.wrong_norms(&sum, operations, [&x, &output[..298]]), 3);
}
