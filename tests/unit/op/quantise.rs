//! Tests of `src/op/quantise/mod.rs`, whose module they are.

use super::*;

#[test]
fn names_are_read_and_written_alike() {
    for name in [
        "per-token-e4m3",
        "per-token-e5m2",
        "per-token-int8",
        "group-128-e4m3",
        "group-48-int8-columns",
        "mxfp8",
        "mxfp8-swizzled",
        "mxfp4",
        "mxfp4-packed",
        "mx-128-e4m3-packed",
        "mx-32-e5m2",
        "nvfp4",
        "nvfp4-swizzled",
    ] {
        assert_eq!(name.parse::<Quantisation>().unwrap().to_string(), name);
    }
    for (how, name) in [
        (Quantisation::mxfp8(), "mxfp8"),
        (Quantisation::mxfp4(), "mxfp4"),
        (Quantisation::packed_groups(), "mx-128-e4m3-packed"),
    ] {
        assert_eq!((how.to_string().as_str(), name.parse()), (name, Ok(how)));
    }
    for name in
        ["", "per-token", "per-token-e4m3-columns", "group-e4m3", "group-128-e4m3-", "mx-32-e4m3", "nvfp4-rows", "fp8"]
    {
        let error = name.parse::<Quantisation>().unwrap_err().to_string();
        assert!(error.contains("group-128-e4m3") && error.contains("the quantisation"), "{error}");
    }
    // Names that are no format of rows, at any width.
    for (name, limit) in [
        ("mx-0-e4m3", "multiple of 16"),
        ("group-24-e4m3", "multiple of 16"),
        ("mx-18446744073709551600-e4m3", "up to 1048576"),
        ("mx-48-int8", "e4m3, e5m2, e2m1"),
        ("per-token-e2m1", "e4m3, e5m2, int8"),
        ("mxfp8-columns", "rows, packed, swizzled"),
    ] {
        let error = name.parse::<Quantisation>().unwrap_err().to_string();
        assert!(error.contains(limit), "{error}");
    }
    for to in Narrow::ALL {
        assert_eq!(to.name().parse(), Ok(to));
    }
    assert!("int4".parse::<Narrow>().unwrap_err().to_string().contains("e4m3, e5m2, e2m1, int8"));
}

#[test]
fn lengths_of_values_and_scales() {
    let lens = |name: &str, rows, width| {
        let how: Quantisation = name.parse().unwrap();
        (how.values_len(rows, width), how.scales_len(rows, width))
    };
    assert_eq!(lens("per-token-int8", 3, 40), (120, 3));
    // Two whole groups and a short one.
    assert_eq!(lens("group-16-e4m3-columns", 3, 40), (120, 9));
    assert_eq!(lens("mxfp4", 5, 64), (160, 10));
    // Words: a column of 8, as 5 rows are padded, and one of 5.
    assert_eq!(lens("mx-16-e4m3-packed", 5, 80), (400, 4 * (8 + 5)));
    assert_eq!(lens("mx-16-e4m3-packed", 5, 64), (320, 4 * 5));
    // Blocks of 128 rows by 4 groups: two by two.
    assert_eq!(lens("nvfp4-swizzled", 129, 80), (129 * 40, 2 * 2 * 512));
    for name in ["per-token-e4m3", "group-32-e4m3", "mxfp8-packed", "mxfp8-swizzled", "nvfp4"] {
        assert_eq!(lens(name, 0, 64), (0, 0), "{name}");
        // More rows than any memory has.
        assert!(lens(name, usize::MAX, 64).1 >= usize::MAX - 3, "{name}");
    }
}

#[test]
fn types_of_values_and_scales() {
    let types = |name: &str| {
        let how: Quantisation = name.parse().unwrap();
        (how.values_dtype(), how.scales_dtype())
    };
    assert_eq!(types("per-token-e5m2"), (Dtype::F8E5M2, Dtype::F32));
    assert_eq!(types("group-16-int8"), (Dtype::I8, Dtype::F32));
    assert_eq!(types("mxfp8"), (Dtype::F8E4M3, Dtype::U8));
    assert_eq!(types("mxfp4"), (Dtype::U8, Dtype::U8));
    assert_eq!(types("nvfp4"), (Dtype::U8, Dtype::U8));
}
