//! Candidates that take turns on the same operands: ours, and other libraries.

pub mod candidate;
pub mod competitor;
pub mod lockstep;
#[cfg_attr(not(feature = "nccl"), path = "comparison/no_nccl.rs")]
pub mod nccl;
pub mod repeats;
pub mod stopwatch;
pub mod turns;
pub mod work;

/// The root of broadcasts.
pub const ROOT: usize = 0;
