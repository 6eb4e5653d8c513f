//! Tests of `crates/reference/src/gemm.rs`, whose module they are: examples that are worked out by hand.

use symmetra::matmul::Numeric;

use super::*;

/// [[1, 2], [3, -4]] times [[5, 0, 1], [1, 2, 0]], with the bias 10, 0, -2 and scales if the product has them.
fn case() -> GemmCase<f32, f32, f32> {
    GemmCase {
        product: Product::new(2, 3, Numeric::F32),
        rows: 2,
        left: vec![1.0, 2.0, 3.0, -4.0],
        right: vec![5.0, 0.0, 1.0, 1.0, 2.0, 0.0],
        bias: vec![10.0, 0.0, -2.0],
        scales: [vec![2.0, 1.0], vec![0.5, 1.0, 4.0]],
    }
}

fn values(case: &GemmCase<f32, f32, f32>) -> Vec<f64> {
    case.expected().into_iter().map(|[value, _]| value).collect()
}

#[test]
fn products_have_bias_relu_and_scales() {
    let mut case = case();
    assert_eq!(case.expected(), [[7.0, 7.0], [4.0, 4.0], [1.0, 1.0], [11.0, 19.0], [-8.0, 8.0], [3.0, 3.0]]);
    case.product.bias = true;
    assert_eq!(values(&case), [17.0, 4.0, -1.0, 21.0, -8.0, 1.0]);
    case.product.relu = true;
    assert_eq!(values(&case), [17.0, 4.0, 0.0, 21.0, 0.0, 1.0]);
    (case.product.bias, case.product.relu, case.product.scaling) = (false, false, Scaling::Rows);
    assert_eq!(values(&case), [7.0, 8.0, 8.0, 5.5, -8.0, 12.0]);
    case.product.scaling = Scaling::Tensor;
    assert_eq!(values(&case), [7.0, 4.0, 1.0, 11.0, -8.0, 3.0]);
}

#[test]
fn sums_have_one_bias() {
    let mut case = case();
    case.product.bias = true;
    assert_eq!(summed([case.clone(), case.clone()], Reduction::Sum), [24.0, 8.0, 0.0, 32.0, -16.0, 4.0]);
    assert_eq!(summed([case.clone(), case.clone()], Reduction::Average), values(&case));
}

#[test]
fn parts_and_layouts() {
    let whole = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    assert_eq!(shard(&whole, &[3, 4], 0, &[1, 2], 1), whole[4..]);
    assert_eq!(shard(&whole, &[2, 3, 2], 1, &[1, 2], 0), [0, 1, 6, 7]);
    assert_eq!(shard(&whole, &[2, 3, 2], 1, &[1, 2], 1), [2, 3, 4, 5, 8, 9, 10, 11]);
    // One scale a row of the same tensor.
    assert_eq!(shard(&[1.0, 2.0, 3.0], &[3, 4], 0, &[1, 2], 1), [2.0, 3.0]);
    assert_eq!(stored(&whole[..6], Order::Columns, [1, 2, 3]), [0, 3, 1, 4, 2, 5]);
    assert_eq!(stored(&whole, Order::Columns, [2, 2, 3])[6..], [6, 9, 7, 10, 8, 11]);
}
