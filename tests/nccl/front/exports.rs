//! The dynamic symbols of the library.

use std::collections::BTreeSet;
use std::process::Command;

/// The names of NCCL, one a line.
const NAMES: &str = include_str!("../../../crates/nccl/symbols.txt");

fn readelf(option: &str) -> String {
    let output = Command::new("readelf").args([option, "--wide"]).arg(crate::library::path()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Every name by both prefixes, the library's own names, and nothing else.
#[test]
fn the_library_exports_the_names_and_nothing_else() {
    let text = readelf("--dyn-syms");
    let defined = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.len() == 8 && fields[4] == "GLOBAL" && fields[6] != "UND").then(|| fields[7].to_owned())
    });
    let found: BTreeSet<String> = defined.collect();
    let mut names: BTreeSet<String> = ["symmetra_nccl_front", "symmetra_nccl_served"].map(String::from).into();
    for name in NAMES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        names.insert(format!("nccl{name}"));
        names.insert(format!("pnccl{name}"));
    }
    let missing: Vec<_> = names.difference(&found).collect();
    let more: Vec<_> = found.difference(&names).collect();
    assert!(missing.is_empty() && more.is_empty(), "missing: {missing:?}, more: {more:?}");
}

/// Programs look for the name `libnccl.so.2`, and the library is never unloaded.
#[test]
fn programs_find_the_library_by_the_name_of_nccl() {
    let text = readelf("--dynamic");
    assert!(text.contains("Library soname: [libnccl.so.2]"), "{text}");
    assert!(text.contains("NODELETE") && text.contains("SYMBOLIC"), "{text}");
    assert!(!text.contains("libcuda") && !text.contains("libnccl.so.2]\n 0x0000000000000001"), "{text}");
}
