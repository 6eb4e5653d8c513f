//! Tests of `src/matmul/product.rs`, whose module they are.

use super::*;

#[test]
fn a_new_product_is_one_that_there_is() {
    let codes = Numeric::F8 { left: F8::E4M3, right: F8::E5M2 };
    for (numeric, result) in [
        (Numeric::F32, Dtype::F32),
        (Numeric::Tf32, Dtype::F32),
        (Numeric::F16, Dtype::F16),
        (Numeric::BF16, Dtype::BF16),
        (codes, Dtype::BF16),
    ] {
        let product = Product::new(32, 48, numeric);
        product.check().unwrap();
        assert_eq!(product.result, result);
        assert_eq!(product.elems(5), Some([160, 1536, 240]));
        assert_eq!(product.scales(5), None);
    }
    assert_eq!(codes.dtypes(), [Dtype::F8E4M3, Dtype::F8E5M2]);
    assert_eq!(codes.to_string(), "f8e4m3 x f8e5m2");
    assert_eq!(Product::new(32, 48, codes).to_string(), "a product of f8e4m3 x f8e5m2 with K 32 and N 48");
}

#[test]
fn sizes_that_no_memory_has_are_found() {
    let mut product = Product::new(MOST, MOST, Numeric::F32);
    product.check().unwrap();
    assert!(product.elems(1).is_some());
    product.count = MOST;
    assert_eq!(product.elems(MOST), None);
}
