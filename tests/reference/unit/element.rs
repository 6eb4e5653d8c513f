//! Tests of `crates/reference/src/element.rs`, whose module they are.

use super::*;

#[test]
fn results_round_once_and_integers_wrap() {
    fn reduce<T: Summand>(reduction: Reduction, values: impl IntoIterator<IntoIter: ExactSizeIterator<Item = T>>) -> T {
        T::reduce(reduction, values.into_iter())
    }
    // 256 + 1 is not a bf16, but 256 + 1 + 1 is 258.
    let values = [256.0, 1.0, 1.0].map(bf16::from_f32);
    assert_eq!(reduce(Reduction::Sum, values).to_f32(), 258.0);
    assert_eq!(reduce(Reduction::Average, values).to_f32(), 86.0);
    // 16 + 1 is a tie of e4m3, but 16 + 1 + 1 is 18. Results saturate.
    let values = [16.0, 1.0, 1.0].map(F8E4M3::from_f32);
    assert_eq!(reduce(Reduction::Sum, values).to_f32(), 18.0);
    assert_eq!(reduce(Reduction::Sum, [448.0, 448.0].map(F8E4M3::from_f32)).to_f32(), 448.0);
    assert_eq!(reduce(Reduction::Product, [-57344.0, 2.0].map(F8E5M2::from_f32)).to_f32(), -57344.0);
    assert_eq!(reduce(Reduction::Sum, [-0.0f32, -0.0]).to_bits(), (-0.0f32).to_bits());
    assert_eq!(reduce(Reduction::Sum, [i32::MAX, 1]), i32::MIN);
    assert_eq!(reduce(Reduction::Product, [i8::MIN, -1]), i8::MIN);
    assert_eq!(reduce(Reduction::Average, [200u8, 201, 202]), 201);
    assert_eq!(reduce(Reduction::Average, [-1i64, -2]), -1);
    assert_eq!(reduce(Reduction::Min, [u64::MAX, 1]), 1);
    assert_eq!(reduce(Reduction::Max, [-1.5, 0.25]), 0.25);
}

#[test]
fn drawn_floats_are_of_the_promised_size() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..1000 {
        for value in [
            f32::draw(&mut random).abs(),
            f16::draw(&mut random).to_f32().abs(),
            bf16::draw(&mut random).to_f32().abs(),
            F8E5M2::draw(&mut random).to_f32().abs(),
            // Four times as large, where the type has no denormals.
            F8E4M3::draw(&mut random).to_f32().abs() / 4.0,
        ] {
            assert!((1.0 / 256.0..16.0).contains(&value), "{value}");
        }
        assert!((1.0 / 256.0..16.0).contains(&f64::draw(&mut random).abs()));
    }
}
