//! `moe` on the CPU.

use npyz::WriterBuilder;

use super::{Run, bench, wide};

const QUICK: &str = "moe --device host --operations 2 --launches 1";
const SMALL: &str = "moe --device host --operations 2 --launches 1 --ranks 2 --shape 8,2,64";

/// Its rows, all of them right.
fn rows(run: &Run) -> Vec<serde_json::Value> {
    let report = run.objects().remove(0);
    let rows = report["rows"].as_array().unwrap().clone();
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{report}");
    rows
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn every_row_is_right_and_has_its_numbers() {
    let args = "--method auto,packets,broadcast --tokens 1,5 --graph --eager --seed 7 --routing one --json";
    let run = bench(&format!("{SMALL} {args}")).ok();
    assert!(run.stderr.contains("2 ranks as processes on host, experts 8,2,64, rows as f8, one routing, seed 7"));
    let report = run.objects().remove(0);
    let shape = serde_json::json!({ "experts": 8, "top_k": 2, "hidden": 64 });
    assert_eq!((&report["shape"], &report["wire"], &report["routing"]), (&shape, &"f8".into(), &"one".into()));
    let rows = rows(&run);
    assert_eq!(rows.len(), 2 * 2 * 3, "{report}");
    for (number_of, row) in rows.iter().enumerate() {
        let tokens = [1, 5][number_of / 6];
        assert_eq!(row["tokens"], tokens, "{row}");
        assert_eq!(row["mode"], ["graph", "eager"][number_of / 3 % 2], "{row}");
        assert_eq!(row["method"], ["auto", "packets", "broadcast"][number_of % 3], "{row}");
        assert_eq!(row["serves"], ["packets", "packets", "broadcast"][number_of % 3], "{row}");
        assert_eq!((&row["layout"], &row["operations"]), (&"padded".into(), &2.into()), "{row}");
        assert!(number(&row["time_us"]["dispatch"]) > 0.0 && number(&row["time_us"]["both"]) > 0.0, "{row}");
        assert!(number(&row["host_us"]["both"]) > 0.0 && row["ratio"].is_null(), "{row}");
        // All tokens go to experts 0 and 1, on rank 0: the rows of rank 1 take the link. A row is 64 codes and a scale.
        for (phase, row_bytes) in [("dispatch", 68), ("both", 68 + 128)] {
            let time_us = number(&row["time_us"][phase]);
            for (name, rows) in [("logical_gbps", 2 * tokens), ("link_gbps", tokens)] {
                let gbps = f64::from(rows * row_bytes) / time_us / 1e3;
                assert!((number(&row[name][phase]) / gbps - 1.0).abs() < 1e-6, "{name} of {phase}: {row}");
            }
        }
    }
}

#[test]
fn layouts_wires_and_traffic() {
    for (args, layout) in [
        ("--ranks 2 --shape 8,2,64 --tokens 3 --layout by-rank --routing zipf", "by-rank"),
        ("--ranks 2 --shape 8,2,64 --tokens 3 --layout by-expert --wire same --method broadcast", "by-expert"),
        ("--ranks 3 --shape 5,3,33 --tokens 3 --wire same --method gather,packets --eager", "padded"),
        ("--ranks 2 --shape 8,2,130 --tokens 3 --layout by-rank --method packets", "by-rank"),
        ("--ranks 3 --shape 2,1,129 --tokens 130", "by-rank"),
        ("--ranks 3 --shape 7,3,130 --tokens 1,5 --layout by-source --graph --eager", "by-source"),
        ("--ranks 2 --shape 8,2,64 --tokens 3 --layout by-source --wire same --method direct", "by-source"),
        ("--ranks 2 --shape 8,2,130 --tokens 3 --layout by-rank --wire given-f8 --method direct,packets", "by-rank"),
    ] {
        let rows = rows(&bench(&format!("{QUICK} {args} --ranks-as threads --json")).ok());
        assert!(!rows.is_empty() && rows.iter().all(|row| row["layout"] == layout), "{args}: {rows:?}");
    }
}

#[test]
fn halves_with_work_between_them() {
    let run = bench("moe --device host --ranks 2 --shape 8,2,64 --launches 2 --tokens 1,5 --split --size 64 --json");
    let run = run.ok();
    let report = run.objects().remove(0);
    assert_eq!((&report["size"], &report["launches"]), (&64.into(), &2.into()), "{report}");
    let rows = rows(&run);
    assert_eq!(rows.len(), 2 * 2, "{report}");
    for (number_of, row) in rows.iter().enumerate() {
        assert_eq!((&row["tokens"], &row["layout"]), (&[1, 5][number_of / 2].into(), &"padded".into()), "{row}");
        assert_eq!(row["call"], ["dispatch", "combine"][number_of % 2], "{row}");
        let [receive_us, after_us] = ["receive_us", "receive_after_us"].map(|name| number(&row[name]));
        assert!(receive_us > 0.0 && after_us > 0.0 && number(&row["begin_us"]) > 0.0, "{row}");
        assert!(number(&row["work_us"]) > 0.0, "{row}");
        assert!((number(&row["hidden"]) - (1.0 - after_us / receive_us)).abs() < 1e-9, "{row}");
    }
    for (layout, wire) in [("by-rank", "same"), ("by-source", "given-f8")] {
        let args =
            format!("{QUICK} --ranks 3 --shape 5,3,33 --wire {wire} --tokens 3 --layout {layout} --split --size 64");
        let args = args.replace("--operations 2", "--ranks-as threads");
        let run = wide(&args).ok();
        let head: Vec<&str> = run.stdout.lines().next().unwrap().split_whitespace().collect();
        let columns = "tokens layout call begin us receive us work us receive after us hidden % wrong";
        assert_eq!(head.join(" "), columns);
    }
}

/// Writes ids for 2 ranks.
fn ids(folder: &tempfile::TempDir, name: &str, shape: &[u64], ids: &[i64]) -> String {
    let path = folder.path().join(name);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(file).begin_nd().unwrap();
    writer.extend(ids.iter().copied()).unwrap();
    writer.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn routing_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    // Rank 0: token 0 to expert 7 twice, token 1 to no expert, token 2 to expert 0. Rank 1 only to expert 3.
    let of_ranks = [7, 7, -1, -1, 0, -1, 3, -1, 3, -1, -1, 3];
    let path = ids(&folder, "ids.npy", &[2, 3, 2], &of_ranks);
    let run = bench(&format!("{SMALL} --routing {path} --json")).ok();
    assert_eq!(rows(&run)[0]["tokens"], 3, "all tokens of the file");
    let flat = ids(&folder, "flat.npy", &[6, 2], &of_ranks);
    let run = bench(&format!("{SMALL} --routing {flat} --tokens 1,2 --layout by-expert --json")).ok();
    assert_eq!(rows(&run).len(), 2);
    // Errors name the file, the value and the limit.
    let refused =
        |path: &str, more: &str, words: &[&str]| bench(&format!("{SMALL} --routing {path} {more}")).refused(2, words);
    refused(&path, "--tokens 4", &["4 tokens were asked for", "ids.npy has 3"]);
    let bad = ids(&folder, "bad.npy", &[2, 1, 2], &[0, 1, 2, 8]);
    refused(&bad, "", &["bad.npy", "token 0 of rank 1 goes to expert 8", "-1 to 7"]);
    let three = ids(&folder, "three.npy", &[3, 1, 2], &[0; 6]);
    refused(&three, "", &["three.npy", "[3, 1, 2]", "[2, tokens, 2]"]);
    refused(&ids(&folder, "empty.npy", &[2, 0, 2], &[]), "", &["empty.npy", "there must be tokens"]);
    refused("/nowhere/ids.npy", "", &["cannot open /nowhere/ids.npy"]);
}

#[test]
fn a_table_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("out.svg");
    let args = format!("{SMALL} --ranks-as threads --tokens 1,2 --plot {}", svg.display());
    let run = wide(&args).ok();
    let head: Vec<&str> = run.stdout.lines().next().unwrap().split_whitespace().collect();
    let columns = "tokens mode layout method dispatch us combine us both us logical GB/s link GB/s ratio wrong";
    assert_eq!(head.join(" "), columns);
    assert!(run.stdout.contains("auto (packets)"), "{}", run.stdout);
    let svg = std::fs::read_to_string(svg).unwrap();
    for words in ["experts 8,2,64, rows as f8, 2 ranks on host", "auto: dispatch", "bandwidth over links"] {
        assert!(svg.contains(words), "{words}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn wrong_usage() {
    for (args, words) in [
        ("--shape 8,2", ["--shape", "deepseek, mixtral"].as_slice()),
        ("--shape 8,65,64", &["65", "1 to 64"]),
        ("--shape 8,2,65537", &["65537", "1 to 65536"]),
        ("--shape 70000,2,64", &["70000", "1 to 65534"]),
        ("--shape 0,2,64", &["0", "1 to 65534"]),
        ("--shape 4,8,64", &["--shape", "8 experts", "there are 4"]),
        ("--phase train", &["--phase", "prefill"]),
        ("--phase decode --tokens 4", &["--phase", "--tokens"]),
        ("--tokens 0", &["--tokens", "1048576"]),
        ("--tokens 1048577", &["--tokens", "1048576"]),
        ("--tokens 1,x", &["--tokens"]),
        ("--wire fp4", &["--wire", "f8, same"]),
        ("--layout random", &["--layout", "by-rank, by-expert, padded, by-source"]),
        ("--method fast", &["--method", "auto, packets, direct, gather, broadcast"]),
        ("--method packets --shape 8,2,64 --ranks 4 --phase prefill", &["packets", "16384", "8192"]),
        ("--method auto,auto", &["--method names auto twice"]),
        ("--routing even", &["--routing is `even`", "uniform, zipf, one"]),
        ("--routing ids.txt", &["ids.txt", "ends in .npy"]),
        ("--against nccl-symmetric", &["--against nccl-symmetric", "on our buffers"]),
        ("--against mpi", &["mpi", "nccl"]),
        ("--split --method packets", &["--split", "--method"]),
        ("--split --eager", &["--split", "--eager"]),
        ("--size 128", &["--split"]),
        ("--split --size 63", &["63", "64..=65536"]),
        ("--split --shape 8,2,64 --ranks 4 --phase prefill", &["packets", "16384", "8192"]),
        ("--plot out.png", &["out.png", "must end in .svg"]),
        ("--output /nowhere/out.json", &["--output: cannot write /nowhere/out.json"]),
        ("--ranks 17", &["17 is not in 2..=16"]),
    ] {
        bench(&format!("moe --device host {args}")).refused(2, words);
    }
    let missing = if cfg!(feature = "nccl") { "needs a GPU for every rank" } else { "cargo build --features nccl" };
    bench("moe --device host --against nccl").refused(2, &["--against nccl", missing]);
}
