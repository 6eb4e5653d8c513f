//! Dispatch and combine of experts by their definitions: nested loops over the experts of all tokens.

pub mod arrivals;
pub mod combine;
pub mod dispatch;
pub mod wire;

#[cfg(test)]
#[path = "../../../../tests/reference/unit/experts.rs"]
mod tests;
