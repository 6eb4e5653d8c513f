//! Tests of `crates/cli/src/bytes.rs`, whose module they are.

use super::*;

#[test]
fn sizes_read_and_write() {
    for (text, bytes) in [("0", 0), ("1000", 1000), ("64KiB", 64 << 10), ("16 MiB", 16 << 20), ("1GiB", 1 << 30)] {
        assert_eq!(parse(text), Ok(bytes), "{text}");
    }
    for text in ["", "KiB", "64KB", "64k", "-1", "1.5MiB", "99999999999999999999", "99999999TiB"] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!([0, 1000, 1024, 3 << 20].map(format), ["0 B", "1000 B", "1 KiB", "3 MiB"]);
}

#[test]
fn sizes_double() {
    assert_eq!(sizes_elems(1024, 8192, Dtype::F32, 1).unwrap(), [256, 512, 1024, 2048]);
    assert_eq!(sizes_elems(1000, 5000, Dtype::I64, 1).unwrap(), [125, 250, 500]);
    assert_eq!(sizes_elems(2, 2, Dtype::F16, 1).unwrap(), [1]);
    assert_eq!(sizes_elems(4, 32, Dtype::F32, 3).unwrap(), [3, 6]);
    assert!(sizes_elems(2, 8, Dtype::F32, 1).is_err());
    assert!(sizes_elems(8, 4, Dtype::F32, 1).is_err());
    assert!(sizes_elems(8, u64::MAX, Dtype::F32, 1).is_err());
}
