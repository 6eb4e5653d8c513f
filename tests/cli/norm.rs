//! All-reduce and norm: everything is right, and errors are reported.

use super::symmetra;

/// Runs with these arguments and returns the rows, all of them right.
fn right(args: &str, sizes: usize) -> Vec<serde_json::Value> {
    let run = symmetra(&format!("all-reduce-norm {args} --device host --iterations 3 --json")).ok();
    let rows = run.objects();
    assert_eq!(rows.len(), sizes, "{args}: {}", run.stdout);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{args}: {}", run.stdout);
    rows
}

#[test]
fn every_form() {
    let rows = right("--ranks 4 --hidden 2880 --tokens 1,4,16", 3);
    for (row, tokens) in rows.iter().zip([1, 4, 16]) {
        assert_eq!((&row["tokens"], &row["hidden"]), (&tokens.into(), &2880.into()), "{row}");
        assert_eq!((&row["bytes"], &row["dtype"]), (&(tokens * 2880 * 2).into(), &"bf16".into()), "{row}");
        assert!(row["time_us"].as_f64().unwrap() > 0.0, "{row}");
    }
    for op in ["reduce-scatter --graph", "reduce-scatter-all-gather --in-place", "reduce-scatter-all-gather --plain"] {
        let rows = right(&format!("--ranks 3 --hidden 100 --tokens 3,12 --ranks-as threads --op {op}"), 2);
        assert!(rows.iter().all(|row| row["algorithm"] == "two-shot-sentinel"), "{rows:?}");
    }
    let rows = right("--ranks 2 --hidden 2880 --tokens 2,200 --ranks-as threads --op reduce-scatter-all-gather", 2);
    assert_eq!(rows[1]["algorithm"], "two-shot-zero-copy", "{rows:?}");
    let forms = [
        "--no-residual",
        "--gemma --in-place",
        "--plain --graph",
        "--graph --in-place --no-residual --plain",
        "--algorithm ring --dtype f32",
        "--algorithm recursive-doubling --dtype f16 --check-calls --most-blocks 3",
        "--algorithm two-shot-zero-copy --graph",
        "--norm layer --quantise per-token-e4m3",
        "--norm layer --gemma --in-place --graph",
    ];
    for (number, form) in forms.into_iter().enumerate() {
        let (ranks, hidden) = (1 + number, [1, 100, 513][number % 3]);
        right(&format!("--ranks {ranks} --hidden {hidden} --tokens 3,17 --ranks-as threads {form} --seed {number}"), 2);
    }
}

/// One format of every kind and layout; all of them in the suite `norm`.
#[test]
fn every_kind_of_quantised_rows() {
    let formats = [
        "static-int8",
        "per-token-e4m3",
        "group-128-e4m3",
        "group-48-e5m2-columns",
        "mxfp8-swizzled",
        "mxfp4",
        "mx-128-e4m3-packed",
        "nvfp4-swizzled",
    ];
    for (number, format) in formats.into_iter().enumerate() {
        let form = ["", "--graph --plain", "--no-residual --gemma"][number % 3];
        let args = format!("--ranks {} --hidden 1000 --ranks-as threads {form}", 1 + number % 4);
        let rows = right(&format!("{args} --tokens 1,3 --quantise {format}"), 2);
        assert!(rows.iter().all(|row| row["quantise"] == format), "{rows:?}");
    }
    for format in ["per-token-int8", "group-128-e4m3-columns", "mx-128-e4m3-packed", "nvfp4-swizzled"] {
        for op in ["reduce-scatter", "reduce-scatter-all-gather"] {
            let args = format!("--ranks 2 --hidden 1000 --ranks-as threads --tokens 2,6 --op {op}");
            let rows = right(&format!("{args} --quantise {format}"), 2);
            assert!(rows.iter().all(|row| row["algorithm"] == "two-shot-sentinel"), "{op}: {rows:?}");
        }
    }
    // Peers address codes as they do rows: in plain memory once a graph is registered.
    for (form, runs) in [
        ("", "two-shot-zero-copy"),
        ("--plain", "two-shot-sentinel"),
        ("--plain --graph", "two-shot-zero-copy"),
        ("--algorithm two-shot-zero-copy", "two-shot-zero-copy"),
    ] {
        let args = "--ranks 2 --hidden 2880 --tokens 200 --ranks-as threads --op reduce-scatter-all-gather";
        let rows = right(&format!("{args} --quantise per-token-e4m3 {form}"), 1);
        assert_eq!(rows[0]["algorithm"], runs, "{rows:?}");
    }
    let plain = right("--ranks 2 --hidden 100 --tokens 1 --ranks-as threads --in-place --quantise per-token-int8", 1);
    assert_eq!(plain[0]["quantise"], "per-token-int8");
    assert!(right("--ranks 1 --hidden 8 --tokens 1", 1)[0]["quantise"].is_null());
}

#[test]
fn a_table_for_people() {
    let run = symmetra("all-reduce-norm --ranks 2 --hidden 64 --device host --iterations 1 --ranks-as threads").ok();
    assert!(run.stdout.starts_with("tokens"), "{}", run.stdout);
    assert!(run.stderr.contains("2 ranks as threads on host, out of place, symmetric memory, seed"), "{}", run.stderr);
    run.fits(80);
}

#[test]
fn wrong_usage() {
    symmetra("all-reduce-norm --dtype i32").refused(2, &["f32, f16 or bf16, not i32"]);
    symmetra("all-reduce-norm --hidden 0").refused(2, &["--hidden", "1048576"]);
    symmetra("all-reduce-norm --hidden 1048577").refused(2, &["--hidden", "1048576"]);
    symmetra("all-reduce-norm --plain --algorithm two-shot-zero-copy").refused(2, &["--plain", "peers can address"]);
    symmetra("all-reduce-norm --quantise fp8").refused(2, &["--quantise", "group-128-e4m3"]);
    symmetra("all-reduce-norm --quantise static-e2m1").refused(2, &["e2m1", "e4m3, e5m2 or int8"]);
    symmetra("all-reduce-norm --quantise mx-0-e4m3").refused(2, &["multiple of 16"]);
    symmetra("all-reduce-norm --in-place --hidden 40 --quantise mxfp8").refused(2, &["--in-place", "padded to 64"]);
    symmetra("all-reduce-norm --op reduce-scatter --ranks 2 --tokens 2,3").refused(2, &["3 rows", "2 ranks"]);
    symmetra("all-reduce-norm --tokens 1,x").refused(2, &["--tokens"]);
}
