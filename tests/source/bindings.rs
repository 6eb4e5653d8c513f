//! `src/kernel/args.rs` is what bindgen makes of `kernels/args.hpp`. Where libclang and rustfmt are
//! present this test generates it again and compares; `SYMMETRA_UPDATE=1` writes it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bindgen::Formatter;

const HEADER: &str = "//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test source bindings` after changing the header.
#![allow(missing_docs, non_upper_case_globals, unreachable_pub, unused, clippy::all)]";

fn generate(root: &Path) -> String {
    let source = bindgen::Builder::default()
        .header(root.join("kernels/args.hpp").to_str().unwrap())
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_arg(format!("-I{}", root.display()))
        .clang_arg(format!("-I{}", root.join("include").display()))
        .allowlist_item("symmetra::kernels::.*")
        .ctypes_prefix("core::ffi")
        .derive_default(false)
        .formatter(Formatter::None)
        .raw_line(HEADER)
        .disable_header_comment()
        .generate()
        .expect("bindgen")
        .to_string()
        .replace("symmetra_kernels_", "");
    // Only now, when every name is as long as it stays.
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt");
    rustfmt.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let formatted = rustfmt.wait_with_output().unwrap();
    assert!(formatted.status.success(), "rustfmt failed with {}", formatted.status);
    String::from_utf8(formatted.stdout).unwrap()
}

#[test]
fn args_rs_is_what_bindgen_makes_of_args_hpp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // bindgen panics without it.
    if let Err(missing) = clang_sys::load() {
        eprintln!("skipped: {missing}");
        return;
    }
    if let Err(missing) = Command::new("rustfmt").arg("--version").output() {
        eprintln!("skipped: rustfmt: {missing}");
        return;
    }
    let path = root.join("src/kernel/args.rs");
    let fresh = generate(root);
    if std::env::var_os("SYMMETRA_UPDATE").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == fresh, "src/kernel/args.rs is stale: run SYMMETRA_UPDATE=1 cargo test --test source bindings");
}
