//! Candidates that take turns on the same operands: ours, and other libraries.

pub mod competitor;
#[cfg_attr(not(feature = "nccl"), path = "contest/no_nccl.rs")]
pub mod nccl;
pub mod repeats;
pub mod step;
pub mod stopwatch;
pub mod team;
pub mod turns;

/// The root of broadcasts.
pub const ROOT: usize = 0;
