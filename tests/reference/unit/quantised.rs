//! Tests of `crates/reference/src/quantised.rs`, whose module they are.

use super::*;

#[test]
fn codes_are_the_nearest_and_even_where_two_are() {
    for (to, value, code) in [
        (Narrow::E4M3, 1.0, 0x38),
        (Narrow::E4M3, -448.0, 0xFE),
        (Narrow::E4M3, 1e9, 0x7E),
        (Narrow::E4M3, 17.0, 0x58),
        (Narrow::E4M3, 19.0, 0x5A),
        (Narrow::E4M3, 0.001, 0x01),
        (Narrow::E4M3, -0.0, 0x80),
        (Narrow::E4M3, f32::NAN, 0x7F),
        (Narrow::E5M2, 1.0, 0x3C),
        (Narrow::E5M2, f32::NEG_INFINITY, 0xFB),
        (Narrow::E2M1, 2.5, 4),
        (Narrow::E2M1, -5.0, 0xE),
        (Narrow::E2M1, 100.0, 7),
        (Narrow::I8, -2.5, 0xFE),
        (Narrow::I8, 3.5, 4),
        (Narrow::I8, -1e9, 0x80),
        (Narrow::I8, f32::NAN, 0),
    ] {
        assert_eq!(nearest(to, value), code, "{value} in {to}");
    }
}

fn bytes(y: &[f32], width: usize, name: &str, known: f32) -> QuantisedBytes {
    quantised(y, width, name.parse().unwrap(), known, 0xA5, |_| false)
}

#[test]
fn scales_follow_the_largest_value() {
    let single = |scale: f32| scale.to_le_bytes().to_vec();
    assert_eq!(
        bytes(&[-254.0, 127.0], 2, "per-token-int8", 1.0),
        QuantisedBytes { values: vec![0x81, 64], scales: single(2.0) }
    );
    assert_eq!(
        bytes(&[0.0, -0.0], 2, "per-token-e4m3", 1.0),
        QuantisedBytes { values: vec![0, 0x80], scales: single(1.0) }
    );
    assert_eq!(bytes(&[1.0, -2.0], 2, "static-int8", 0.5), QuantisedBytes { values: vec![2, 0xFC], scales: vec![] });
    let mx = |largest: f32| {
        let mut row = vec![0.0; 32];
        row[1] = largest;
        bytes(&row, 32, "mxfp8", 1.0)
    };
    assert_eq!((mx(448.0).scales, mx(448.0).values[1]), (vec![127], 0x7E));
    assert_eq!((mx(449.0).scales, mx(449.0).values[1]), (vec![128], 0x76));
    assert_eq!((mx(0.0).scales, mx(f32::INFINITY).scales), (vec![0], vec![255]));
    // The largest of 3 with the scale 3/6 times g: 6, and pairs with the even element low.
    let mut row = vec![0.0; 16];
    (row[0], row[1], row[2]) = (3.0, -1.5, 0.5);
    let found = bytes(&row, 16, "nvfp4", 2.0);
    assert_eq!((found.scales, &found.values[..2]), (vec![0x38], &[0xD7, 0x02][..]));
}

#[test]
fn scales_lie_where_their_layout_says() {
    let y: Vec<f32> = (0..2 * 80).map(|index| f32::from(2u8).powi(index / 16 - 3) * 448.0).collect();
    // Exponents -3, -2 .. of ten groups, five a row.
    let of = |row: u8, group: u8| 124 + 5 * row + group;
    let rows: Vec<u8> = (0..10).map(|group| of(group / 5, group % 5)).collect();
    assert_eq!(bytes(&y, 80, "mx-16-e4m3", 1.0).scales, rows);
    let packed = bytes(&y, 80, "mx-16-e4m3-packed", 1.0).scales;
    let mut right: Vec<u8> = (0..2).flat_map(|row| (0..4).map(move |group| of(row, group))).collect();
    right.extend([0; 8]);
    right.extend([of(0, 4), 0, 0, 0, of(1, 4), 0, 0, 0]);
    assert_eq!(packed, right);
    let swizzled = bytes(&y, 80, "mx-16-e4m3-swizzled", 1.0).scales;
    assert_eq!((swizzled.len(), swizzled[0], swizzled[3], swizzled[16]), (1024, of(0, 0), of(0, 3), of(1, 0)));
    assert_eq!((swizzled[512], swizzled[528], swizzled[4], swizzled[513]), (of(0, 4), of(1, 4), 0xA5, 0xA5));
    let columns = bytes(&y, 80, "group-16-e4m3-columns", 1.0).scales;
    assert_eq!(columns[4..8], 4.0f32.to_le_bytes());
}
