//! `trace`: the times of the calls of a program.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{PROGRAM, symmetra, symmetra_with};

/// Runs `symmetra trace` with a program, and returns the events of the trace.
fn traced(program: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.json");
    let options = ["trace", "-o", file.to_str().unwrap(), "--"];
    let run = symmetra_with(&[&options[..], program].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().clone();
    let note = format!("{} calls are in {}", calls(&events).count(), file.display());
    assert!(run.stderr.contains(&note), "{note}: {}", run.stderr);
    events
}

/// The events of calls, without those of waits.
fn calls(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["ph"] == "X" && !event["name"].as_str().unwrap().starts_with("waits for rank "))
}

#[test]
fn every_call_of_every_rank_is_in_the_trace() {
    let sizes = ["-b", "1KiB", "-e", "4KiB", "--iterations", "20"];
    let program = [&[PROGRAM, "all-reduce", "--device", "host", "-n", "2", "--json"], &sizes[..]].concat();
    let events = traced(&program);
    let mut of_ranks = BTreeMap::<u64, Vec<&Value>>::new();
    for event in calls(&events) {
        assert!(event["dur"].as_f64().unwrap() > 0.0 && event["ts"].as_f64().unwrap() >= 0.0, "{event}");
        of_ranks.entry(event["pid"].as_u64().unwrap()).or_default().push(event);
    }
    assert_eq!(of_ranks.keys().collect::<Vec<_>>(), [&0, &1]);
    for size in [1024, 2048, 4096] {
        let name = format!("all-reduce (sum) of {size} bytes of f32");
        let of_size = |rank: u64| {
            let calls = &of_ranks[&rank];
            calls.iter().filter(|event| event["name"].as_str().unwrap().starts_with(&name)).count()
        };
        // Warm-up and checks add calls, the same on both ranks.
        assert!(of_size(0) >= 20 && of_size(0) == of_size(1), "{} {}", of_size(0), of_size(1));
    }
    // Each rank has a name with its process, and its group one.
    let named = |kind: &str| -> Vec<_> { events.iter().filter(|event| event["name"] == kind).collect() };
    let names: Vec<_> =
        named("process_name").iter().map(|event| event["args"]["name"].as_str().unwrap().to_owned()).collect();
    assert!(names[0].starts_with("rank 0 (process ") && names[1].starts_with("rank 1 (process "), "{names:?}");
    assert_ne!(names[0].split("process ").nth(1), names[1].split("process ").nth(1));
    assert_eq!(named("thread_name").len(), 2);
    // The ranks' clocks are one: a call of rank 1 overlaps the same call of rank 0, or nearly so.
    let first = |rank: u64| of_ranks[&rank][0]["ts"].as_f64().unwrap();
    assert!((first(0) - first(1)).abs() < 10e6, "{} {}", first(0), first(1));
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.json").display().to_string();
    let run = symmetra_with(&["trace", "-o", &file, "--", "sh", "-c", "exit 7"]);
    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(run.stderr.contains("no rank has timed a call"), "{}", run.stderr);
    assert!(fs::read_to_string(&file).unwrap().contains("\"traceEvents\":["));
    let run = symmetra_with(&["trace", "-o", &file, "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(run.code, 137, "{}", run.stderr);
    symmetra("trace -o /nowhere/calls.json -- true").refused(2, &["--output", "/nowhere/calls.json"]);
    symmetra(&format!("trace -o {file} -- /nowhere/program")).refused(1, &["start /nowhere/program"]);
    assert_eq!(symmetra("trace").code, 2);
}
