//! Checks of kernels that need no launch. The schedules of the ring and of recursive doubling, for every world size:
//! `kernels/schedules_test.cc` plays through the formulas that the kernels run. The list of kernels:
//! `kernels/dispatch_test.cc`. The narrow formats: `kernels/narrow_test.cc` compares their encoders and decoders with
//! an oracle, and `kernels/codec_test.cc` the units of codecs with their description. `CXX` names the compiler, else
//! `c++`.

use std::env;
use std::path::Path;
use std::process::Command;

/// Builds a program of `tests/kernels` and runs it.
fn passes(name: &str, optimization: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let built = Command::new(compiler)
        .current_dir(root)
        .args(["-std=c++20", optimization, "-Wall", "-Wextra", "-Werror", "-I.", "-Iinclude"])
        .arg(format!("tests/kernels/{name}.cc"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains(" checks, 0 failed"), "{said}");
}

#[test]
fn pitfall_21_22_every_part_is_taken_in_once_and_arrives_everywhere() {
    passes("schedules_test", "-O1");
}

/// A device loads kernels by the list: to load one when it is first launched may wait for other ranks.
#[test]
fn every_kernel_is_listed() {
    passes("dispatch_test", "-O0");
}

#[test]
fn narrow_formats_round_to_the_nearest_code() {
    passes("narrow_test", "-O2");
}

#[test]
fn units_of_codecs_are_as_described_and_never_look_absent() {
    passes("codec_test", "-O2");
}
