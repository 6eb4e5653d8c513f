//! Limits for the files of the sources: their length, their names, parameters and lines of functions, modules from elsewhere,
//! settings from variables, log lines that may be lost, and documentation that cannot be read alone.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::sources::{CODE, CPP, FOLDERS, bare, complaints, tokens};

/// Most lines of a file. Generated files may have more.
const LINES: usize = 500;
/// Most parameters of a function.
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

/// The parameters of a list whose parenthesis was opened before `text`, and the code after the list. Elements of a tuple
/// pattern are parameters.
fn parameters(text: &str) -> (usize, &str) {
    let (mut depth, mut angles, mut count, mut filled, mut before) = (1, 0_usize, 0, false, '(');
    let mut pattern = false;
    for (at, letter) in text.char_indices() {
        match letter {
            ')' if depth == 1 => return (count + usize::from(filled), text[at + 1..].trim_start()),
            '(' | '[' | '{' => {
                pattern |= letter == '(' && !filled;
                depth += 1;
            }
            ')' | ']' | '}' => {
                depth -= 1;
                pattern &= depth > 1;
            }
            '<' => angles += 1,
            '>' if before != '-' => angles = angles.saturating_sub(1),
            _ => {}
        }
        if letter == ',' && (depth == 1 && angles == 0 || depth == 2 && pattern) {
            count += usize::from(filled);
            filled = false;
        } else if !letter.is_whitespace() && letter != '(' {
            filled = true;
        }
        before = letter;
    }
    (0, "")
}

/// The names before the parameters of functions, of C++ and of Rust.
static NAMES: LazyLock<[Regex; 2]> =
    LazyLock::new(|| [r"(\w+|\])()\(", r"\bfn (\w+)(<|\()"].map(|name| Regex::new(name).unwrap()));

/// The definitions with too many parameters. Clippy counts the parameters of Rust alone, and a tuple pattern as one.
fn signatures(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let rust = path.ends_with(".rs");
    let mut complaints = Vec::new();
    for found in NAMES[usize::from(rust)].captures_iter(&code) {
        let mut list = &code[found.get(0).unwrap().end()..];
        if &found[2] == "<" {
            let mut angles = 1;
            let ends = |(at, letter): (usize, char)| {
                angles += i32::from(letter == '<') - i32::from(letter == '>' && !list[..at].ends_with('-'));
                (angles == 0 && letter == '(').then_some(at + 1)
            };
            list = &list[list.char_indices().find_map(ends).unwrap_or(list.len())..];
        }
        let (count, after) = parameters(list);
        let starts = ["{", ":", "->", "const", "noexcept", "override", "mutable"];
        let defined = rust || starts.iter().any(|start| after.starts_with(start));
        // A function of HIP's runtime.
        if defined && count > PARAMETERS && !found[1].ends_with("hipRegisterFunction") {
            complaints.push(format!("{path}: {} has {count} parameters", &found[1]));
        }
    }
    complaints
}

#[test]
fn signatures_are_short() {
    let tuples = signatures_of_tuples();
    let found = complaints(&FOLDERS, &CODE, signatures);
    let new: Vec<&String> = found.iter().filter(|complaint| !tuples.contains(&complaint.as_str())).collect();
    assert_eq!(new, [""; 0]);
    let count = |path: &str, list: &str| signatures(path, list).len();
    let rust = |list: &str| count("src/x.rs", &format!("fn f{list} -> u8 {{ h(1, 2, 3, 4, 5, 6, 7, 8) }}"));
    assert_eq!(rust("(&self, b: u8, c: u8, d: u8, e: u8, f: u8,\ng: u8,\n)"), 0);
    assert_eq!(rust("(&self, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8)"), 1);
    assert_eq!(rust("<A: Fn(u8) -> u8, B>(a: [M<A, B>; 2], c: (C, D), e: fn(E, E, E, E, E) -> F, _: G<H, I, J>)"), 0);
    assert_eq!(rust("(a: u8, b: u8, (c, d): (u8, u8), (e, (f, _)): (u8, (u8, u8)), g: u8)"), 0);
    assert_eq!(rust("(a: u8, b: u8, (c, d): (u8, u8), (e, f, g, h): T)"), 1);
    assert_eq!(count("src/x.rs", "type F = unsafe extern \"C\" fn(u8, u8, u8, u8, u8, u8, u8, u8) -> u8;"), 0);
    let cpp = |text: &str| count("cpp/x.hpp", text);
    assert_eq!(cpp("void f(int a, int b, M<int, int> c, int d, int e, int f, int g) {}"), 0);
    assert_eq!(cpp("void f(int a, int b, int c, int d, int e, int f, int g, int h) const {}"), 1);
    assert_eq!(cpp("auto f = [](int a, int b, int c, int d, int e, int f, int g, int h) { return a; };"), 1);
    assert_eq!(cpp("return f(1, 2, 3, 4, 5, 6, 7, 8);\ng(1, 2, 3, 4, 5, 6, 7, 8);"), 0);
}

/// Signatures whose tuple patterns hide parameters: each is to get a struct, and none may be added.
fn signatures_of_tuples() -> [&'static str; 2] {
    ["crates/harness/src/form.rs: algorithm has 9 parameters", "src/nccl/communicator.rs: reduce has 8 parameters"]
}

/// Most lines of a function of C++. The longest are kernels, whose phases wait for peers and are read as a whole.
const FUNCTION_LINES: usize = 145;

/// The functions of C++ that are too long, by the indentation of clang-format.
fn long_functions(path: &str, source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let types = ["namespace", "class ", "struct ", "enum ", "union ", "extern ", "template "];
    let opens = |line: &&str| line.ends_with('{') && !types.iter().any(|start| line.trim_start().starts_with(start));
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| opens(line)) {
        let closes = |end: &&str| indent(end) == indent(line) && end.trim_start().starts_with('}');
        let length = lines[at + 1..].iter().position(closes).map_or(0, |lines| lines + 2);
        // A class whose bases stand alone in a line has access specifiers.
        let is_type = lines[at..at + length].iter().any(|line| [" public:", " private:"].contains(line));
        if length > FUNCTION_LINES && !is_type {
            complaints.push(format!("{path}: {length} lines from {}", line.trim()));
        }
    }
    complaints
}

#[test]
fn functions_of_cpp_are_short() {
    assert_eq!(complaints(&FOLDERS, &CPP, long_functions), [""; 0]);
    let of = |lines: usize| format!("namespace a {{\nvoid f() {{\n{}}}\n}}\n", "  int x;\n".repeat(lines - 2));
    assert_eq!(long_functions("cpp/x.cc", &of(FUNCTION_LINES)).len(), 0);
    assert_eq!(long_functions("cpp/x.cc", &of(FUNCTION_LINES + 1)).len(), 1);
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
const ENVIRONMENT: [&str; 6] = [
    "src/bootstrap/tcp.rs",
    "crates/cli/src/",
    "crates/harness/src/",
    "crates/nccl/src/variables.rs",
    "src/log.rs",
    "src/variables/",
];

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

/// The only file that logs by `tracing`, the root, which re-exports `tracing` for that file's macro, and the spans of calls.
const LOG: [&str; 3] = ["src/log.rs", "src/lib.rs", "src/collective/turn/mark.rs"];

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
