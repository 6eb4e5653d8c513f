//! Every collective except all-reduce: everything is right, and errors are reported.

use super::symmetra;

const COLLECTIVES: [(&str, f64); 12] = [
    ("all-gather", 0.75),
    ("all-gather-v", 0.75),
    ("reduce-scatter", 0.75),
    ("reduce-scatter-v", 0.75),
    ("all-to-all", 0.75),
    ("broadcast", 1.0),
    ("reduce", 1.0),
    ("gather", 0.75),
    ("scatter", 0.75),
    ("send-receive", 1.0),
    ("all-to-all-v", 0.75),
    ("shift", 1.0),
];

#[test]
fn every_operation_has_its_command_here() {
    let all: Vec<_> =
        ::symmetra::op::OPERATIONS.iter().map(|op| op.name()).filter(|name| *name != "all-reduce").collect();
    assert!(
        all.len() == COLLECTIVES.len() && all.iter().all(|name| COLLECTIVES.iter().any(|(known, _)| known == name))
    );
}

/// Runs with these arguments and returns the rows, all of them right.
fn right(args: &str, sizes: usize) -> Vec<serde_json::Value> {
    let run = symmetra(&format!("{args} --device host --iterations 2 --json")).ok();
    let rows = run.objects();
    assert_eq!(rows.len(), sizes, "{args}: {}", run.stdout);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{args}: {}", run.stdout);
    rows
}

#[test]
fn every_collective_as_processes() {
    for (collective, bus_factor) in COLLECTIVES {
        for row in right(&format!("{collective} --ranks 4 --dtype bf16 --min-bytes 1KiB --max-bytes 32KiB"), 6) {
            assert_eq!((&row["collective"], &row["ranks"]), (&collective.into(), &4.into()));
            let number = |key: &str| row[key].as_f64().unwrap();
            let factor = number("busbw_gbps") / number("algbw_gbps");
            assert!((factor - bus_factor).abs() < 1e-6, "{row}");
        }
    }
}

#[test]
fn every_world_memory_and_form() {
    let forms =
        ["", "--graph", "--in-place", "--plain", "--graph --plain", "--transport packets", "--transport direct"];
    let mut case = 0;
    for ranks in super::worlds() {
        for (collective, _) in COLLECTIVES {
            let form = forms[case % forms.len()];
            case += 1;
            if form == "--in-place" && ["all-to-all", "all-to-all-v", "send-receive", "shift"].contains(&collective) {
                continue;
            }
            let dtype = ["f32", "u8", "f16", "i64", "f64"][case % 5];
            let threads = "--ranks-as threads --check-calls --min-bytes 1000 --max-bytes 40000";
            right(&format!("{collective} --ranks {ranks} --dtype {dtype} {form} {threads} --seed {case}"), 6);
        }
    }
}

#[test]
fn copy_engines() {
    let forms = ["", "--graph", "--in-place", "--plain", "--graph --plain", "--plain --in-place"];
    for ranks in super::worlds() {
        for (number, collective) in ["all-gather", "reduce-scatter --op avg"].into_iter().enumerate() {
            let form = forms[(ranks + 3 * number) % forms.len()];
            let what = "--transport copy-engine --dtype bf16 --ranks-as threads --check-calls --max-bytes 32KiB";
            let rows = right(&format!("{collective} --ranks {ranks} {form} {what}"), 6);
            let name = if ranks == 1 { "copy" } else { "copy-engine" };
            assert!(rows.iter().all(|row| row["algorithm"] == name), "{rows:?}");
        }
    }
    right("all-gather --transport copy-engine --ranks 3 --max-bytes 4KiB", 3);
}

#[test]
fn roots_and_reductions() {
    for op in ["prod", "min", "max", "avg"] {
        for collective in ["reduce --root 2", "reduce-scatter"] {
            let rows = right(&format!("{collective} --op {op} --ranks 3 --ranks-as threads --max-bytes 16KiB"), 5);
            assert!(rows.iter().all(|row| row["op"] == op));
        }
    }
    for collective in ["broadcast", "gather", "scatter"] {
        right(&format!("{collective} --root 2 --ranks 3 --ranks-as threads --max-bytes 16KiB"), 5);
    }
}

/// Every dimension, for operations whose description supports dimensions; the others refuse.
#[test]
fn along_every_dimension() {
    for op in ::symmetra::op::OPERATIONS.into_iter().filter(|op| op.name() != "all-reduce") {
        let name = op.name();
        if !op.along {
            symmetra(&format!("{name} --along 0")).refused(2, &["--along", name]);
            continue;
        }
        for (dim, ranks, form) in [
            (0, 3, "--ranks-as threads --in-place"),
            (1, 4, "--ranks-as threads --plain --dtype bf16"),
            (2, 3, "--ranks-as processes --dtype u8"),
            (2, 4, "--ranks-as threads --graph --transport direct --dtype f64"),
            (1, 2, "--ranks-as threads --transport packets --check-calls --most-blocks 2"),
        ] {
            let rows = right(&format!("{name} --along {dim} --ranks {ranks} {form} --min-bytes 5000 -e 40000"), 4);
            // A part is a whole number of rows.
            assert!(rows.iter().all(|row| row["elements"].as_u64().unwrap().is_multiple_of(16 * ranks)), "{rows:?}");
        }
    }
}

#[test]
fn small_sizes_of_whole_parts_are_measured_once() {
    let rows = right("all-gather --ranks 3 --ranks-as threads --min-bytes 4 --max-bytes 16", 1);
    assert_eq!(rows[0]["bytes"], 12);
}

#[test]
fn shifts_go_both_ways() {
    for by in ["--by -1", "--by=-7", "--by 4", "--by 0"] {
        right(&format!("shift {by} --ranks 3 --ranks-as threads --max-bytes 16KiB"), 5);
    }
}

#[test]
fn help_tells_what_a_size_is_and_how_it_ends() {
    let help = super::help("all-gather");
    for words in ["Exit status: 0", "A size is that of a rank's larger operand"] {
        assert!(help.contains(words), "`{words}` is not in: {help}");
    }
}

#[test]
fn wrong_usage() {
    for (args, words) in [
        ("broadcast --ranks 2 --root 2", ["--root is 2", "2 ranks"].as_slice()),
        ("all-gather --root 1", &["all-gather has no root"]),
        ("scatter --by 1", &["scatter has no distance"]),
        ("shift --by 1.5", &["--by", "1.5"]),
        ("shift --root 1", &["shift has no root"]),
        ("all-to-all --in-place", &["--in-place", "all-to-all"]),
        ("all-gather --along 3", &["3 is not in 0..=2"]),
        ("all-gather --along 1 --in-place", &["--in-place", "all-gather along dimension 1"]),
        ("reduce-scatter --along 2 --transport copy-engine", &["copy-engine", "along a dimension"]),
        ("scatter --op max", &["max", "scatter reduces nothing"]),
        ("all-gather --plain --transport direct", &["--plain", "direct"]),
        ("gather --plain --graph --transport direct", &["--plain", "direct"]),
        ("all-gather --transport fastest", &["fastest", "packets"]),
        ("broadcast --transport copy-engine", &["copy-engine", "broadcast"]),
        ("all-gather --ranks 17", &["17 is not in 1..=16"]),
    ] {
        symmetra(args).refused(2, words);
    }
}
