//! Tests of `crates/bench/src/limits.rs`, whose module they are.

use super::*;

#[test]
fn a_line_is_of_the_slowest_rank() {
    let floor = |scale: f64| LimitTimes {
        bytes: 1_000_000,
        times_us: (0..QUANTITIES.len()).map(|number| vec![scale * (number + 1) as f64; 3]).collect(),
    };
    let lines = lines(&[&floor(1.0), &floor(10.0), &floor(2.0)]);
    assert_eq!((lines[0].time_us, lines[0].gbps), (Some(10.0), None));
    assert_eq!((lines[2].time_us, lines[2].gbps), (Some(30.0), Some(1e6 / 30.0 / 1e3)));
    assert_eq!((lines[3].time_us, lines[3].gbps), (Some(40.0), Some(2e6 / 40.0 / 1e3)));
}
