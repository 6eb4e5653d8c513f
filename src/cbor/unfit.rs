//! The reason why a value cannot be written or read, and the place in the value.

use std::fmt;

/// The most parts of a place in a message.
const MOST_PARTS: usize = 16;

/// An error with its place in the value.
#[derive(Debug)]
pub(super) struct UnfitValue {
    /// A description of the value.
    value: String,
    /// The reason for the refusal.
    limit: String,
    /// The parts of the place, the innermost first.
    place: Vec<String>,
}

impl UnfitValue {
    pub(super) fn new(value: impl Into<String>, limit: impl Into<String>) -> Self {
        Self { value: value.into(), limit: limit.into(), place: Vec::new() }
    }

    /// The error of a value inside another value, in which it is at `part`.
    pub(super) fn inside(mut self, part: impl FnOnce() -> String) -> Self {
        self.place.push(part());
        self
    }

    /// A description of the value, with its place.
    pub(super) fn value(&self) -> String {
        if self.place.is_empty() {
            return self.value.clone();
        }
        let more = if self.place.len() > MOST_PARTS { "..." } else { "" };
        let place: String = self.place.iter().rev().take(MOST_PARTS).map(String::as_str).collect();
        format!("{} at `{place}{more}`", self.value)
    }

    /// The reason for the refusal.
    pub(super) fn limit(&self) -> &str {
        &self.limit
    }
}

impl fmt::Display for UnfitValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.limit)
    }
}

impl std::error::Error for UnfitValue {}

impl serde::ser::Error for UnfitValue {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new("unfit", message.to_string())
    }
}

impl serde::de::Error for UnfitValue {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new("unfit", message.to_string())
    }
}
