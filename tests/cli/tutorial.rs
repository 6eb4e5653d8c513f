//! `docs/tutorial.md` as its readers use it: its Rust blocks are `examples/tutorial.rs`, and its commands print what
//! the page shows.
//!
//! `SYMMETRA_UPDATE=tutorial cargo test --test examples tutorial` writes the program and the output anew.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{FEATURES, examples};

const PAGE: &str = "docs/tutorial.md";
const PROGRAM: &str = "examples/tutorial.rs";
/// What the program has before the blocks.
const TITLE: &str = "//! The program of docs/tutorial.md: the Rust blocks of that page, in order.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used)]
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The blocks of a page in order: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// The words of an error that the page explains.
fn explained(page: &str) -> Vec<&str> {
    let table = page.split_once("| words | meaning |\n|---|---|\n").unwrap().1;
    let rows = table.lines().take_while(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().trim_end_matches(" ...")).collect()
}

/// A port that was free when chosen.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// What a command of the page prints, run on what this test was built with. Lines of ranks may come in any order.
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
    sorted(&String::from_utf8(output.stdout).unwrap())
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_page_is_the_program_and_its_output() {
    let mut page = fs::read_to_string(root().join(PAGE)).unwrap();
    let update = env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "tutorial");
    let shown = page.clone();
    let parts = blocks(&shown);
    let rust: Vec<&str> = parts.iter().filter(|(language, _)| *language == "rust").map(|(_, text)| *text).collect();
    let program = format!("{TITLE}\n{}", rust.join("\n"));
    if update {
        fs::write(root().join(PROGRAM), &program).unwrap();
    }
    assert_eq!(fs::read_to_string(root().join(PROGRAM)).unwrap(), program, "{PROGRAM} is not what {PAGE} shows");
    let mut commands = 0;
    for (at, (language, command)) in parts.iter().enumerate() {
        match *language {
            "rust" => {}
            "text" => assert_eq!(parts[at - 1].0, "sh", "output of nothing"),
            "sh" => {
                let (language, output) = parts[at + 1];
                assert_eq!(language, "text", "no output after: {command}");
                let printed = printed(command);
                if update {
                    let block = |output: &str| format!("```sh\n{command}```\n\n```text\n{output}```\n");
                    page = page.replace(&block(output), &block(&printed));
                } else {
                    assert_eq!(sorted(output), printed, "{command}");
                }
                commands += 1;
            }
            other => panic!("a block of {other} that no test runs"),
        }
    }
    assert!(rust.len() >= 5 && commands >= 5, "{} blocks of Rust, {commands} commands", rust.len());
    if update {
        fs::write(root().join(PAGE), &page).unwrap();
    }
    for words in explained(&page) {
        let printed = blocks(&page).iter().any(|(language, text)| *language == "text" && text.contains(words));
        assert!(printed, "{PAGE} explains `{words}`, which no command prints");
    }
}
