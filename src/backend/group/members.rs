//! A group as a bootstrap.

use std::time::Instant;

use super::GroupBackends;
use crate::bootstrap::Bootstrap;
use crate::error::Result;

/// The group as a bootstrap, by which engines exchange addresses and parts of the group meet, and the call in progress.
pub(crate) struct Members<'a>(pub(super) &'a GroupBackends, pub(super) String);

impl Bootstrap for Members<'_> {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn world_size(&self) -> usize {
        self.0.world_size
    }

    fn all_gather(&mut self, bytes: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather_for(&self.1, bytes)
    }

    fn announce(&mut self, call: &str) {
        call.clone_into(&mut self.1);
    }
}
