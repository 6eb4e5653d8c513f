//! Tests of `crates/bench/src/norm/expected.rs`, whose module they are.

use symmetra::half::bf16;
use symmetra::{LayerNorm, RmsNorm};

use super::*;
use reference::norm::normed;

#[test]
fn every_wrong_element_is_counted() {
    let inputs = NormInputs::<bf16>::new(NormKind::Rms, 7, 3 * 100, 100, [1, 4]);
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
    assert!(inputs.expected(&sum, operations) == [x.clone(), normed(&x, inputs.weight(), RmsNorm::new(1e-6))]);
    assert!(inputs.expected(&sum, operations - 1)[0] != x);
}

#[test]
fn a_layer_norm_has_a_bias_in_addition_to_the_same_data() {
    let [rms, layer] =
        [NormKind::Rms, NormKind::Layer].map(|norm| NormInputs::<bf16>::new(norm, 7, 3 * 100, 100, [1, 4]));
    assert!(rms.bias().is_none() && layer.weight() == rms.weight() && layer.own() == rms.own());
    let bias = layer.bias().unwrap();
    assert!(bias.len() == 100 && bias != layer.weight());
    let [[x, _], [same, y]] = [&rms, &layer].map(|inputs| inputs.expected(&inputs.sum(Algorithm::OneShotSentinel), 1));
    assert!(x == same && y == biased(&x, layer.weight(), Some(bias), LayerNorm::new(1e-6)));
}

#[test]
fn sums_of_a_share_are_those_of_its_elements() {
    let inputs = NormInputs::<bf16>::new(NormKind::Rms, 8, 40, 10, [0, 2]);
    let sum = inputs.sum(Algorithm::TwoShotSentinel);
    for by in [Some(Algorithm::TwoShotSentinel), None] {
        assert_eq!(inputs.wrong_sums(&sum[20..], 20, by), 0);
        assert!(inputs.wrong_sums(&sum[20..], 10, by) > 10);
    }
}
