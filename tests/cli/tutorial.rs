//! `docs/tutorial.md` as its readers use it: its Rust blocks are `examples/tutorial.rs`, and its commands print what
//! the page shows.
//!
//! `SYMMETRA_UPDATE=tutorial cargo test --test examples tutorial` writes the program and the output anew.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::page::{self, free_port};
use crate::{FEATURES, examples};

const PAGE: &str = "docs/tutorial.md";
const PROGRAM: &str = "examples/tutorial.rs";
/// The head of the program before the blocks.
const TITLE: &str = "//! The program of docs/tutorial.md: the Rust blocks of that page, in order.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used)]
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The words of an error that the page explains.
fn explained(page: &str) -> Vec<&str> {
    let table = page.split_once("| words | meaning |\n|---|---|\n").unwrap().1;
    let rows = table.lines().take_while(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().trim_end_matches(" ...")).collect()
}

/// The output of a command of the page, run on the build of this test.
fn printed(command: &str) -> String {
    let (examples, symmetra) = (examples(), Path::new(env!("CARGO_BIN_EXE_symmetra")).parent().unwrap());
    let release = examples.ends_with("release/examples").then_some("--release");
    let features = FEATURES.iter().filter(|(_, on)| *on).flat_map(|(feature, _)| ["--features", feature]);
    let profile = release.into_iter().chain(features).collect::<Vec<_>>().join(" ");
    let command = command
        .replace("cargo build --release ", &format!("cargo build {profile} "))
        .replace("target/release/examples", examples.to_str().unwrap())
        .replace("29500", &free_port().to_string());
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([symmetra.to_owned()].into_iter().chain(env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("ulimit -c 0\n{command}")]).current_dir(root()).stdin(Stdio::null());
    shell
        .env("PATH", path)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", examples.ancestors().nth(2).unwrap());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_is_the_program_and_its_output() {
    let mut page = fs::read_to_string(root().join(PAGE)).unwrap();
    let update = env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "tutorial");
    let (count, rust) = page::program(&page, "rust");
    let program = format!("{TITLE}\n{rust}");
    if update {
        fs::write(root().join(PROGRAM), &program).unwrap();
    }
    assert_eq!(fs::read_to_string(root().join(PROGRAM)).unwrap(), program, "{PROGRAM} is not what {PAGE} shows");
    let commands = page::compare(&mut page, "rust", update, printed);
    assert!(count >= 5 && commands >= 5, "{count} blocks of Rust, {commands} commands");
    if update {
        fs::write(root().join(PAGE), &page).unwrap();
    }
    for words in explained(&page) {
        let printed = page::blocks(&page).iter().any(|(language, text)| *language == "text" && text.contains(words));
        assert!(printed, "{PAGE} explains `{words}`, which no command prints");
    }
}
