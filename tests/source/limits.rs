//! Limits for the files of the sources: their length, their names, the number of parameters, modules from elsewhere,
//! settings from variables, log lines that may be lost, and documentation that cannot be read alone.

use std::path::{Component, Path, PathBuf};

use crate::sources::{CODE, FOLDERS, bare, complaints, tokens, word};

/// Most lines of a file. Generated files may have more.
const LINES: usize = 500;
/// Most parameters of a function. Parameters of generics are not counted.
const PARAMETERS: usize = 7;

fn size_and_name(path: &str, source: &str) -> Vec<String> {
    let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
    let nothing = ["util", "utils", "common", "helper", "helpers", "manager", "misc"].contains(&name);
    let generated = source.lines().take(3).any(|line| line.starts_with("//! Generated: "));
    let mut complaints = Vec::new();
    if nothing {
        complaints.push(format!("{path}: a name that says nothing"));
    }
    if source.lines().count() > LINES && !generated {
        complaints.push(format!("{path}: {} lines", source.lines().count()));
    }
    complaints
}

#[test]
fn files_are_short_and_named_for_what_they_hold() {
    assert_eq!(complaints(&FOLDERS, &CODE, size_and_name), [""; 0]);
    let long = "int x;\n".repeat(LINES + 1);
    assert_eq!(size_and_name("cpp/core/call.hpp", &long[7..]).len(), 0);
    assert_eq!(size_and_name("cpp/core/call.hpp", &long).len(), 1);
    assert_eq!(size_and_name("src/kernel/args.rs", &format!("//! Generated: by a test\n{long}")).len(), 0);
    assert_eq!(size_and_name("src/kernel/args.rs", &format!("{long}//! Generated: by a test\n")).len(), 1);
    assert_eq!(size_and_name("src/group/util.rs", "").len(), 1);
}

/// The number of parameters in the parentheses that open at `at`, and the code after them.
fn parameters<'a>(tokens: &[&'a str], at: usize) -> (usize, &'a str) {
    let (mut depth, mut angles, mut count, mut filled) = (0, 0_usize, 0, false);
    for (at, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return (count + usize::from(filled), tokens.get(at + 1).copied().unwrap_or_default());
        }
        if *token == "," && depth == 1 && angles == 0 {
            count += 1;
            filled = false;
        } else if depth > 1 || *token != "(" {
            filled = true;
        }
    }
    (0, "")
}

/// Names before parentheses that are no functions.
const STATEMENTS: [&str; 12] = [
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "constexpr",
    "return",
    "sizeof",
    "alignof",
    "decltype",
    "requires",
    "noexcept",
];
/// Words after which a name in C++ is called, not declared.
const CALLS: [&str; 10] = ["return", "co_return", "else", "throw", "new", "case", "and", "or", "not", "do"];

/// The signatures with too many parameters. The type of a pointer to a function of another library is no signature.
fn signatures(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let tokens = tokens(&code);
    let mut complaints = Vec::new();
    let mut check = |name: &str, count: usize| {
        if count > PARAMETERS {
            complaints.push(format!("{path}: {name} has {count} parameters"));
        }
    };
    for (at, name) in tokens.iter().enumerate() {
        if path.ends_with(".rs") {
            if *name != "fn" || tokens.get(at + 1) == Some(&"(") {
                continue;
            }
            let mut angles = 0_i32;
            let open = tokens[at..].iter().position(|token| {
                angles += i32::from(*token == "<") - i32::from(*token == ">");
                angles == 0 && *token == "("
            });
            if let Some(open) = open {
                check(tokens[at + 1], parameters(&tokens, at + open).0);
            }
        } else if tokens.get(at + 1) == Some(&"(")
            && !STATEMENTS.contains(name)
            && (name.starts_with(word) || *name == "]")
        {
            let before = if at == 0 { "" } else { tokens[at - 1] };
            let (count, after) = parameters(&tokens, at + 1);
            let declared = (before.starts_with(word) && !CALLS.contains(&before)) || [">", "*", "&"].contains(&before);
            let defined = [":", "{", "->", "const", "noexcept", "override", "mutable"].contains(&after);
            if (declared && *name != "]") || defined {
                check(name, count);
            }
        }
    }
    complaints
}

#[test]
fn signatures_are_short() {
    assert_eq!(complaints(&FOLDERS, &CODE, signatures), [""; 0]);
    let found = |path: &str, source: &str| signatures(path, source).len();
    assert_eq!(found("src/x.rs", "fn f(&self, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}"), 0);
    assert_eq!(found("src/x.rs", "fn f(&self, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) {}"), 1);
    assert_eq!(
        found(
            "src/x.rs",
            "fn f(\na: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8,\n) -> u8 { h(1, 2, 3, 4, 5, 6, 7, 8) }"
        ),
        0
    );
    assert_eq!(
        found(
            "src/x.rs",
            "fn f<A, B, C, D, E, F: Fn(u8, u8) -> u8>(a: [M<A, B>; 2], c: (C, D), e: fn(E) -> F, _: G<H, I, J>) {}"
        ),
        0
    );
    assert_eq!(found("src/x.rs", "fn f<A: Fn(u8)>(a: A, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) {}"), 1);
    assert_eq!(found("src/x.rs", "type F = unsafe extern \"C\" fn(u8, u8, u8, u8, u8, u8, u8, u8) -> u8;"), 0);
    assert_eq!(found("cpp/x.hpp", "void f(int a, int b, M<int, int> c, int d, int e, int f, int g);"), 0);
    assert_eq!(found("cpp/x.hpp", "void f(int a, int b, int c, int d, int e, int f, int g, int h);"), 1);
    assert_eq!(found("cpp/x.hpp", "std::vector<int> f(int a, int b, int c, int d, int e, int f, int g, int h) {}"), 1);
    assert_eq!(
        found("cpp/x.hpp", "struct X { X(int a, int b, int c, int d, int e, int f, int g, int h) : a_(a) {} };"),
        1
    );
    assert_eq!(
        found("cpp/x.hpp", "auto f = [](int a, int b, int c, int d, int e, int f, int g, int h) { return a; };"),
        1
    );
    assert_eq!(found("cpp/x.cc", "return f(1, 2, 3, 4, 5, 6, 7, 8);\ng(1, 2, 3, 4, 5, 6, 7, 8);"), 0);
}

/// Where a module is taken from elsewhere: only a module of unit tests is, and from their folder.
fn paths_of_modules(path: &str, source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("#[path") || line.contains("#![path")) {
        let target = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"));
        let mut found = PathBuf::new();
        for part in Path::new(path).parent().unwrap().join(target.unwrap_or_default()).components() {
            match part {
                Component::ParentDir => _ = found.pop(),
                part => found.push(part),
            }
        }
        let folder = [
            "tests/unit",
            "tests/bench/unit",
            "tests/cli/unit",
            "tests/harness/unit",
            "tests/metadata/unit",
            "tests/reference/unit",
        ]
        .iter()
        .any(|folder| found.starts_with(folder));
        let around = |step: isize| lines.get(at.wrapping_add_signed(step)).copied().unwrap_or_default();
        let for_tests = around(-1).starts_with("#[cfg(test)]") || around(-1).starts_with("#[cfg(all(test, ");
        let module = ["mod tests;", "pub(crate) mod tests;"].contains(&around(1));
        if !(folder && for_tests && module) {
            complaints.push(format!("{path}: {line}"));
        }
    }
    complaints
}

#[test]
fn only_unit_tests_are_elsewhere() {
    assert_eq!(complaints(&["src", "crates"], &["rs"], paths_of_modules), [""; 0]);
    let found = |path: &str, source: &str| paths_of_modules(path, source).len();
    let group = "src/group/open.rs";
    assert_eq!(found(group, "#[cfg(test)]\n#[path = \"../../tests/unit/group/open.rs\"]\nmod tests;"), 0);
    assert_eq!(found(group, "#[path = \"../../tests/unit/group/open.rs\"]\nmod tests;"), 1);
    assert_eq!(found(group, "#[cfg(test)]\n#[path = \"../../tests/unit/group/open.rs\"]\nmod other;"), 1);
    assert_eq!(found(group, "#[cfg(test)]\n#[path = \"../tests/unit/group/open.rs\"]\nmod tests;"), 1);
    assert_eq!(found(group, "#[cfg(test)]\n#[path = \"../memory/arena.rs\"]\nmod tests;"), 1);
    let cli = "crates/cli/src/bytes.rs";
    assert_eq!(found(cli, "#[cfg(test)]\n#[path = \"../../../tests/cli/unit/bytes.rs\"]\nmod tests;"), 0);
}

/// The files that may read environment variables, on request of the caller.
const ENVIRONMENT: [&str; 5] =
    ["src/bootstrap/tcp.rs", "crates/cli/src/", "crates/harness/src/", "src/log.rs", "src/variables/"];

/// Where a file reads variables without its caller's request.
fn variables(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let reads =
        ["env::var", "env::vars", "getenv", "var_os", "option_env"].into_iter().filter(|read| code.contains(read));
    let allowed = ENVIRONMENT.iter().any(|start| path.starts_with(start));
    reads.filter(|_| !allowed).map(|read| format!("{path}: {read}")).collect()
}

#[test]
fn pitfall_36_no_variable_overrides_a_setting() {
    assert_eq!(complaints(&FOLDERS, &CODE, variables), [""; 0]);
    assert_eq!(variables("src/group/config.rs", "let bytes = std::env::var(\"HEAP\");").len(), 1);
    assert_eq!(variables("cpp/device/open.cc", "if (getenv(name)) {}").len(), 1);
    // Every setting is printed, so the effective settings can be seen.
    let printed = symmetra::Config::default().entries(2).len();
    let debug = format!("{:?}", symmetra::Config::default());
    let settings = debug.matches(": ").count() - 1; // the deadlines are three, in a struct
    assert_eq!(printed, settings, "{debug}");
}

/// The only file that logs by `tracing`, and the root, which re-exports `tracing` for that file's macro.
const LOG: [&str; 2] = ["src/log.rs", "src/lib.rs"];

/// Where a file logs past `log!`: a line would be lost where the program has no subscriber.
fn lines_past_the_log(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let past = tokens(&code).iter().any(|token| token.starts_with("tracing"));
    (past && !LOG.contains(&path)).then(|| format!("{path}: logs past log!")).into_iter().collect()
}

#[test]
fn every_line_of_the_log_reaches_somebody() {
    assert_eq!(complaints(&["src", "crates"], &["rs"], lines_past_the_log), [""; 0]);
    assert_eq!(lines_past_the_log("src/group/open.rs", "fn f() { tracing::warn!(\"late\"); }").len(), 1);
    assert_eq!(lines_past_the_log("src/group/open.rs", "fn f() { crate::log!(WARN, \"late\"); }").len(), 0);
}

/// Beginnings of documentation that cannot be understood without the item before it.
const LEANING: [&str; 6] = ["the same", "as above", "as before", "likewise", "ditto", "see above"];

/// Documentation that cannot be read alone.
fn leaning(path: &str, source: &str) -> Vec<String> {
    let text = |line: &str| {
        let marks =
            ["///<", "///", "//!"].into_iter().find_map(|mark| line.find(mark).map(|at| &line[at + mark.len()..]));
        marks.map(|text| text.trim().to_lowercase())
    };
    let mut complaints = Vec::new();
    let mut before = false;
    for line in source.lines() {
        let text = text(line);
        let first = text.as_ref().filter(|_| !before || line.contains("///<"));
        if first.is_some_and(|text| LEANING.iter().any(|words| text.starts_with(words))) {
            complaints.push(format!("{path}: {}", line.trim()));
        }
        before = text.is_some();
    }
    complaints
}

#[test]
fn documentation_of_an_item_can_be_read_alone() {
    assert_eq!(complaints(&FOLDERS, &CODE, leaning), [""; 0]);
    let found = |source: &str| leaning("src/op/cut.rs", source).len();
    assert_eq!(found("/// The same for a slice.\nfn f() {}\n/// As above.\nfn g() {}"), 2);
    assert_eq!(found("//! Likewise."), 1);
    assert_eq!(found("uint32_t first;   ///< of a block\nuint32_t last;    ///< the same of a grid"), 1);
    assert_eq!(found("/// Two ranks that have\n/// the same device.\nfn f() {}"), 0);
    assert_eq!(found("let text = \"as above\"; // as above"), 0);
}
