//! `matmul` on the CPU: every schedule of every collective is right, and wrong usage is reported.

use super::{bench, wide};

const QUICK: &str = "matmul --device host --operations 2 --launches 1";

/// The report of a run whose rows are all right.
fn report(args: &str) -> serde_json::Value {
    let run = bench(&format!("{QUICK} {args} --json")).ok();
    let report = run.objects().remove(0);
    for row in rows(&report) {
        let wrong = row["wrong"].as_object().unwrap();
        assert!(wrong.values().all(|wrong| *wrong == 0), "{args}: {row}");
        assert_eq!(wrong.len(), row["time_us"].as_object().unwrap().len(), "{row}");
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
fn every_collective_in_every_way() {
    for (collective, [inner, columns]) in
        [("all-gather", [96, 32]), ("reduce-scatter", [48, 64]), ("all-reduce", [48, 64])]
    {
        let args = format!("--collective {collective} --ranks 2 --inner 96 --columns 64 --tokens 8,40 --graph --eager");
        let report = report(&args);
        assert_eq!((&report["collective"], &report["dtype"]), (&collective.into(), &"bf16".into()));
        assert_eq!((&report["ranks"], &report["ranks_as"]), (&2.into(), &"processes".into()));
        let sides = ["auto", "sequence", "pipeline", "product", "collective"];
        assert_eq!(report["sides"], serde_json::json!(sides));
        assert_eq!(rows(&report).len(), 2 * 2, "{report}");
        for (number, row) in rows(&report).iter().enumerate() {
            assert_eq!((&row["shape"], &row["tokens"]), (&"shape".into(), &[8, 40][number / 2].into()), "{row}");
            assert_eq!((&row["inner"], &row["columns"]), (&inner.into(), &columns.into()), "{row}");
            assert_eq!(row["mode"], ["graph", "eager"][number % 2], "{row}");
            assert!(sides.iter().all(|side| positive(&row["time_us"][side]) && positive(&row["host_us"][side])));
            // On a CPU the library's choice is one after the other, and there is no model of its time.
            assert_eq!(row["way"], "sequence", "{row}");
            let plans = &row["plans"];
            assert_eq!((&plans["pipeline"]["way"], &plans["pipeline"]["parts"]), (&"pipeline".into(), &2.into()));
            assert!(plans["auto"]["predicted_us"].is_null() && plans["auto"]["bound_us"].is_null(), "{row}");
            assert!(plans["auto"]["reason"].as_str().unwrap().contains("CPU"), "{row}");
            assert_eq!((&row["missing"], &row["operations"]), (&serde_json::json!({}), &2.into()), "{row}");
            assert!(row["ratio"].is_null(), "{row}");
            let us = |side: &str| row["time_us"][side].as_f64().unwrap();
            let bound = us("product").max(us("collective"));
            assert_eq!((&row["bound_us"], &row["share"]), (&bound.into(), &(bound / us("auto")).into()), "{row}");
        }
    }
}

#[test]
fn types_and_scales() {
    for (number, (dtype, scaling)) in
        [("f16", "none"), ("f32", "none"), ("f8", "none"), ("f8", "tensor"), ("f8", "rows")].into_iter().enumerate()
    {
        for collective in ["all-gather", "reduce-scatter", "all-reduce"] {
            let ranks = 2 + number % 2;
            let args = format!(
                "--collective {collective} --ranks {ranks} --ranks-as threads --shape 24,96,96 --shape 5,96,96 \
                 --dtype {dtype} --scaling {scaling}"
            );
            let report = report(&args);
            assert_eq!((&report["dtype"], &report["scaling"]), (&dtype.into(), &scaling.into()), "{report}");
            assert_eq!(rows(&report)[0]["missing"], serde_json::json!({}), "{report}");
        }
    }
}

/// Rows that the ranks cannot share equally: there is no pipeline, and a collective of equal parts does not serve.
#[test]
fn unequal_parts() {
    for (collective, alone) in [("all-gather", false), ("reduce-scatter", false), ("all-reduce", true)] {
        let args =
            format!("--collective {collective} --ranks 3 --ranks-as threads --inner 48 --columns 48 --tokens 2,7");
        let report = report(&args);
        for row in rows(&report) {
            let missing = row["missing"].as_object().unwrap();
            assert!(missing.contains_key("pipeline") && missing.contains_key("collective") != alone, "{row}");
            // The bound is that of both alone.
            assert_eq!(row["bound_us"].is_null(), !alone, "{row}");
            assert!(positive(&row["time_us"]["auto"]) && positive(&row["time_us"]["product"]), "{row}");
        }
        let forced = format!("{QUICK} {args} --way pipeline");
        bench(&forced).refused(1, &["part by part is not supported"]);
    }
    // One row, which one rank has.
    for scaling in ["tensor", "rows"] {
        report(&format!(
            "--collective all-gather --ranks 2 --ranks-as threads --shape 1,32,32 --dtype f8 --scaling {scaling}"
        ));
    }
}

#[test]
fn named_ways_and_a_table() {
    let args =
        format!("{QUICK} --collective all-gather --ranks 2 --ranks-as threads --shape 8,32,32 --way pipeline,auto");
    let run = wide(&args).ok();
    assert!(run.stderr.contains("2 ranks as threads on host, matmul and all-gather, bf16, seed"), "{}", run.stderr);
    let mut lines = run.stdout.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let columns = "layer M K N mode way pipeline us auto us product us collective us predicted us bound us bound / way";
    assert_eq!(head.join(" "), format!("{columns} ratio wrong"));
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["shape", "8", "32", "16", "graph", "pipeline"], "{}", run.stdout);
    let us = |column: usize| row[column].parse::<f64>().unwrap();
    assert!((us(11) - us(8).max(us(9))).abs() < 1e-9, "the longer of product and collective: {}", run.stdout);
    assert!((us(12) - us(11) / us(6)).abs() < 0.02, "{}", run.stdout);
    assert_eq!([row[10], row[13], row[14]], ["-", "-", "0"], "{}", run.stdout);
}

#[test]
fn wrong_usage() {
    let refused = |args: &str, words: &[&str]| bench(&format!("{QUICK} {args}")).refused(2, words);
    refused("", &["--collective"]);
    refused("--collective broadcast", &["broadcast", "all-gather, reduce-scatter, all-reduce"]);
    refused("--collective all-gather --model gpt", &["--model", "llama3-70b"]);
    refused("--collective all-gather --inner 8", &["--columns"]);
    refused("--collective all-gather --inner 8 --columns 8 --model llama3-70b", &["--model"]);
    refused("--collective all-gather --shape 8,8", &["--shape", "three numbers"]);
    refused("--collective all-gather --shape 8,0,8", &["--shape", "1 to 1048576"]);
    refused("--collective all-gather --shape 8,8,8 --tokens 8", &["--shape"]);
    refused("--collective all-gather --tokens 0", &["--tokens"]);
    refused("--collective all-gather --way parallel", &["--way", "sequence"]);
    refused("--collective all-gather --way auto,auto", &["--way names auto twice"]);
    refused("--collective all-gather --ranks 3 --shape 9,9,8", &["N of shape is 8", "3 ranks"]);
    refused("--collective all-reduce --ranks 3 --shape 9,8,9", &["K of shape is 8", "3 ranks"]);
    refused("--collective all-gather --ranks 2 --shape 8,24,32 --dtype f8", &["inner", "24", "16"]);
    refused("--collective all-gather --scaling rows", &["scaling", "bf16 has no scales"]);
    refused("--collective all-gather --against nccl-symmetric", &["--against nccl-symmetric"]);
}
