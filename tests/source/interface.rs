//! Rules that keep the public interface extensible: types may get fields and variants in any version, settings are made
//! without literals, and no type of a dependency is public.

use crate::sources::complaints;

const PACKAGES: [&str; 2] = ["src", "crates/ring/src"];

/// Bridges and argument blocks, which no other crate names.
const INNER: [&str; 3] = ["src/kernel/", "src/sys/", "src/capi/"];

/// Types that other crates make or match as a whole, and types that are not public.
const CLOSED: [&str; 9] = ["BroadcastRing", "How", "Version", "Case", "Stretch", "Extent", "Source", "Order", "Target"];

/// A public type with public fields or variants.
struct Open<'a> {
    name: &'a str,
    is_enum: bool,
    /// Attributes and documentation.
    before: &'a str,
    fields: Vec<&'a str>,
}

fn types(source: &str) -> Vec<Open<'_>> {
    let mut found = Vec::new();
    for (keyword, is_enum) in [("\npub struct ", false), ("\npub enum ", true)] {
        for (at, _) in source.match_indices(keyword) {
            let (head, rest) = source[at + keyword.len()..].split_once('\n').unwrap();
            if !head.ends_with('{') {
                continue;
            }
            let name = head.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
            let body = rest.split_once("\n}").map_or("", |(body, _)| body);
            let fields =
                body.lines().filter_map(|line| Some(line.strip_prefix("    pub ")?.split_once(':')?.0)).collect();
            let before = source[..at].rsplit_once("\n\n").map_or(&source[..at], |(_, before)| before);
            if is_enum || !Vec::is_empty(&fields) {
                found.push(Open { name, is_enum, before, fields });
            }
        }
    }
    found
}

/// Whether other crates can create a value.
fn is_made(source: &str, made: &Open<'_>) -> bool {
    let derives = made.before.lines().any(|line| line.starts_with("#[derive(") && line.contains("Default"));
    let by_new = source.split("\nimpl").filter(|block| block.starts_with(&format!(" {} {{", made.name))).any(|block| {
        let block = block.split_once("\n}\n").map_or(block, |(block, _)| block);
        block.contains("    pub fn new(") || block.contains("    pub const fn new(")
    });
    derives || by_new || source.contains(&format!("impl Default for {}", made.name))
}

fn closed(path: &str, source: &str) -> Vec<String> {
    if INNER.iter().any(|inner| path.starts_with(inner)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for open in types(source).iter().filter(|open| !CLOSED.contains(&open.name)) {
        if !open.before.contains("#[non_exhaustive]") {
            found.push(format!("{path}: {} is not #[non_exhaustive]", open.name));
        }
        if open.is_enum || !is_made(source, open) {
            continue;
        }
        let setters = source.split("setters! { ").find(|call| call.starts_with(open.name)).unwrap_or_default();
        let setters = setters.split_once("} }").map_or("", |(fields, _)| fields);
        for field in &open.fields {
            if !setters.split([' ', '\n']).any(|word| word.strip_suffix(':') == Some(field)) {
                found.push(format!("{path}: {} has no setter of {field}", open.name));
            }
        }
    }
    if source.contains(&["From<cxx::", "Exception>"].concat()) {
        found.push(format!("{path}: a conversion from an exception of cxx is public"));
    }
    found
}

#[test]
fn types_stay_open_and_settings_have_setters() {
    assert_eq!(complaints(&PACKAGES, &["rs"], closed), [""; 0]);
}

#[test]
fn closed_types_are_found() {
    let found = |source: &str| closed("src/group/config.rs", source);
    let open =
        "\n#[derive(Default)]\n#[non_exhaustive]\npub struct Sizes {\n    pub heap: u64,\n    pub ring: u64,\n}\n";
    assert_eq!(found(&format!("{open}setters! {{ Sizes {{ heap: u64, ring: u64 }} }}\n")), [""; 0]);
    assert_eq!(found(&format!("{open}setters! {{ Sizes {{ heap: u64 }} }}\n")).len(), 1);
    assert_eq!(found(open).len(), 2);
    assert_eq!(found(&open.replace("#[non_exhaustive]\n", "")).len(), 3);
    assert_eq!(found("\npub struct Result {\n    pub time: u64,\n}\n").len(), 1);
    assert_eq!(found("\npub enum Kind {\n    One,\n}\n").len(), 1);
    assert_eq!(found("\n#[non_exhaustive]\npub enum Kind {\n    One,\n}\n").len(), 0);
    assert_eq!(found("\npub struct Handle {\n    inner: u64,\n}\n").len(), 0);
    assert_eq!(found("impl From<cxx::Exception> for Error {}").len(), 1);
    assert_eq!(closed("src/kernel/args.rs", "\npub struct Block {\n    pub words: u64,\n}\n").len(), 0);
}
