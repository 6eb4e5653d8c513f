//! `layer` on the CPU: every strategy is right on every number of ranks, and wrong usage is reported.

use super::{bench, wide};

const QUICK: &str = "layer --device host --launches 1";
const SMALL: &str = "--hidden 128 --heads 8 --kv-heads 4 --intermediate 192";
const WAYS: [&str; 7] =
    ["all-reduce", "all-reduce-apart", "fused-all-reduce", "scatter", "scatter-gather", "fused", "pipeline"];

/// The report of a run whose rows are all right.
fn report(args: &str) -> serde_json::Value {
    let run = bench(&format!("{QUICK} {args} --json")).ok();
    let report = run.objects().remove(0);
    for row in rows(&report) {
        let wrong = row["wrong"].as_object().unwrap();
        assert!(wrong.values().all(|wrong| *wrong == 0), "{args}: {row}");
        let names = |key: &str| row[key].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for times in ["time_us", "host_us", "tokens_per_s"] {
            assert_eq!(names(times), names("wrong"), "{row}");
        }
    }
    report
}

fn rows(report: &serde_json::Value) -> &Vec<serde_json::Value> {
    report["rows"].as_array().unwrap()
}

fn positive(value: &serde_json::Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn every_way_on_every_number_of_ranks() {
    for (ranks, ranks_as, layers) in [(1, "processes", 1), (2, "processes", 3), (4, "threads", 2)] {
        let args =
            format!("{SMALL} --ranks {ranks} --ranks-as {ranks_as} --layers {layers} --tokens 4,20 --graph --eager");
        let report = report(&args);
        assert_eq!((&report["ranks"], &report["layers"]), (&ranks.into(), &layers.into()));
        assert_eq!((&report["hidden"], &report["kv_heads"]), (&128.into(), &4.into()));
        assert_eq!(report["sides"], serde_json::json!(WAYS));
        assert_eq!(rows(&report).len(), 2 * 2, "{report}");
        for (number, row) in rows(&report).iter().enumerate() {
            assert_eq!(
                (&row["tokens"], &row["mode"]),
                (&[4, 20][number / 2].into(), &["graph", "eager"][number % 2].into())
            );
            // One rank has no parts.
            let here = if ranks == 1 { &WAYS[..6] } else { &WAYS[..] };
            for way in here {
                let (us, tokens) = (&row["time_us"][way], &row["tokens_per_s"][way]);
                assert!(positive(us) && positive(tokens), "{row}");
                let product = us.as_f64().unwrap() * tokens.as_f64().unwrap();
                assert!((product / row["tokens"].as_f64().unwrap() / 1e6 - 1.0).abs() < 1e-6, "{row}");
            }
            let missing = row["missing"].as_object().unwrap();
            assert_eq!(missing.len(), WAYS.len() - here.len(), "{row}");
            assert!(missing.values().all(|reason| reason == "there is one rank"), "{row}");
            let best = row["best"].as_str().unwrap();
            assert!(here.iter().all(|way| row["time_us"][best].as_f64() <= row["time_us"][way].as_f64()), "{row}");
            assert!(row["ratio"].is_null(), "{row}");
            for product in ["qkv", "o", "gate_up", "down"] {
                // On a CPU the library's choice is one after the other.
                assert_eq!(row["plans"]["fused"][product], "sequence", "{row}");
                let sums = &row["plans"]["fused-all-reduce"][product];
                assert!(if ["o", "down"].contains(&product) { sums == "sequence" } else { sums.is_null() }, "{row}");
                assert!(ranks == 1 || row["plans"]["pipeline"][product] == "pipeline", "{row}");
            }
        }
    }
}

/// Rows that the ranks cannot share equally: strategies with all rows run, and the others report why they do not.
#[test]
fn unequal_shares() {
    let report = report(&format!("{SMALL} --ranks 2 --ranks-as threads --layers 2 --tokens 1,5"));
    for row in rows(&report) {
        let missing = row["missing"].as_object().unwrap();
        assert_eq!(missing.len(), 4, "{row}");
        assert!(missing.values().all(|reason| reason.as_str().unwrap().contains("no equal shares for 2 ranks")));
        let ran = row["time_us"].as_object().unwrap();
        assert_eq!(ran.keys().collect::<Vec<_>>(), ["all-reduce", "all-reduce-apart", "fused-all-reduce"], "{row}");
        assert!(ran.contains_key(row["best"].as_str().unwrap()), "{row}");
    }
}

#[test]
fn named_ways_and_a_table() {
    let output = tempfile::tempdir().unwrap();
    let file = output.path().join("layer.json");
    let args = format!(
        "{QUICK} {SMALL} --ranks 2 --ranks-as threads --tokens 8 --way fused,scatter --layers 2 --seed 7 --output {}",
        file.display()
    );
    let run = wide(&args).ok();
    let words = "2 ranks as threads on host, 2 layers, hidden 128, heads 8 and 4, intermediate 192, bf16, seed 7";
    assert!(run.stderr.contains(words), "{}", run.stderr);
    let mut lines = run.stdout.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let columns = "tokens mode best fused us scatter us ratio fused tokens/s scatter tokens/s wrong";
    assert_eq!(head.join(" "), columns);
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!((&row[..2], row[5], row[8]), (&["8", "graph"][..], "-", "0"), "{}", run.stdout);
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let columns = "tokens,mode,best,fused us,scatter us,ratio,fused tokens/s,scatter tokens/s,wrong";
    assert_eq!(written["columns"], serde_json::json!(columns.split(',').collect::<Vec<_>>()));
    assert_eq!((&written["rows"][0][0], &written["rows"][0][5]), (&8.into(), &serde_json::Value::Null));
}

#[test]
fn wrong_usage() {
    let refused = |args: &str, words: &[&str]| bench(&format!("{QUICK} {args}")).refused(2, words);
    refused("--ranks 0", &["--ranks"]);
    refused("--ranks 17", &["--ranks", "1..=16"]);
    refused("--hidden 100 --heads 8", &["--hidden", "8 heads", "100 elements"]);
    refused("--ranks 3", &["--heads", "3 ranks", "64"]);
    refused("--ranks 16", &["--kv-heads", "16 ranks", "8"]);
    refused("--ranks 5 --heads 40 --hidden 1000", &["--kv-heads", "5 ranks"]);
    refused("--ranks 4 --intermediate 30", &["--intermediate", "4 ranks", "30"]);
    refused("--hidden 0", &["--hidden"]);
    refused("--tokens 0", &["--tokens"]);
    refused("--layers 0", &["--layers"]);
    refused("--layers 129", &["--layers", "128"]);
    refused("--way parallel", &["--way", "scatter-gather"]);
    refused("--way fused,fused", &["--way names fused twice"]);
    refused("--ranks 4 --way scatter,fused --tokens 4,6", &["--tokens", "6 rows", "4 ranks", "--way"]);
    refused("--against nccl-symmetric", &["--against nccl-symmetric"]);
    refused("--operations 3", &["--operations"]);
}
