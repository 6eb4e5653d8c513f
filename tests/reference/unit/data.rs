//! Tests of `crates/reference/src/data.rs`, whose module they are.

use super::*;

#[test]
fn finds_every_wrong_element() {
    let data = Data { seed: 3, elems: 100 };
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| data.of(rank)).collect();
    assert_ne!(inputs[0], inputs[1]);
    let mut sum: Vec<f32> = (0..100).map(|item| inputs[0][item] + inputs[1][item] + inputs[2][item]).collect();
    assert_eq!(data.count_wrong(Reduction::Sum, 3, Algorithm::Auto, 0, &sum), 0);
    let right = checksum(&sum);
    sum[7] = f32::from_bits(sum[7].to_bits() ^ 1);
    sum[99] = f32::NAN;
    assert_eq!(data.count_wrong(Reduction::Sum, 3, Algorithm::Auto, 0, &sum), 2);
    assert_eq!(data.count_wrong(Reduction::Sum, 3, Algorithm::Auto, 50, &sum[50..]), 1);
    assert_eq!(data.count_unlike(1, 10, &inputs[1][10..]), 0);
    assert_eq!(data.count_unlike(1, 10, &inputs[1][..90]), 90);
    assert_ne!(checksum(&sum), right);
}

#[test]
fn knows_the_orders_of_sums() {
    let data = Data { seed: 3, elems: 64 };
    let inputs: Vec<Vec<f64>> = (0..6).map(|rank| data.of(rank)).collect();
    let at = |ranks: [usize; 6], item: usize| ranks.map(|rank| inputs[rank][item]).into_iter().reduce(|a, b| a + b);
    // 32 packets, 6 of them, or 12 elements, a chunk.
    let ring: Vec<f64> =
        (0..64).filter_map(|item| at([0, 1, 2, 3, 4, 5].map(|rank| (rank + item / 12) % 6), item)).collect();
    let doubled = |item: usize| {
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|rank| inputs[rank][item]);
        ((a + e) + (b + f)) + (c + d)
    };
    let doubled: Vec<f64> = (0..64).map(doubled).collect();
    assert_eq!(data.count_wrong(Reduction::Sum, 6, Algorithm::Ring, 0, &ring), 0);
    assert_eq!(data.count_wrong(Reduction::Sum, 6, Algorithm::RecursiveDoubling, 0, &doubled), 0);
    assert!(
        data.count_wrong(Reduction::Sum, 6, Algorithm::Auto, 0, &ring) > 0
            && data.count_wrong(Reduction::Sum, 6, Algorithm::Auto, 0, &doubled) > 0
    );
}
