//! Reads the sources: the files of a folder, their code without comments and strings, their tokens.

use std::path::{Path, PathBuf};

/// All sources of the library and its packages.
pub(crate) const FOLDERS: [&str; 5] = ["kernels", "include", "cpp", "src", "crates"];
/// Endings of files that hold C++.
pub(crate) const CPP: [&str; 7] = ["hpp", "cuh", "cc", "cu", "hip", "h", "def"];
/// Endings of files that hold code.
pub(crate) const CODE: [&str; 8] = ["rs", "hpp", "cuh", "cc", "cu", "hip", "h", "def"];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a folder with one of these endings: the path from the root, and the text.
pub(crate) fn files(folders: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    fn walk(folder: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("target") => {}
                true => walk(path, found),
                false => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    folders.iter().for_each(|folder| walk(root().join(folder), &mut found));
    found.retain(|path| path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)));
    found.sort();
    assert!(found.len() > 10, "only {found:?}");
    let named = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), text)
    };
    found.into_iter().map(named).collect()
}

/// The complaints of `check` about the files below these folders, one file after the other.
pub(crate) fn complaints(folders: &[&str], endings: &[&str], check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    files(folders, endings).iter().flat_map(|(path, source)| check(path, source)).collect()
}

/// Code without comments and strings, so that words in them do not count as names.
pub(crate) fn bare(source: &str) -> String {
    let (mut bare, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' && !bare.ends_with('\'') && !bare.ends_with("#include ") {
            closing_quote(rest)
        } else {
            0
        };
        match skip {
            0 => {
                bare.push(first);
                rest = &rest[first.len_utf8()..];
            }
            _ => rest = &rest[skip..],
        }
    }
    bare
}

/// Where the string that `text` begins with has ended.
fn closing_quote(text: &str) -> usize {
    let mut escaped = true; // the opening quote
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => return at + 1,
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Words, `::`, `->`, `=>`, and every other sign alone.
pub(crate) fn tokens(code: &str) -> Vec<&str> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if word(first) {
            rest.find(|letter| !word(letter)).unwrap_or(rest.len())
        } else if ["::", "->", "=>"].iter().any(|sign| rest.starts_with(sign)) {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        at += length;
    }
    tokens
}

pub(crate) fn word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
