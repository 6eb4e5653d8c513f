//! Tests of `crates/harness/src/sizes.rs`, whose module they are.

use super::*;

#[test]
fn sizes_double() {
    let sizes = |range: [u64; 2], dtype, parts| sizes_elems(range, 2, dtype, parts);
    assert_eq!(sizes([1024, 8192], Dtype::F32, 1).unwrap(), [256, 512, 1024, 2048]);
    assert_eq!(sizes([1000, 5000], Dtype::I64, 1).unwrap(), [125, 250, 500]);
    assert_eq!(sizes([2, 2], Dtype::F16, 1).unwrap(), [1]);
    assert_eq!(sizes([4, 32], Dtype::F32, 3).unwrap(), [3, 6]);
    assert!(sizes([2, 8], Dtype::F32, 1).is_err());
    assert!(sizes([8, 4], Dtype::F32, 1).is_err());
    assert!(sizes([8, u64::MAX], Dtype::F32, 1).is_err());
}

#[test]
fn sizes_grow_by_a_factor() {
    assert_eq!(sizes_elems([1024, 65536], 4, Dtype::U8, 1).unwrap(), [1024, 4096, 16384, 65536]);
    assert_eq!(sizes_elems([100, 5000], 10, Dtype::U8, 1).unwrap(), [100, 1000]);
    assert_eq!(sizes_elems([1 << 40, 1 << 40], 1 << 20, Dtype::U8, 1).unwrap(), [1 << 40]);
    // The next size would not be a number of 64 bits.
    assert_eq!(sizes_elems([1 << 40, 1 << 40], 1 << 30, Dtype::U8, 1).unwrap(), [1 << 40]);
}
