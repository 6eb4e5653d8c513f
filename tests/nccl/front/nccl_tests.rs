//! `bench/nccl_tests.sh`, over programs that print the lines of nccl-tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with programs, each a name and a script.
fn folder(programs: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, script) in programs {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn run(folder: &TempDir) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/nccl_tests.sh");
    Command::new(script).arg(crate::library::path()).arg(folder.path()).args(["-g", "2"]).output().unwrap()
}

/// The bandwidth is 12 over the library and 8 without it.
const GOOD: &str = r##"test "$1 $2" = "-g 2" || exit 3
bandwidth=8
case "$LD_PRELOAD" in *libsymmetra_nccl.so*) bandwidth=12 ;; esac
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : $bandwidth""##;

#[test]
fn a_row_for_every_program() {
    let output = run(&folder(&[("all_reduce_perf", GOOD), ("readme", "exit 1")]));
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1..], [["all_reduce_perf", "0", "12", "8", "1.50"]], "{table}");
    assert!(output.status.success());
}

#[test]
fn wrong_elements_and_failed_programs() {
    // nccl-tests exits with 1 after wrong elements.
    let wrong = GOOD.replace(": 0 OK", ": 3 FAILED") + "\nexit 1";
    let late = GOOD.to_owned() + "\nexit 1";
    let output = run(&folder(&[("a_perf", &wrong), ("b_perf", "exit 1"), ("c_perf", &late)]));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("a_perf                         3") && table.contains("b_perf                    failed"),
        "{table}"
    );
    assert!(table.contains("c_perf                    failed         12"), "{table}");
    assert_eq!(output.status.code(), Some(1));
    let none = run(&folder(&[]));
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("has no program *_perf"));
}
