//! Argument blocks and launch shapes of the kernels.
//!
//! [`args`] is the contract with `kernels/args.hpp`. Every layer may use it.

pub(crate) mod args;
pub(crate) mod geometry;
