//! Tests of `crates/bench/src/floor.rs`, whose module they are.

use super::*;

/// A line of words that were compared or not measured.
fn kernel(wrong: Option<u64>, skipped: Option<&str>) -> LimitLine {
    let time_us = wrong.map(|_| 1.5);
    LimitLine { name: "kernel", time_us, gbps: None, wrong, skipped: skipped.map(str::to_owned) }
}

#[test]
fn a_wrong_word_fails_and_a_line_that_was_not_measured_says_why() {
    let lines = [kernel(Some(0), None), kernel(None, Some("no atomics"))];
    verdict(&lines, 7).unwrap();
    assert!(limits::table(&lines).to_string().contains("wrong"));
    assert_eq!(skipped(&lines), "\nkernel: not measured, no atomics");
    let failure = verdict(&[kernel(Some(0), None), kernel(Some(3), None)], 7).unwrap_err();
    assert_eq!(failure.message().unwrap(), "kernel: 3 words are wrong (seed 7)");
}
