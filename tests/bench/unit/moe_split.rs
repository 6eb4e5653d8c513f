//! Tests of `crates/bench/src/moe/split.rs`, whose module they are.

use super::*;

#[test]
fn a_row_has_the_slowest_rank_of_each_launch_and_says_what_is_hidden() {
    let times = |more: f64, wrong| HalfTimes {
        begin_us: vec![1.0 + more, 2.0, 3.0],
        receive_us: vec![10.0, 20.0 + more, 30.0],
        work_us: vec![100.0, 100.0, 100.0 + more],
        receive_after_us: vec![5.0, 4.0 + more, 3.0],
        wrong,
    };
    let ranks = [times(0.0, 1), times(4.0, 2)];
    let row = CallRow::new((8, RowOrder::Padded), "dispatch", &ranks.each_ref());
    assert_eq!((row.tokens, row.layout, row.call, row.wrong), (8, RowOrder::Padded, "dispatch", 3));
    // Medians of the launches of the slowest rank: 5, 2 and 3; 10, 24 and 30; 100, 100 and 104; 5, 8 and 3.
    assert_eq!([row.begin_us, row.receive_us, row.work_us, row.receive_after_us], [3.0, 24.0, 100.0, 5.0]);
    assert!((row.hidden - 19.0 / 24.0).abs() < 1e-12);
    let nothing = CallRow::new((8, RowOrder::Padded), "combine", &[]);
    assert_eq!((nothing.receive_us, nothing.hidden), (0.0, 0.0));
}
