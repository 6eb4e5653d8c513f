//! *How*: argument blocks and launch shapes of the kernels. Names no stage.
//!
//! [`args`] is the contract with `kernels/args.hpp` and may be read by every stage.

pub(crate) mod args;
pub(crate) mod geometry;
