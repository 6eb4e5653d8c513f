//! Standard output, for data alone.

use std::io::Write;

use serde::Serialize;

use crate::failure::Failure;

/// Writes text and a line's end at once.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::output)
}

/// One object a line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    line(text)
}
