//! NVSHMEM in the commands: the environment variables of ranks, and a session.

#[cfg_attr(not(feature = "nvshmem"), path = "nvshmem/absent.rs")]
mod heap;

pub use heap::{Heap, describe};

/// The variables with which NVSHMEM works on one host without multicast and without a network adapter.
/// With the last, symmetric memory can be mapped into its heap.
const VARIABLES: [(&str, &str); 4] = [
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("NVSHMEM_REMOTE_TRANSPORT", "none"),
    ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo"),
    ("NVSHMEM_CUMEM_GRANULARITY", "2097152"),
];

/// The variables of `VARIABLES` that this process does not have.
pub fn variables() -> Vec<(&'static str, &'static str)> {
    VARIABLES.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect()
}
