//! `src/kernel/args.rs` is what bindgen makes of `kernels/args.hpp`, and an impl for every row of
//! `kernels/launches.def`. Where libclang and rustfmt are present a test generates the file again and compares;
//! `SYMMETRA_UPDATE=1` writes it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bindgen::Formatter;

const HEADER: &str = "//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test bindings` after changing the header.
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, unreachable_pub, unsafe_code, unused, clippy::all)]";

const TRAIT: &str = "/// An argument block of `kernels/launches.def`.
///
/// # Safety
/// `KIND` is the row of the block.
pub unsafe trait Block {
    const KIND: Kind;
}
";

/// The rows of `kernels/launches.def`: name, argument block, size of the block.
fn launches(root: &Path) -> Vec<[String; 3]> {
    let rows = std::fs::read_to_string(root.join("kernels/launches.def")).unwrap();
    let rows = rows.lines().filter_map(|line| line.strip_prefix("LAUNCH(")?.strip_suffix(')'));
    let rows = rows.map(|row| row.split(", ").map(str::to_owned).collect::<Vec<_>>().try_into().unwrap());
    rows.collect()
}

/// What says in Rust that a block is that of a row.
fn block(name: &str, args: &str) -> String {
    format!(
        "// SAFETY: the row of `kernels/launches.def`.\nunsafe impl Block for {args} {{\n    const KIND: Kind = Kind::{name};\n}}\n"
    )
}

fn generate(root: &Path) -> String {
    let source = bindgen::Builder::default()
        .header(root.join("kernels/args.hpp").to_str().unwrap())
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_arg(format!("-I{}", root.display()))
        .clang_arg(format!("-I{}", root.join("include").display()))
        .allowlist_item("symmetra::kernels::.*")
        .newtype_enum("symmetra::kernels::Kind")
        .ctypes_prefix("core::ffi")
        .derive_default(false)
        .formatter(Formatter::None)
        .raw_line(HEADER)
        .disable_header_comment()
        .generate()
        .expect("bindgen")
        .to_string()
        .replace("symmetra_kernels_", "");
    let blocks: String = launches(root).iter().map(|[name, args, _]| block(name, args)).collect();
    let source = source + "\n" + TRAIT + &blocks;
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
    assert!(kept == fresh, "src/kernel/args.rs is stale: run SYMMETRA_UPDATE=1 cargo test --test bindings");
}

/// Also where nothing can generate it: every row has its block, of the row's size and number.
#[test]
fn every_launch_has_its_block_in_rust() {
    if std::env::var_os("SYMMETRA_UPDATE").is_some() {
        return; // the other test is writing the file
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = std::fs::read_to_string(root.join("src/kernel/args.rs")).unwrap();
    let rows = launches(root);
    assert!(!rows.is_empty());
    for (number, [name, args, bytes]) in rows.iter().enumerate() {
        for line in [
            block(name, args),
            format!("pub const {name}: Kind = Kind({number});"),
            format!("size_of::<{args}>() - {bytes}usize"),
        ] {
            assert!(kept.contains(&line), "src/kernel/args.rs lacks `{line}`");
        }
    }
}
