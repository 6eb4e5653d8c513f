//! Tests of `crates/bench/src/overlap.rs`, whose module they are.

use super::*;

#[test]
fn what_is_hidden_is_a_share_of_the_shorter() {
    let kind = |alone: f64, together: f64, wrong| KindTimes {
        alone_us: vec![alone],
        together_us: vec![together],
        overlapped_us: vec![110.0],
        wrong,
    };
    let rank = |more: f64| OverlapTimes {
        matmul_us: vec![100.0 + more],
        kinds: vec![kind(50.0, 150.0, 1), kind(40.0 + more, 120.0, 2)],
    };
    let ranks = [rank(-10.0), rank(0.0)];
    let (kernels, copies) = (KindRow::new(0, &ranks), KindRow::new(1, &ranks));
    assert_eq!((kernels.kind, kernels.matmul_us, kernels.collective_us, kernels.hidden), ("kernels", 100.0, 50.0, 0.0));
    assert_eq!((copies.kind, copies.collective_us, copies.hidden, copies.wrong), ("copy-engine", 40.0, 0.5, 4));
}
