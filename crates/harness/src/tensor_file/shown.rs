//! Texts of a file in messages.

/// Most bytes of one text of a file.
const MOST_BYTES: usize = 200;

/// Text of a file for a terminal: without control characters, and not longer than [`MOST_BYTES`].
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        let whole = shown.len();
        match letter {
            '\'' | '"' => shown.push(letter),
            _ => shown.extend(letter.escape_debug()),
        }
        if shown.len() > MOST_BYTES {
            shown.truncate(whole);
            shown.push_str("...");
            break;
        }
    }
    shown
}

#[cfg(test)]
#[path = "../../../../tests/harness/unit/shown.rs"]
mod tests;
