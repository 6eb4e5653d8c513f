//! How a group was opened.

use std::sync::Arc;

use crate::backend::{Backend, FinalExchange, GroupBackends, Hosts};

/// What opens the groups that a group splits into, and closes a group that is no environment's.
pub(super) struct Origin {
    /// The hosts of the world in which the group's ranks are numbered.
    pub(super) hosts: Hosts,
    /// This rank's host.
    pub(super) host: String,
    /// The interface between hosts.
    pub(super) interface: Option<String>,
    /// The only backend, if one was asked for.
    pub(super) backend: Option<Backend>,
    /// Of a group that was opened alone.
    pub(super) alone: Option<Alone>,
}

/// What ends with a group that was opened alone.
pub(super) struct Alone {
    pub(super) serving: Arc<GroupBackends>,
    /// The bootstrap of ranks on several hosts.
    pub(super) kept: Option<Arc<FinalExchange>>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Dropping the group waits for the device, where an NCCL kernel may wait for ever.
        self.serving.abandon();
    }
}
