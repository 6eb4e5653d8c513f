//! Tests of `crates/bench/src/floor.rs`, whose module they are.

use super::*;

#[test]
fn a_line_is_of_the_slowest_rank() {
    let floor = |scale: f64| Times {
        bytes: 1_000_000,
        times_us: (0..QUANTITIES.len()).map(|number| vec![scale * (number + 1) as f64; 3]).collect(),
    };
    let lines = lines(&[&floor(1.0), &floor(10.0), &floor(2.0)]);
    assert_eq!((lines[0].time_us, lines[0].gbps), (Some(10.0), None));
    assert_eq!((lines[2].time_us, lines[2].gbps), (Some(30.0), Some(1e6 / 30.0 / 1e3)));
    assert_eq!((lines[3].time_us, lines[3].gbps), (Some(40.0), Some(2e6 / 40.0 / 1e3)));
}

/// A line of words that were compared or not measured.
fn kernel(wrong: Option<u64>, skipped: Option<&str>) -> Line {
    let time_us = wrong.map(|_| 1.5);
    Line { name: "kernel", time_us, gbps: None, wrong, skipped: skipped.map(str::to_owned) }
}

#[test]
fn a_wrong_word_fails_and_a_line_that_was_not_measured_says_why() {
    let lines = [kernel(Some(0), None), kernel(None, Some("no atomics"))];
    verdict(&lines, 7).unwrap();
    let text = text(&lines);
    assert!(text.contains("wrong") && text.ends_with("\nkernel: not measured, no atomics"), "{text}");
    let failure = verdict(&[kernel(Some(0), None), kernel(Some(3), None)], 7).unwrap_err();
    assert_eq!(failure.message().unwrap(), "kernel: 3 words are wrong (seed 7)");
}
