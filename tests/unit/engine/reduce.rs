//! Tests of `src/engine/reduce.rs`, whose module they are.

use super::*;
use Reduction::*;

fn reduced<T: Element>(reduction: Reduction, ranks: &[T]) -> T {
    let mut result = [T::zeroed()];
    reduce(reduction, ranks, &mut result);
    result[0]
}

#[test]
fn in_rank_order_and_rounded_once() {
    let mut total = [0.0f32; 2];
    reduce(Sum, &[1e8f32, 1.0, -1e8, 2.0, 1.0, 3.0], &mut total);
    assert_eq!(total, [1.0, 6.0]);
    // Rounded after every step, it would stay at 256.
    assert_eq!(reduced(Sum, &[256.0, 1.0, 1.0].map(bf16::from_f32)).to_f32(), 258.0);
    // In half precision the sum would be infinite.
    assert_eq!(reduced(Average, &[60000.0, 60000.0, 3.0].map(f16::from_f32)), f16::from_f32(120003.0 / 3.0));
    assert_eq!(reduced(Product, &[3.0f64, -0.5, 7.0]), -10.5);
    reduce::<f32>(Average, &[], &mut []);
}

#[test]
fn integers_wrap_but_for_sums_behind_averages() {
    assert_eq!(reduced(Sum, &[i32::MAX, 1]), i32::MIN);
    assert_eq!(reduced(Product, &[200u8, 3]), 88);
    assert_eq!(reduced(Average, &[-128i8, -128, -127]), -127);
    assert_eq!(reduced(Average, &[u32::MAX, u32::MAX, 0]), u32::MAX / 3 * 2);
    assert_eq!(reduced(Average, &[u64::MAX, 3]), 1);
    assert_eq!([reduced(Min, &[-1i64, 1]), reduced(Max, &[-1i64, 1])], [-1, 1]);
    assert_eq!([reduced(Min, &[u64::MAX, 1]), reduced(Max, &[u64::MAX, 1])], [1, u64::MAX]);
}

#[test]
fn pitfall_27_what_is_no_ordinary_number() {
    let nan = [0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000].map(f64::from_bits);
    for reduction in Reduction::ALL {
        for ranks in [[nan[0], 1.0], [1.0, nan[1]], nan] {
            assert_eq!(reduced(reduction, &ranks).to_bits(), 0x7FF8_0000_0000_0000, "{reduction} of {ranks:?}");
        }
    }
    assert!(reduced(Sum, &[f32::INFINITY, f32::NEG_INFINITY]).is_nan());
    for zeros in [[0.0f32, -0.0], [-0.0, 0.0]] {
        assert!(reduced(Min, &zeros).is_sign_negative() && reduced(Max, &zeros).is_sign_positive());
    }
    assert!(reduced(Sum, &[-0.0f32, -0.0]).is_sign_negative());
    assert_eq!(reduced(Max, &[f16::NEG_INFINITY, f16::MIN]), f16::MIN);
}
