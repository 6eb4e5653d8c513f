//! Code in pages is the text of files that other tests compile.

use std::fs;
use std::path::Path;

/// A page, the language of its blocks, and the files with their text.
const PAGES: [(&str, &str, &[&str]); 2] = [
    ("docs/engines.md", "rust", &["tests/engines/src/lib.rs", "tests/engines/src/recipes.rs"]),
    ("docs/engines.md", "cpp", &["examples/cpp/backends.cc"]),
];

#[test]
fn code_of_pages_is_compiled() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    for (page, language, files) in PAGES {
        let (page, texts): (_, Vec<_>) = (read(page), files.iter().map(|file| read(file)).collect());
        let blocks: Vec<&str> =
            page.split(&format!("```{language}\n")).skip(1).map(|block| block.split_once("```").unwrap().0).collect();
        assert!(!blocks.is_empty());
        for block in blocks {
            assert!(texts.iter().any(|text| text.contains(block)), "{files:?} do not have\n{block}");
        }
    }
}
