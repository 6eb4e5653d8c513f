//! `src/kernel/args.rs` is what bindgen makes of `kernels/args.hpp`. Where libclang is
//! present this test generates it again and compares; `SYMMETRA_UPDATE=1` writes it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

const HEADER: &str = "//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test bindings` after changing the header.
#![allow(missing_docs, non_upper_case_globals, unreachable_pub, unused, clippy::all)]";

fn generate(root: &Path) -> String {
    bindgen::Builder::default()
        .header(root.join("kernels/args.hpp").to_str().unwrap())
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_arg(format!("-I{}", root.display()))
        .clang_arg(format!("-I{}", root.join("include").display()))
        .allowlist_item("symmetra::kernels::.*")
        .derive_default(false)
        .layout_tests(false)
        .raw_line(HEADER)
        .disable_header_comment()
        .generate()
        .expect("bindgen")
        .to_string()
        .replace("symmetra_kernels_", "")
        .replace("::std::os::raw::c_void", "core::ffi::c_void")
}

#[test]
fn args_rs_is_what_bindgen_makes_of_args_hpp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // bindgen panics without it.
    if let Err(missing) = clang_sys::load() {
        eprintln!("skipped: {missing}");
        return;
    }
    let path = root.join("src/kernel/args.rs");
    let fresh = generate(root);
    if std::env::var_os("SYMMETRA_UPDATE").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == fresh, "src/kernel/args.rs is stale: run SYMMETRA_UPDATE=1 cargo test --test bindings");
}
