//! The words of comments, documents and messages: plain English, as `CONTRIBUTING.md` asks. Sentences with a verb of speech for
//! data, or with a pronoun in place of a noun, are refused.

use std::sync::LazyLock;

use regex::Regex;

use crate::sources::{CODE, files, root};

/// Phrases that a plain sentence does without.
static REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    let phrases = [
        // Verbs of speech.
        r"\b(?:tell|tells|telling|told|hear|hears|hearing|heard|greet\w*)\b",
        r"\b(?:say|says|saying|said)\b",
        // A pronoun in place of a noun.
        r"\b(?:[Ww]hoever|[Ww]hatever|nobody|Nobody)\b",
        r"\b[Tt]he ones?\b",
        r"\bof (?:few|nobody|what|those|whom)\b",
        // Negated existence.
        r"\b(?:that|than|as|what) there (?:is|are|was|were)\b",
        r"\bthere (?:is|are|was|were) not\b",
        r"\b(?:of|for) nothing\b",
        r"\bso many\b",
        // Places in place of order and company.
        r"\b(?:beside|besides|behind|ahead)\b",
    ];
    Regex::new(&phrases.join("|")).unwrap()
});

/// A sentence that starts with a relative pronoun.
static RELATIVE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[.;:!?] )(?:Who|Those|What)\b[^.?]*\??").unwrap());

static CODE_SPAN: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());

static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"(?:^|[^:"'])//[/!]?<? ?(.*)"#).unwrap());

static MESSAGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)""#).unwrap());

/// The phrases of a text that are refused.
fn refused(text: &str) -> Vec<String> {
    let text = CODE_SPAN.replace_all(text, "``");
    let relative = RELATIVE.find_iter(&text).filter(|found| !found.as_str().ends_with('?'));
    REFUSED.find_iter(&text).chain(relative).map(|found| found.as_str().trim().to_owned()).collect()
}

/// The comments of a line of code, and the strings that are sentences. Tests quote the messages of others.
fn texts<'a>(path: &str, line: &'a str) -> Vec<&'a str> {
    let comment = COMMENT.captures(line);
    let code = comment.as_ref().map_or(line, |found| &line[..found.get(0).unwrap().start()]);
    let messages = MESSAGE.captures_iter(code).map(|found| found.get(1).unwrap().as_str());
    let messages = messages.filter(|text| !path.starts_with("tests/") && text.contains(' '));
    let mut texts: Vec<&str> = messages.collect();
    texts.extend(comment.map(|found| found.get(1).unwrap().as_str()));
    texts
}

fn in_code(path: &str, source: &str) -> Vec<String> {
    let of_line = |(number, line): (usize, &str)| {
        let found: Vec<String> = texts(path, line).into_iter().flat_map(refused).collect();
        found.into_iter().map(|phrase| format!("{path}:{}: {phrase}", number + 1)).collect::<Vec<_>>()
    };
    source.lines().enumerate().flat_map(of_line).collect()
}

fn in_document(path: &str, text: &str) -> Vec<String> {
    let (mut found, mut block) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if !block {
            found.extend(refused(line).into_iter().map(|phrase| format!("{path}:{}: {phrase}", number + 1)));
        }
    }
    found
}

/// Documents that list refused words.
const LISTS: [&str; 2] = ["CONTRIBUTING.md", "docs/glossary.md"];

#[test]
fn words_are_plain() {
    let mut found = Vec::new();
    for (path, source) in files(&["kernels", "include", "cpp", "src", "crates", "tests", "examples"], &CODE) {
        if path != "tests/source/words.rs" {
            found.extend(in_code(&path, &source));
        }
    }
    let mut documents = files(&["docs", "tests", "examples"], &["md"]);
    documents.extend(
        ["README.md", "ARCHITECTURE.md", "PERFORMANCE.md", "CHANGELOG.md", "SECURITY.md"]
            .map(|name| (name.to_owned(), std::fs::read_to_string(root().join(name)).unwrap())),
    );
    for (path, text) in documents.into_iter().filter(|(path, _)| !LISTS.contains(&path.as_str())) {
        found.extend(in_document(&path, &text));
    }
    assert!(found.is_empty(), "{} phrases:\n{}", found.len(), found.join("\n"));
}

#[test]
fn phrases_are_found() {
    for (text, phrases) in [
        ("A kernel tells its peers.", &["tells"][..]),
        ("Rows that there are not. Who waits?", &["that there are"]),
        ("First. What is left stays.", &[". What is left stays"]),
        ("`tell` is a name", &[]),
        ("the rows behind so many others", &["behind", "so many"]),
    ] {
        assert_eq!(refused(text), phrases, "{text}");
    }
    assert_eq!(in_code("src/a.rs", "f(\"it says so\"); // a plain comment\n"), ["src/a.rs:1: says"]);
    assert_eq!(in_code("tests/a.rs", "f(\"it says so\"); // told\n"), ["tests/a.rs:1: told"]);
    assert_eq!(in_document("a.md", "Told.\n```\ntold\n```\nso many\n"), ["a.md:5: so many"]);
}
