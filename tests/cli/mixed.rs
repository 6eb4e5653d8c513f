//! Collectives over grids: every operation and mode is right, steps are printed, and what a grid lacks is refused before any rank
//! starts.

use super::symmetra;

/// Runs with these arguments and returns the rows, all of them right.
fn right(args: &str, rows: usize) -> Vec<serde_json::Value> {
    let run = symmetra(&format!("mixed {args} --device host --iterations 3 --json")).ok();
    let found = run.objects();
    assert_eq!(found.len(), rows, "{args}: {}", run.stdout);
    for row in &found {
        assert!(row["wrong"] == 0 && row["time_us"].as_f64().unwrap() > 0.0, "{args}: {row}");
    }
    found
}

#[test]
fn every_operation_on_one_host() {
    let sizes = "--min-bytes 1000 --max-bytes 32000 --step-factor 32";
    let both = "--mode one-shot,two-shot,one-collective,two-collectives,auto --local-tp 2";
    let rows = right(&format!("all-reduce-all-gather {both} {sizes}"), 10);
    assert_eq!((&rows[1]["mode"], &rows[1]["runs"]), (&"two-shot".into(), &"two-shot".into()));
    assert_eq!((&rows[9]["mode"], &rows[9]["runs"]), (&"auto".into(), &"one-shot".into()), "{}", rows[9]);
    assert_eq!(
        (&rows[9]["bytes"], &rows[9]["tensor_ranks"], &rows[9]["data_ranks"]),
        (&32000.into(), &2.into(), &2.into())
    );
    let threads = "--ranks-as threads";
    right(&format!("reduce-scatter-all-reduce {both} {sizes} {threads} --graph --dtype f32"), 10);
    right(&format!("all-reduce --mode one-shot,two-shot,one-collective {sizes} {threads} --plain --dtype u8"), 6);
    right(&format!("all-gather --local-dp 3 --ranks 3 {sizes} {threads} --graph --plain --dtype f8e4m3"), 2);
    right(&format!("reduce-scatter --local-dp 4 --mode one-shot,one-collective {sizes} {threads} --dtype i64"), 4);
}

/// Pieces of which the tensor ranks do not divide the last, in both kinds of memory, with guard bytes around them.
#[test]
fn pieces_of_a_long_message() {
    let sizes = "--min-bytes 8000004 --max-bytes 8000004 --dtype f32 --piece-bytes 1MiB";
    let rows = right(&format!("all-reduce-all-gather --local-tp 2 {sizes}"), 1);
    assert_eq!((&rows[0]["bytes"], &rows[0]["piece_bytes"]), (&8000004.into(), &(1 << 20).into()));
    let modes = "--mode one-shot,two-shot,one-collective,two-collectives";
    let small = "--min-bytes 20004 --max-bytes 20004 --dtype f32 --piece-bytes 2KiB --ranks-as threads";
    right(&format!("all-reduce-all-gather --local-tp 2 {modes} {small} --plain --graph"), 4);
    right(&format!("reduce-scatter-all-reduce --local-tp 2 {modes} {small}"), 4);
}

#[cfg(feature = "gloo")]
#[test]
fn hosts_by_name() {
    let sizes = "--min-bytes 1000 --max-bytes 32000 --step-factor 32 --ranks-as threads --ranks 4 --hosts 2";
    let all = "--mode one-shot,two-shot,one-collective,auto";
    let rows = right(&format!("all-reduce --mode one-shot,two-shot,two-shot-across,one-collective,auto {sizes}"), 10);
    assert_eq!(rows[9]["runs"], "two-shot-across");
    right(&format!("all-reduce-all-gather {all} --across-dp 2 {sizes} --plain"), 8);
    right(&format!("reduce-scatter-all-reduce {all} --across-dp 2 {sizes} --dtype f16"), 8);
}

#[test]
fn steps_are_printed_and_no_rank_starts() {
    let run = symmetra("mixed all-reduce --ranks 8 --hosts 2 --mode two-shot-across --explain --json").ok();
    let steps =
        ["reduce-scatter over the host's tensor group", "all-reduce over the hosts", "all-gather over the host's"];
    let printed = run.objects();
    let printed = printed[0]["steps"].as_array().unwrap();
    assert_eq!(printed.len(), 3, "{printed:?}");
    assert!(printed.iter().zip(steps).all(|(step, start)| step.as_str().unwrap().starts_with(start)), "{printed:?}");
    let run = symmetra("mixed all-gather --local-dp 4 --mode one-shot,one-collective --explain").ok();
    assert!(run.stdout.contains("one-collective"), "{}", run.stdout);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
}

#[test]
fn what_a_grid_lacks_is_refused() {
    symmetra("mixed all-reduce --local-tp 2").refused(2, &["2 tensor x 2 data", "reduce-scatter-all-reduce"]);
    symmetra("mixed all-reduce --local-tp 3").refused(2, &["3 x ?", "4 ranks of a host"]);
    symmetra("mixed all-reduce --mode two-shot-across").refused(2, &["two-shot-across", "one-shot, two-shot"]);
    symmetra("mixed all-reduce --ranks 4 --hosts 3").refused(2, &["--hosts", "4 ranks", "3 hosts"]);
    let race = "mixed all-reduce-all-gather --local-tp 2 --against";
    symmetra(&format!("{race} mpi")).refused(2, &["mpi", "nccl"]);
    symmetra(&format!("{race} nccl-symmetric --device host")).refused(2, &["--against nccl-symmetric", "our buffers"]);
    symmetra("mixed all-reduce --ranks 4 --hosts 2 --against nccl").refused(2, &["--against nccl", "one host"]);
    symmetra("mixed all-reduce --ranks 1 --against nccl").refused(2, &["--against nccl", "two ranks"]);
    let missing = if cfg!(feature = "nccl") { "a GPU for every rank" } else { "cargo build --features nccl" };
    symmetra(&format!("{race} nccl --device host")).refused(2, &["--against nccl", missing]);
    symmetra("mixed all-reduce --piece-bytes 1").refused(2, &["--piece-bytes", "bf16", "2 bytes"]);
    symmetra("mixed all-sum").refused(2, &["all-sum", "all-reduce-all-gather"]);
    symmetra("mixed all-reduce --mode three-shot").refused(2, &["three-shot", "two-shot-across"]);
}
