//! `docs/tutorial-cpp.md` as its readers use it: its C++ blocks are `examples/cpp/tutorial.cc`, which builds against the
//! installed tree without a warning, and its commands print what the page shows.
//!
//! `SYMMETRA_UPDATE=tutorial cargo test --test consumer tutorial` writes the program and the output anew.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{build, installed, is_here, page, root};

const PAGE: &str = "docs/tutorial-cpp.md";
const PROGRAM: &str = "examples/cpp/tutorial.cc";
/// The head of the program before the blocks.
const TITLE: &str = "// The program of docs/tutorial-cpp.md: the C++ blocks of that page, in order.\n";

/// The output of a command of the page, run against the tree that is installed already.
fn printed(command: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tutorial-cpp");
    fs::create_dir_all(&folder).unwrap();
    let command = command
        .replace("/tmp/symmetra", installed().to_str().unwrap())
        .replace("examples/", &format!("{}/examples/", root().display()))
        .replace("29500", &page::free_port().to_string());
    let symmetra = Path::new(env!("CARGO_BIN_EXE_symmetra")).parent().unwrap();
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([symmetra.to_owned()].into_iter().chain(env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("ulimit -c 0\n{command}")]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_in_cpp_is_the_program_and_its_output() {
    let mut page = fs::read_to_string(root().join(PAGE)).unwrap();
    let update = env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "tutorial");
    let (count, blocks) = page::program(&page, "cpp");
    let program = format!("{TITLE}{blocks}");
    if update {
        fs::write(root().join(PROGRAM), &program).unwrap();
    }
    assert_eq!(fs::read_to_string(root().join(PROGRAM)).unwrap(), program, "{PROGRAM} is not what {PAGE} shows");
    build(PROGRAM, &[]);
    if !is_here("pkg-config") {
        return;
    }
    let commands = page::compare(&mut page, "cpp", update, printed);
    assert!(count >= 5 && commands >= 5, "{count} blocks of C++, {commands} commands");
    if update {
        fs::write(root().join(PAGE), &page).unwrap();
    }
}
