//! NCCL, and RCCL, its counterpart for AMD GPUs. The library is loaded at run time (feature `nccl`).
//!
//! The types and the loader are hand-written. A dependency on bindings of NCCL would decide for the whole build how the
//! library is linked. The loader of cudarc knows one name for the library and panics if the library is missing, and a
//! result code newer than its enumeration would be undefined behaviour.
//!
//! Only NCCL itself reads the environment, when a [`Communicator`] is created. If NVLink multicast must stay off, set
//! `NCCL_NVLS_ENABLE=0` before that.

mod communicator;
mod ending;
mod library;
mod opening;
mod session;
mod symbols;
#[cfg(test)]
#[path = "../../tests/unit/nccl/mod.rs"]
pub(crate) mod tests;
mod window;

pub use communicator::Communicator;
pub use library::{Library, UniqueId, Version};
pub use window::Window;
