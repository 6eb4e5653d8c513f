//! The commands that README.md and docs/*.md show.

use std::fmt;
use std::fs;
use std::path::Path;

/// Where a document shows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A block of code: a line that users copy.
    Block,
    /// The column `command` of a table, without the program's name.
    Table,
    /// A sentence, which may leave out what a command requires.
    Sentence,
}

/// A command with its arguments, as a document has it.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) document: String,
    pub(crate) place: Place,
    pub(crate) args: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: `symmetra {}`", self.document, self.args)
    }
}

/// The placeholders of values that users choose, and such values.
const PLACEHOLDERS: [(&str, &[&str]); 11] = [
    ("CODEC", &["fp8", "int8", "int6", "int4"]),
    ("DIM", &["0", "1", "2"]),
    ("N", &["2"]),
    ("OPERATION", &["all-reduce-all-gather", "reduce-scatter-all-reduce"]),
    ("E,K,H", &["8,2,64"]),
    ("T", &["16"]),
    ("W", &["4"]),
    ("OP", &["all-reduce", "reduce-scatter", "reduce-scatter-all-gather"]),
    ("FORMAT", &["mxfp8"]),
    ("FILE", &["tuning.json"]),
    ("...", &["all-gather", "reduce-scatter"]),
];

/// Every command of a program, with each value of its placeholders.
pub(crate) fn all(program: &str) -> Vec<Shown> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let of_page = |path: &std::path::PathBuf| {
        let document = path.file_name().unwrap().to_string_lossy().into_owned();
        of_text(program, &fs::read_to_string(path).unwrap())
            .into_iter()
            .flat_map(|(place, args)| filled(&args).into_iter().map(move |args| (place, args)))
            .map(|(place, args)| Shown { document: document.clone(), place, args })
            .collect::<Vec<_>>()
    };
    pages.iter().flat_map(of_page).collect()
}

/// The commands of a program in a text, placeholders and all.
fn of_text(program: &str, text: &str) -> Vec<(Place, String)> {
    let named = format!("{program} ");
    let starts = match program {
        "symmetra" => [named.clone(), "cargo run --release -- ".to_owned()],
        _ => [named.clone(), format!("cargo run --release -p {program} -- ")],
    };
    let (mut found, mut sentences, mut block, mut is_table) = (Vec::new(), String::new(), false, false);
    let mut begun = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            begun.push_str(line.trim().trim_end_matches('\\'));
            if !line.ends_with('\\') {
                let line = std::mem::take(&mut begun);
                let args = starts.iter().find_map(|start| line.strip_prefix(start.as_str()));
                found.extend(args.map(|args| (Place::Block, words(args))));
            }
        } else if line.starts_with('|') {
            let last = line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
            is_table = last.trim() == "command" || (is_table && !last.is_empty());
            if is_table && program == "symmetra" {
                found.extend(spans(last).map(|args| (Place::Table, words(args))));
            } else {
                sentences.push_str(line);
            }
        } else {
            is_table = false;
            sentences.push_str(line);
            sentences.push(' ');
        }
    }
    found.extend(
        spans(&sentences).filter_map(|span| Some((Place::Sentence, words(span.strip_prefix(named.as_str())?)))),
    );
    found
}

/// The texts in backquotes.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Without a comment, and with single spaces.
fn words(args: &str) -> String {
    args.split_whitespace().take_while(|word| *word != "#").collect::<Vec<_>>().join(" ")
}

/// The arguments with each value of their placeholders.
fn filled(args: &str) -> Vec<String> {
    let mut all = vec![args.to_owned()];
    for (name, values) in PLACEHOLDERS {
        if args.split(' ').any(|word| word == name) {
            let fill = |args: &String, value: &str| {
                args.split(' ').map(|word| if word == name { value } else { word }).collect::<Vec<_>>().join(" ")
            };
            all = all.iter().flat_map(|args| values.iter().map(move |value| fill(args, value))).collect();
        }
    }
    all
}

#[test]
fn commands_are_found_wherever_they_stand() {
    let text = "Run `symmetra info\n--tp 2` and `other`.\n\n```sh\nsymmetra all-reduce -n 2 \\\n  --graph   # fast\nls\n```\n\n\
                | what | command |\n|---|---|\n| sum | `all-reduce`, `reduce --root N` |\n\nBut `N` is no command.\n";
    let found = of_text("symmetra", text);
    let expected = [
        (Place::Block, "all-reduce -n 2 --graph"),
        (Place::Table, "all-reduce"),
        (Place::Table, "reduce --root N"),
        (Place::Sentence, "info --tp 2"),
    ];
    assert_eq!(found, expected.map(|(place, args)| (place, args.to_owned())));
    assert_eq!(filled("reduce --root N --along DIM").len(), 3);
    assert_eq!(filled("reduce --root N"), ["reduce --root 2"]);
}
