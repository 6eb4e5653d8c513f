//! Contenders that take turns on the same operands: ours, and other libraries.

pub(crate) mod competitor;
#[cfg_attr(not(feature = "nccl"), path = "contest/no_nccl.rs")]
pub(crate) mod nccl;
pub(crate) mod repeats;
pub(crate) mod step;
pub(crate) mod stopwatch;
pub(crate) mod team;
pub(crate) mod turns;

/// Where data are broadcast from.
pub(crate) const ROOT: usize = 0;
