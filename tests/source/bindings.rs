//! `src/kernel/args.rs` is what bindgen makes of `kernels/args.hpp`, a constant for every struct, and an impl for every
//! row of `kernels/launches.def`. Where libclang and rustfmt are present a test generates the file again and compares;
//! `SYMMETRA_UPDATE=1` writes it.
//!
//! And the sources that define the protocol between ranks are those that `tests/protocol.txt` pins:
//! `SYMMETRA_UPDATE=protocol cargo test --test source bindings` pins them as they are.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bindgen::Formatter;

const HEADER: &str = "//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test source bindings` after changing the header.
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

/// The Rust code that makes an argument block belong to a row.
fn block(name: &str, args: &str) -> String {
    format!(
        "// SAFETY: the row of `kernels/launches.def`.\nunsafe impl Block for {args} {{\n    const KIND: Kind = Kind::{name};\n}}\n"
    )
}

/// The constants from which literals of the structs in `source` take the fields that they do not set.
fn none(source: &str) -> String {
    let names = source.split("pub struct ").skip(1).filter_map(|rest| {
        let name = rest.split(|of: char| !of.is_alphanumeric()).next()?;
        rest[name.len()..].trim_start().starts_with('{').then_some(name)
    });
    let constant = |name: &str| {
        format!(
            "impl {name} {{\n    /// All numbers 0, and all addresses null.\n    // SAFETY: numbers and addresses, for which zero bytes are values.\n    pub const NONE: Self = unsafe {{ ::std::mem::zeroed() }};\n}}\n"
        )
    };
    names.map(constant).collect()
}

fn generate(root: &Path) -> String {
    let source = bindgen::Builder::default()
        .header(root.join("kernels/args.hpp").to_str().unwrap())
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_arg(format!("-I{}", root.display()))
        .clang_arg(format!("-I{}", root.join("include").display()))
        .allowlist_item("symmetra::kernels::.*")
        .allowlist_item("symmetra::device::(SignalPad|Heap)")
        .newtype_enum("symmetra::kernels::Kind")
        .ctypes_prefix("core::ffi")
        .derive_default(false)
        .generate_comments(false)
        .formatter(Formatter::None)
        .raw_line(HEADER)
        .disable_header_comment()
        .generate()
        .expect("bindgen")
        .to_string()
        .replace("symmetra_kernels_", "")
        .replace("symmetra_device_", "")
        .replace("pub _base", "pub base");
    let blocks: String = launches(root).iter().map(|[name, args, _]| block(name, args)).collect();
    let source = format!("{source}\n{}{TRAIT}{blocks}", none(&source));
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

/// Files and folders that define what ranks write in each other's memory, where, and when: kernels, their launches,
/// which message is which launch, and how arenas and control pages are laid out.
const PROTOCOL_SOURCES: [&str; 28] = [
    "include/symmetra/device",
    "kernels",
    "src/collective/all_reduce/mod.rs",
    "src/collective/copy_engine/mod.rs",
    "src/collective/copy_engine/push.rs",
    "src/collective/copy_engine/words.rs",
    "src/collective/exchange/apart.rs",
    "src/collective/exchange/in_calls.rs",
    "src/collective/exchange/mod.rs",
    "src/collective/all_reduce/launch_plan.rs",
    "src/collective/norm/choice.rs",
    "src/collective/norm/mod.rs",
    "src/collective/pairs.rs",
    "src/collective/select.rs",
    "src/collective/transport.rs",
    "src/collective/turn/first_call.rs",
    "src/experts/choice.rs",
    "src/experts/form.rs",
    "src/experts/packets.rs",
    "src/group/call.rs",
    "src/group/control_page.rs",
    "src/group/history.rs",
    "src/group/identity.rs",
    "src/kernel/geometry.rs",
    "src/memory/layout.rs",
    "src/op/norm/steps.rs",
    "src/op/pairs.rs",
    "src/op/strips.rs",
];

/// A file, or all of a folder, in order.
fn files(path: PathBuf) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path];
    }
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.into_iter().flat_map(files).collect()
}

/// Source without comments, the names that it takes from elsewhere, white space and its module of tests.
fn essence(source: &str) -> String {
    let source = source.split("#[cfg(test)]\n").next().unwrap_or_default();
    let mut essence = String::new();
    let mut used = false; // inside a `use` of several lines
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        used |= ["use ", "pub use ", "pub(crate) use ", "#include"].iter().any(|start| code.starts_with(start));
        if !used {
            essence.extend(code.split_whitespace());
        }
        used &= !code.ends_with(';') && !code.starts_with("#include");
    }
    essence
}

/// FNV-1a: the same on every machine and in every release of Rust.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn the_protocol_is_that_of_its_pinned_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut fresh = String::new();
    for path in PROTOCOL_SOURCES.iter().flat_map(|name| files(root.join(name))) {
        let source = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display();
        writeln!(fresh, "{:016x} {name}", hash(&essence(&source))).unwrap();
    }
    let path = root.join("tests/protocol.txt");
    if std::env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "protocol") {
        std::fs::write(&path, &fresh).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    let unlike = |one: &str, other: &str| -> Vec<String> {
        one.lines().filter(|line| !other.lines().any(|pinned| pinned == *line)).map(str::to_owned).collect()
    };
    assert!(
        fresh == pinned,
        "the protocol's sources changed: raise PROTOCOL (src/group/open.rs) if ranks of the two builds could not work \
         together, then pin the new hash: SYMMETRA_UPDATE=protocol cargo test --test source bindings\n\
         pinned {:#?}\nfound {:#?}",
        unlike(&pinned, &fresh),
        unlike(&fresh, &pinned),
    );
}

#[test]
fn what_is_pinned_is_code_alone() {
    let code = "fn f() {\n    g(1)\n}\n";
    let same = "//! Words.\nuse a::{\n    b, c,\n};\n#include \"x.hpp\"\n\nfn  f() { // words\n  g(1)\n}\n\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(essence(code), essence(same));
    assert_ne!(essence(code), essence(&code.replace('1', "2")));
    assert_ne!(hash(&essence(code)), hash(""));
}
