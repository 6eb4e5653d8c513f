//! Standard output, for data alone.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use crate::failure::Failure;

/// Writes text and a line's end at once.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    line_to(&mut std::io::stdout().lock(), text)
}

/// One object a line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    json_to(&mut std::io::stdout().lock(), value)
}

/// The same to where standard output was before.
pub(crate) fn json_to(out: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    line_to(out, text)
}

fn line_to(out: &mut impl Write, text: impl Display) -> Result<(), Failure> {
    // In one piece: a file of ours is not buffered.
    let text = format!("{text}\n");
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}
