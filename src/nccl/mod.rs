//! NCCL, the general library of collectives, and RCCL, which is the same for AMD GPUs, found at run
//! time (feature `nccl`).
//!
//! Types are cudarc's bindings. The functions are looked up here: cudarc's own loader knows one name
//! for the library and panics where it is missing, and a result code newer than its enumeration
//! would be undefined behaviour.
//!
//! Nothing here reads the environment but NCCL itself, when a [`Communicator`] is made: where NVLink
//! multicast has to stay off, set `NCCL_NVLS_ENABLE=0` before that.

mod communicator;
mod ending;
mod library;
mod opening;
mod session;
mod symbols;
#[cfg(test)]
pub(crate) mod tests;
mod window;

pub use communicator::Communicator;
pub use library::{Library, UniqueId, Version};
pub use window::Window;
