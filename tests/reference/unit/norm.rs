//! Tests of `crates/reference/src/norm.rs`, whose module they are.

use symmetra::{LayerNorm, RmsNorm};

use super::*;

#[test]
fn squares_are_added_in_columns_of_packets() {
    let sum_of_squares = |row: &[f32]| sum::<f32>(&row.iter().map(|x| x * x).collect::<Vec<_>>());
    // Three powers of two: in order 1 + 2^-24 twice stays 1, as a tree both are added to each other first.
    let half = 0.5f32.powi(12);
    assert_eq!(sum_of_squares(&[1.0, 0.0, half, half]), 1.0 + 0.5f32.powi(23));
    // The next packet is a column of its own; the packet after 1024 packets joins the first.
    let mut row = vec![0.0f32; 4 * 1025];
    (row[0], row[4], row[4 * 1024]) = (1.0, half, half);
    assert_eq!(sum_of_squares(&row), 1.0);
    (row[4], row[8], row[4 * 1024]) = (0.0, half, 0.0);
    row[12] = half;
    assert_eq!(sum_of_squares(&row), 1.0 + 0.5f32.powi(23));
}

#[test]
fn a_row_of_equal_values_has_the_size_of_its_weights() {
    let normed = normed(&[3.0f32, -3.0, 3.0, -3.0], &[1.0, 2.0], RmsNorm::gemma(0.0));
    assert_eq!(normed, [2.0, -3.0, 2.0, -3.0]);
    // The mean square is 1, and 1 + 3 has the root 2.
    assert_eq!(super::normed(&[1.0f32, -1.0], &[1.0f32, 3.0], RmsNorm::new(3.0)), [0.5, -1.5]);
    assert_eq!(padded(&normed, 2, 3), [2.0, -3.0, 0.0, 2.0, -3.0, 0.0]);
    assert_eq!(with_residual(&[1.0f32], Some(&[2.0])), [3.0]);
}

#[test]
fn a_layer_norm_subtracts_the_mean_before_it_squares() {
    // The deviations are 1 and 3, the variance is 5, and 5 + 4 has the root 3.
    let (x, weight) = ([1.0f32, 7.0, 3.0, 5.0], [3.0f32, 1.0, 6.0, 2.0]);
    assert_eq!(normed(&x, &weight, LayerNorm::new(4.0)), [-3.0, 1.0, -2.0, 2.0 / 3.0]);
    let bias = [0.5f32, -1.0, 2.0, 0.0];
    assert_eq!(biased(&x, &weight, Some(&bias), LayerNorm::new(4.0)), [-2.5, 0.0, 0.0, 2.0 / 3.0]);
    let shifted = x.map(|x| x + 1048576.0);
    assert_eq!(normed(&shifted, &weight, LayerNorm::new(4.0)), normed(&x, &weight, LayerNorm::new(4.0)));
    assert_eq!(normed(&[2.0f32, 4.0], &[0.0f32, 1.0], LayerNorm::new(0.0).weight_offset(1.0)), [-1.0, 2.0]);
}
