//! The choices that `info` prints for every feature and world size equal `goldens/info.jsonl`: a change of code that changes no
//! choice leaves the file as it is. `SYMMETRA_UPDATE=goldens cargo test --test cli goldens` writes the file anew.

use std::fmt::Write as _;

use super::symmetra;

/// Parts of the output that no machine changes.
const PARTS: [&str; 5] = ["algorithms", "norms", "transports", "experts", "grid"];

/// Formats of quantised rows: one for each layout of scales.
const FORMATS: [&str; 6] =
    ["static-e4m3", "per-token-e4m3", "group-128-e4m3", "mxfp8", "mxfp8-swizzled", "nvfp4-swizzled"];

/// Arguments of `info`, and the parts that the arguments change.
fn questions() -> Vec<(String, &'static [&'static str])> {
    let mut questions = Vec::new();
    for device in ["host", "cuda"] {
        for ranks in [2, 3, 4, 5, 8, 16] {
            let of = format!("--device {device} --ranks {ranks}");
            questions.push((format!("{of} --hidden 8192 --experts deepseek"), &PARTS[..4]));
            questions.push((format!("{of} --experts mixtral --tokens 4096"), &PARTS[3..4]));
            if [2, 4, 8].contains(&ranks) {
                questions
                    .extend(FORMATS.map(|format| (format!("{of} --hidden 2880 --quantise {format}"), &PARTS[1..2])));
            }
        }
        for grid in [
            "--local-tp 2 --local-dp 2",
            "--ranks 8 --hosts 2 --local-tp 4 --across-dp 2",
            "--ranks 8 --hosts 4 --local-dp 2 --across-tp 4",
        ] {
            questions.push((format!("--device {device} {grid}"), &PARTS[4..]));
        }
    }
    questions
}

#[test]
fn choices_are_those_of_the_golden_file() {
    let mut found = String::new();
    for (args, parts) in questions() {
        let info = symmetra(&format!("info --json {args}")).ok().objects().remove(0);
        for part in parts {
            let value = &info[part];
            assert!(!value.is_null(), "{args}: no {part}");
            writeln!(found, "{}", serde_json::json!({ "args": args, "part": part, "value": value })).unwrap();
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cli/goldens/info.jsonl");
    if std::env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "goldens") {
        std::fs::write(file, &found).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap();
    let differs = found.lines().zip(golden.lines()).find(|(found, golden)| found != golden);
    assert!(differs.is_none(), "found and golden: {differs:#?}");
    assert_eq!(found.lines().count(), golden.lines().count());
}
