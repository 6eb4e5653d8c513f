//! Every type that holds something of its process is tried in a forked child: by `tests/forks`, the ring's by
//! `tests/metadata/forks.rs`, NVSHMEM's by `tests/nvshmem.rs`, NCCL's by `tests/unit/nccl`.
//!
//! A type holds something of its process if dropping it does something, if it has a handle of C++, a descriptor, a
//! thread or the process's mark, or if it holds such a type.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{bare, files, tokens};

/// The files that try types, by `refused("Type: what"`.
const TRIED: [&str; 5] =
    ["tests/forks.rs", "tests/forks/", "tests/metadata/forks.rs", "tests/nvshmem.rs", "tests/unit/nccl/"];

/// Public types that are tried as a part of another object, and why.
const APART: [(&str, &str); 29] = [
    ("AnyQueue", "a queue: a stream or a capture"),
    ("Borrowed", "memory, whose stream is refused; of cudarc"),
    ("BroadcastRing", "either end of a ring"),
    ("Capture", "within the closure of a capture: its stream is refused"),
    ("Comm", "a communicator, which is tried; of cudarc"),
    ("Directory", "no call: its drop is tried by tests/forks/objects.rs"),
    ("Combine", "operands, which the call checks"),
    ("EnvConfig", "a device, which is refused"),
    ("Factor", "an operand, which the call checks"),
    ("Lent", "memory, whose stream is refused; of cudarc"),
    ("Mapped", "memory of a session of NVSHMEM, which is tried"),
    ("Messages", "operands, which the call checks"),
    ("Mesh", "a part of a group and of a ring"),
    ("Monitor", "a part of a group and of a ring"),
    ("Op", "a description of an operation"),
    ("Owned", "memory, whose stream is refused; of cudarc"),
    ("Pairs", "operands, which the call checks"),
    ("Received", "operands, which the call checks"),
    ("Recording", "within the closure of a capture: its stream is refused"),
    ("Routing", "operands, which the call checks"),
    ("RowNorm", "operands, which the call checks"),
    ("Scale", "operands, which the call checks"),
    ("Survivors", "experts, which are tried"),
    ("Target", "a queue: a stream or a capture"),
    ("NamedValue", "a tensor, which is tried"),
    ("Tensor", "an operand, which the call checks"),
    ("Untyped", "an operand, which the call checks"),
    ("View", "an operand, which the call checks"),
    ("Window", "for the command alone"),
];

/// Marks of resources that belong to a process.
const OF_PROCESS: [&str; 6] = ["Maker", "UniquePtr", "SharedPtr", "OwnedFd", "TcpListener", "JoinHandle"];

struct Type {
    file: String,
    public: bool,
    /// The words of its fields.
    fields: BTreeSet<String>,
    drops: bool,
}

/// The structs and enums of a file.
fn types(path: &str, source: &str) -> Vec<(String, Type)> {
    let code = bare(source);
    let tokens = tokens(&code);
    let drops: BTreeSet<&str> = tokens
        .iter()
        .enumerate()
        .filter(|(at, token)| **token == "for" && tokens[..*at].last() == Some(&"Drop"))
        .filter_map(|(at, _)| tokens.get(at + 1).copied())
        .collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !matches!(*token, "struct" | "enum") {
            continue;
        }
        let Some(name) = tokens.get(at + 1) else { continue };
        let public = at > 0 && tokens[at - 1] == "pub";
        let (mut depth, mut fields) = (0, BTreeSet::new());
        for here in at + 2..tokens.len() {
            let (before, token) = (tokens[here - 1], &tokens[here]);
            // The name of a variant is no type, and an argument block of a kernel is a number of addresses.
            let variant = tokens[at] == "enum" && depth == 1 && ["{", ",", "]"].contains(&before);
            let block = before == "::" && tokens[here - 2] == "args";
            match *token {
                "{" | "(" => depth += 1,
                "}" | ")" => depth -= 1,
                _ if variant || block => {}
                word => drop(fields.insert(word.to_owned())),
            }
            if depth == 0 && matches!(*token, "}" | ")" | ";") {
                break;
            }
        }
        let drops = drops.contains(name);
        found.push(((*name).to_owned(), Type { file: path.to_owned(), public, fields, drops }));
    }
    found
}

/// The public types that hold something of their process.
fn held(files: &[(String, String)]) -> BTreeSet<String> {
    let all: Vec<(String, Type)> = files.iter().flat_map(|(path, source)| types(path, source)).collect();
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    all.iter().enumerate().for_each(|(at, (name, _))| by_name.entry(name).or_default().push(at));
    let holds = |kind: &Type| kind.drops || OF_PROCESS.iter().any(|mark| kind.fields.contains(*mark));
    let mut held: Vec<bool> = all.iter().map(|(_, kind)| holds(kind)).collect();
    loop {
        let more: Vec<usize> = (0..all.len())
            .filter(|at| !held[*at])
            .filter(|at| {
                let kind = &all[*at].1;
                kind.fields.iter().filter_map(|word| by_name.get(word.as_str())).any(|named| {
                    let here: Vec<usize> =
                        named.iter().copied().filter(|other| all[*other].1.file == kind.file).collect();
                    let meant = if here.is_empty() { named } else { &here };
                    meant.iter().any(|other| held[*other])
                })
            })
            .collect();
        if more.is_empty() {
            break;
        }
        more.into_iter().for_each(|at| held[at] = true);
    }
    let public = all.iter().zip(held).filter(|((_, kind), held)| kind.public && *held);
    public.map(|((name, _), _)| name.clone()).collect()
}

/// The types that tests try.
fn tried() -> BTreeSet<String> {
    let tests =
        files(&["tests"], &["rs"]).into_iter().filter(|(path, _)| TRIED.iter().any(|test| path.starts_with(test)));
    let of = |text: String| {
        let calls: Vec<String> = text.split("refused(\"").skip(1).map(str::to_owned).collect();
        calls.into_iter().filter_map(|call| call.split_once(": ").map(|(kind, _)| kind.to_owned()))
    };
    tests.flat_map(|(_, text)| of(text)).filter(|kind| kind.chars().all(char::is_alphanumeric)).collect()
}

#[test]
fn every_type_of_a_process_is_tried_in_a_forked_child() {
    let inner = ["src/sys/", "src/capi/", "src/kernel/"];
    let mut sources = files(&["src", "crates/ring/src"], &["rs"]);
    sources.retain(|(path, _)| !inner.iter().any(|room| path.starts_with(room)));
    let (held, tried) = (held(&sources), tried());
    let apart: BTreeSet<String> = APART.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing: Vec<&String> = held.iter().filter(|name| !tried.contains(*name) && !apart.contains(*name)).collect();
    assert!(missing.is_empty(), "no test drops and uses these in a forked child: {missing:?}");
    for kind in ["Device", "Communicator", "Coordinator", "Experts", "Writer", "Reader", "Session", "Mixed", "Tcp"] {
        assert!(held.contains(kind) && tried.contains(kind), "{kind}");
    }
    let needless: Vec<&String> = apart.iter().filter(|name| !held.contains(*name) || tried.contains(*name)).collect();
    assert!(needless.is_empty(), "these need no exception: {needless:?}");
}

#[test]
fn types_are_held_by_what_they_hold() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let sources = [
        file("src/a.rs", "pub struct A(Arc<Inner>); struct Inner { raw: UniquePtr<X> }"),
        file("src/b.rs", "pub struct B { a: A } pub(crate) struct C { b: B } struct Inner; pub struct D(Inner);"),
        file(
            "src/e.rs",
            "pub enum E<'a> { One(F<'a>) } struct F<'a>(&'a u8); impl Drop for F<'_> { fn drop(&mut self) {} }",
        ),
        file("src/g.rs", "pub struct G { /* A */ name: String } pub enum H { A, B(u8) } pub struct I(args::A);"),
    ];
    let expected: BTreeSet<String> = ["A", "B", "E"].map(str::to_owned).into();
    assert_eq!(held(&sources), expected);
}
