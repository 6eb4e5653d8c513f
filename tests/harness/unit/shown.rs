//! Tests of `crates/harness/src/tensor_file/shown.rs`, whose module they are.

use super::*;

#[test]
fn a_text_cannot_steer_a_terminal_nor_fill_it() {
    assert_eq!(shown("layers.0.weight '<f4' \"x\" \u{e9}"), "layers.0.weight '<f4' \"x\" \u{e9}");
    assert_eq!(shown("\u{1b}[2Jgone\r\n\0"), "\\u{1b}[2Jgone\\r\\n\\0");
    assert_eq!(shown("\u{202e}back"), "\\u{202e}back");
    assert_eq!(shown(&"x".repeat(MOST_BYTES)), "x".repeat(MOST_BYTES));
    assert_eq!(shown(&"x".repeat(5000)), "x".repeat(MOST_BYTES) + "...");
    // Neither an escape nor a letter of several bytes is cut.
    let wide = shown(&("x".repeat(MOST_BYTES - 1) + "\u{e9}\u{e9}"));
    assert_eq!(wide, "x".repeat(MOST_BYTES - 1) + "...");
    assert!(shown(&"\u{1b}".repeat(5000)).ends_with("\\u{1b}..."));
}
