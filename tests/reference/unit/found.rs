//! Tests of `crates/reference/src/found.rs`, whose module they are.

use super::*;

#[test]
fn every_wrong_byte_is_counted() {
    let y: Vec<f32> = (0..3 * 64u8).map(|index| f32::from(index) - 90.0).collect();
    for name in
        ["static-int8", "per-token-e4m3", "group-48-e5m2-columns", "mxfp8-swizzled", "mx-16-e4m3-packed", "nvfp4"]
    {
        let form: Format = name.parse().unwrap();
        let right = quantised(&y, 64, form, known(form), UNWRITTEN, |_| false);
        assert_eq!(wrong_codes(&right, &y, 64, form), 0, "{name}");
        for at in 0..right.values.len() {
            let mut found = right.clone();
            found.values[at] ^= 1;
            assert_eq!(wrong_codes(&found, &y, 64, form), 1, "{name}: value {at}");
        }
        for at in 0..right.scales.len() {
            let mut found = right.clone();
            found.scales[at] ^= 0x80;
            assert_eq!(wrong_codes(&found, &y, 64, form), 1, "{name}: scale {at}");
        }
        let mut found = right.clone();
        found.values.truncate(10);
        assert_eq!(wrong_codes(&found, &y, 64, form), right.values.len() as u64 - 10, "{name}");
    }
}

#[test]
fn elements_that_are_not_written_are_wrong() {
    assert_eq!(unlike(&unwritten::<f32>(3), &[1.0, 2.0, 3.0, 4.0]), 4);
    assert_eq!(unlike(&[1.0f32, f32::NAN], &[1.0, -f32::NAN]), 0);
    assert_eq!(unlike(&[0.0f32], &[-0.0]), 1);
}
