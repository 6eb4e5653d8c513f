//! Tests of `crates/harness/src/statistics.rs`, whose module they are.

use super::*;

#[test]
fn a_time_is_the_median_of_the_slowest() {
    let ranks: [&[f64]; 2] = [&[1.0, 9.0, 2.0], &[3.0, 1.0, 4.0, 8.0]];
    assert_eq!(slowest(ranks.into_iter()), [3.0, 9.0, 4.0]);
    assert_eq!(median(slowest(ranks.into_iter())), 4.0);
    assert_eq!(median(vec![1.0, 2.0]), 1.5);
    assert_eq!(median(vec![]), 0.0);
    assert_eq!(slowest(std::iter::empty()), [0.0; 0]);
}

#[test]
fn a_ratio_is_to_the_best_peer() {
    assert_eq!(ratio(2.0, &[5.0, 3.0]), Some(1.5));
    assert_eq!(ratio(4.0, &[2.0]), Some(0.5));
    assert_eq!(ratio(4.0, &[]), None);
    assert_eq!(ratio(0.0, &[2.0]), None);
}

#[test]
fn bus_bandwidth_follows_nccl() {
    assert_eq!(busbw_gbps(1_000_000, 1.5, 100.0), 15.0);
    assert_eq!(busbw_gbps(1_000_000, 1.0, 0.0), 0.0);
}
