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

#[test]
fn results_of_8_bit_floats_saturate() {
    let e4m3 = |values: [f32; 3]| reduced(Sum, &values.map(F8E4M3::from_f32)).to_bits();
    // 16 + 1 is a tie: rounded after every step, it would stay at 16.
    assert_eq!(e4m3([16.0, 1.0, 1.0]), 0x59);
    assert_eq!([e4m3([448.0, 448.0, 1.0]), e4m3([-448.0, -448.0, 1.0])], [0x7E, 0xFE]);
    assert_eq!([e4m3([-0.0; 3]), e4m3([f32::NAN, 1.0, 2.0])], [0x80, 0x7F]);
    let e5m2 = |bits: [u8; 3], reduction| reduced(reduction, &bits.map(F8E5M2::from_bits)).to_bits();
    let [one, most, infinity] = [0x3C, 0x7B, 0x7C];
    assert_eq!([e5m2([most, most, one], Sum), e5m2([infinity, one, one], Max)], [most; 2]);
    assert_eq!(e5m2([0xFC, one, one], Min), 0x80 | most);
    for nan in [0x7D, 0x7E, 0x7F, 0xFF] {
        for reduction in Reduction::ALL {
            assert_eq!(e5m2([one, nan, one], reduction), 0x7F, "{reduction} of {nan:#x}");
            assert_eq!(reduced(reduction, &[one, nan | 3].map(F8E4M3::from_bits)).to_bits(), 0x7F);
        }
    }
    assert_eq!(e5m2([infinity, 0xFC, one], Sum), 0x7F);
}

/// The values of a format without a sign, by code; finite up to `largest`.
fn values(fraction_bits: i32, bias: i32, largest: u8) -> Vec<f64> {
    let value = |code: u8| {
        let (exponent, fraction) = (i32::from(code >> fraction_bits), f64::from(code & ((1 << fraction_bits) - 1)));
        match exponent {
            0 => fraction * f64::from(1 - bias - fraction_bits).exp2(),
            _ => (f64::from(1 << fraction_bits) + fraction) * f64::from(exponent - bias - fraction_bits).exp2(),
        }
    };
    (0..=largest).map(value).collect()
}

/// The conversions of the crate `float8`, on which the engine relies: every code, and around every value and the
/// middle between two.
#[test]
fn conversions_of_8_bit_floats_are_exact_and_round_to_nearest() {
    fn check(values: &[f64], widen: impl Fn(u8) -> f32, round: impl Fn(f32) -> u8) {
        for (code, value) in (0u8..).zip(values) {
            assert_eq!([widen(code), widen(code | 0x80)].map(f64::from), [*value, -value]);
            assert!(widen(code | 0x80).is_sign_negative());
        }
        let last = values.len() as u8 - 1;
        for (code, pair) in (0u8..).zip(values.windows(2)) {
            let middle = ((pair[0] + pair[1]) / 2.0) as f32;
            let tie = code + code % 2;
            assert_eq!([middle.next_down(), middle, middle.next_up()].map(&round), [code, tie, code + 1]);
            assert_eq!(
                [-middle.next_down(), -middle, -middle.next_up()].map(&round),
                [code, tie, code + 1].map(|c| c | 0x80)
            );
            assert_eq!(
                [pair[1] as f32, (pair[1] as f32).next_up(), (pair[1] as f32).next_down()].map(&round),
                [code + 1; 3]
            );
        }
        for beyond in [values[values.len() - 1] as f32 * 1.04, f32::MAX, f32::INFINITY] {
            assert_eq!([beyond, -beyond].map(&round), [last, last | 0x80]);
        }
        assert_eq!([0.0, f32::from_bits(1), -0.0].map(&round), [0, 0, 0x80]);
        assert_eq!(round(f32::NAN), 0x7F);
    }
    check(&values(3, 7, 0x7E), |code| F8E4M3::from_bits(code).to_f32(), |value| round_f8e4m3(value).to_bits());
    check(&values(2, 15, 0x7B), |code| F8E5M2::from_bits(code).to_f32(), |value| round_f8e5m2(value).to_bits());
    assert_eq!([0x7C, 0xFC].map(|code| F8E5M2::from_bits(code).to_f32()), [f32::INFINITY, f32::NEG_INFINITY]);
    assert!([0x7D, 0x7F, 0xFE, 0xFF].into_iter().all(|code| F8E5M2::from_bits(code).to_f32().is_nan()));
    assert!([0x7F, 0xFF].into_iter().all(|code| F8E4M3::from_bits(code).to_f32().is_nan()));
}
