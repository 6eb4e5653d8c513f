//! The cases of `docs/observe.md`: the commands of the page, run as they stand, have the output that the page describes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::examples;
use crate::page::blocks;

/// Runs the commands of a section of the page in an empty folder. Returns their output, of both kinds.
fn output_of(section: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observe.md")).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let cases: Vec<&str> =
        blocks(text).into_iter().filter(|(language, _)| *language == "sh").map(|(_, text)| text).collect();
    let [commands] = cases[..] else { panic!("{section} has {} blocks of commands", cases.len()) };
    assert!(commands.contains("target/release/examples/observed "), "{commands}");
    let commands = commands.replace("target/release/examples", examples().to_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let symmetra = Path::new(env!("CARGO_BIN_EXE_symmetra")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([symmetra].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("bash");
    // The library compares calls before they run only where the page asks for that.
    shell.args(["-c", &format!("ulimit -c 0; {commands}")]).env("PATH", path).env("SYMMETRA_CHECK_CALLS", "0");
    let output = shell.current_dir(folder.path()).stdin(Stdio::null()).output().unwrap();
    let drawn = fs::read_to_string(folder.path().join("timeline.svg")).unwrap_or_default();
    format!("{}{}{drawn}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_hang_is_seen_from_another_terminal() {
    let output = output_of("A hang");
    let verdict = "rank 2 has not made all-reduce 100, for which 3 ranks have waited ";
    assert!(output.contains(verdict) && output.contains("error: "), "{output}");
}

#[test]
fn a_slow_rank_is_the_one_that_the_others_wait_for() {
    let output = output_of("A slow rank");
    let row = |line: &&str| line.starts_with("all-reduce") && line.trim_end().ends_with(" 2");
    let row = output.lines().find(row).unwrap_or_else(|| panic!("{output}"));
    let share: f64 = row.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    // Three of four ranks wait for 5 ms in each call, which takes far less.
    assert!(share > 60.0, "{output}");
}

#[test]
fn the_first_call_that_differs_is_found() {
    let output = output_of("Ranks that differ");
    assert!(output.contains("ranks differ in call 100: rank 2 made all-reduce (sum) of 8192 bytes"), "{output}");
}

#[test]
fn a_job_that_died_has_left_its_calls() {
    let output = output_of("A job that died");
    assert!(output.contains("rank 2 has not made all-reduce 100") && output.contains("<svg"), "{output}");
}
