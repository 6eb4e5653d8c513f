//! The parameters with which a group was opened.

use std::sync::Arc;

use crate::backend::{Backend, FinalExchange, GroupBackends, Hosts};

/// The parameters for opening the groups that a group splits into, and for closing a group that belongs to no
/// environment.
pub(super) struct Origin {
    /// The hosts of the world in which the group's ranks are numbered.
    pub(super) hosts: Hosts,
    /// This rank's host.
    pub(super) host: String,
    /// The interface between hosts.
    pub(super) interface: Option<String>,
    /// The only backend, if the configuration names one.
    pub(super) backend: Option<Backend>,
    /// Present for a group that was opened alone.
    pub(super) alone: Option<Alone>,
}

/// The resources that are released when a group that was opened alone is closed.
pub(super) struct Alone {
    pub(super) serving: Arc<GroupBackends>,
    /// The bootstrap of ranks on several hosts.
    pub(super) kept: Option<Arc<FinalExchange>>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Dropping the group waits for the device, where an NCCL kernel may wait forever.
        self.serving.abandon();
    }
}
