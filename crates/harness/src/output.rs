//! Standard output, for data alone; progress on standard error.

use std::fmt::Display;
use std::io::Write;

pub use indicatif::ProgressBar;
use indicatif::{ProgressFinish, ProgressStyle};
use serde::Serialize;

use crate::failure::CommandFailure;

/// Writes text and a line's end at once.
pub fn line(text: impl Display) -> Result<(), CommandFailure> {
    line_to(&mut std::io::stdout().lock(), text)
}

/// One object a line.
pub fn json(value: &impl Serialize) -> Result<(), CommandFailure> {
    json_to(&mut std::io::stdout().lock(), value)
}

/// Writes one object as one line to `out`.
pub fn json_to(out: &mut impl Write, value: &impl Serialize) -> Result<(), CommandFailure> {
    let text =
        serde_json::to_string(value).map_err(|error| CommandFailure::failed(format!("cannot write JSON: {error}")))?;
    line_to(out, text)
}

/// Writes a line about the run to standard error.
pub fn note(text: impl Display) -> Result<(), CommandFailure> {
    line_to(&mut std::io::stderr().lock(), text)
}

fn line_to(out: &mut impl Write, text: impl Display) -> Result<(), CommandFailure> {
    // In one write: our file is not buffered.
    let text = format!("{text}\n");
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CommandFailure::output)
}

/// A progress bar of `steps` steps, hidden unless standard error is a terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let progress = ProgressBar::new(steps).with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}
