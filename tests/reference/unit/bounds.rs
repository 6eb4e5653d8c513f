//! Tests of `crates/reference/src/bounds.rs`, whose module they are.

use half::bf16;

use super::*;
use crate::data::Data;

/// The effect of INT8 on a group in one hop, in double precision and with an exact scale.
fn by_int8(values: &[f64]) -> Vec<f64> {
    let scale = values.iter().fold(0.0, |most: f64, value| most.max(value.abs())) / 127.0;
    values.iter().map(|value| (value / scale).round() * scale).collect()
}

#[test]
fn an_element_beyond_its_bound_is_found() {
    let data = Data { seed: 9, elems: 100 };
    let inputs: Vec<Vec<f64>> = (0..2).map(|rank| data.of::<bf16>(rank).into_iter().map(f64::from).collect()).collect();
    let encoded = |input: &Vec<f64>| input.chunks(GROUP).flat_map(by_int8).collect::<Vec<_>>();
    let parts: Vec<Vec<f64>> = inputs.iter().map(encoded).collect();
    for (reduction, over) in [(Reduction::Sum, 1.0), (Reduction::Average, 2.0)] {
        let bounds = |codec| Bounds { codec, reduction, algorithm: Algorithm::OneShotSentinel };
        let count = |codec, result: &[bf16]| data.count_beyond(&bounds(codec), 2, result);
        let mut result: Vec<bf16> =
            (0..100).map(|index| bf16::from_f64((parts[0][index] + parts[1][index]) / over)).collect();
        assert_eq!(count(Codec::Int8, &result), 0);
        // Fewer bits may err more, and the codec of values as they are not at all.
        assert_eq!(count(Codec::Int4, &result), 0);
        assert!(count(Codec::None, &result) > 10);
        let most = inputs.iter().flatten().fold(0.0, |most: f64, value| most.max(value.abs()));
        result[3] = bf16::from_f64(f64::from(result[3]) + most / 20.0);
        result[99] = bf16::NAN;
        assert_eq!(count(Codec::Int8, &result), 2);
    }
}

#[test]
fn the_second_hop_may_err_by_the_sum() {
    let ranks = vec![vec![1.0; 32]; 4];
    let bounds = |algorithm| Bounds { codec: Codec::Int8, reduction: Reduction::Sum, algorithm };
    let error = |algorithm| bounds(algorithm).limits::<bf16>(&ranks)[0].error;
    let (one, two) = (error(Algorithm::OneShotSentinel), error(Algorithm::TwoShotSentinel));
    let (step, rounded) = (SLACK / 254.0, 2f64.powi(-8));
    assert!((one - (4.0 * step + rounded * (4.0 + 4.0 * step))).abs() < 1e-9, "{one}");
    let both = 4.0 * step + step * (4.0 + 4.0 * step);
    assert!((two - (both + rounded * (4.0 + both))).abs() < 1e-9, "{two}");
}
