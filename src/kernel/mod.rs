//! Argument blocks and launch shapes of the kernels.
//!
//! [`args`] is the contract with `kernels/args.hpp`. Every layer may use it.

pub(crate) mod args;
pub(crate) mod expert_block;
pub(crate) mod geometry;

/// Bytes of a packet, which a thread moves at once. Multicast accesses have this size and alignment too.
pub(crate) const PACKET_BYTES: usize = 16;
