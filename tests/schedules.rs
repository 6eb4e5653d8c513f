//! The schedules of the ring and of recursive doubling, for every world: `kernels/schedules_test.cc`
//! plays through the formulas that the kernels run. `CXX` names the compiler, else `c++`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn pitfall_21_22_every_part_is_taken_in_once_and_arrives_everywhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schedules_test");
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let built = Command::new(compiler)
        .current_dir(root)
        .args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-I.", "-Iinclude"])
        .arg("tests/kernels/schedules_test.cc")
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains(" checks, 0 failed"), "{said}");
}
