//! Tests of `src/observe/tracer.rs`, whose module they are.

use super::*;

fn ended(finished: u32, end_ns: u64) -> TimedCall {
    TimedCall { number: 0, begin_ns: end_ns - 10, end_ns, finished, call: None }
}

#[test]
fn clocks_are_set_to_each_other_by_shared_ends() {
    let first = vec![ended(1, 1_000), ended(2, 2_000), ended(3, 3_000)];
    // A clock that is 500 ns later, and a call whose end was seen late.
    let later = vec![ended(1, 1_500), ended(2, 2_500), ended(3, 9_000), ended(4, 9_500)];
    let earlier = vec![ended(2, 1_900), ended(7, 5_000)];
    assert_eq!(offsets(&[first.clone(), later, earlier, Vec::new()]), [0, 500, -100, 0]);
    // A rank without calls is no reference.
    assert_eq!(offsets(&[Vec::new(), first]), [0, 0]);
    assert!(offsets(&[]).is_empty());
}

#[test]
fn a_trace_without_calls_is_empty() {
    let mut text = Vec::new();
    Tracer::new().write(&mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(trace["traceEvents"], serde_json::json!([]));
}
