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
    // -0 is less than 0, and a NaN wins.
    assert_eq!(reduce(Reduction::Max, [0.0f32, -0.0]).to_bits(), 0);
    assert_eq!(reduce(Reduction::Min, [0.0, -0.0].map(bf16::from_f32)).to_bits(), 0x8000);
    assert!(reduce(Reduction::Min, [f32::NAN, 1.0]).is_nan() && reduce(Reduction::Max, [1.0, f64::NAN]).is_nan());
    // All NaNs of a sum of 8-bit floats are one. Averages divide by the ranks, also of partial sums.
    assert_eq!(reduce(Reduction::Sum, [0xff, 0x38].map(F8E4M3::from_bits)).to_bits(), 0x7f);
    assert_eq!(f16::reduce_over(Reduction::Average, [6.0, 2.0].map(f16::from_f32).into_iter(), 4).to_f32(), 2.0);
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

#[test]
fn whole_numbers_and_rounding() {
    assert_eq!((f32::whole(-3), bf16::whole(5).to_f32(), i8::whole(-7), u64::whole(9)), (-3.0, 5.0, -7, 9));
    assert_eq!((F8E4M3::whole(-12).wide(), F8E5M2::whole(448).wide(), i64::whole(-1).wide()), (-12.0, 448.0, -1.0));
    // Of two as near, the even one; beyond the largest value, the largest.
    assert_eq!([17.0, 19.0, 500.0].map(|value| F8E4M3::of_single(value).single()), [16.0, 20.0, 448.0]);
    assert_eq!([9.0, 11.0, -1e6].map(|value| F8E5M2::of_single(value).single()), [8.0, 12.0, -57344.0]);
    assert!(F8E5M2::of_single(f32::NAN).wide().is_nan());
}
