//! Collective calls of the host: exchanges of bytes among all ranks.

use std::time::Instant;

use super::Group;
use crate::bootstrap::mesh::Mesh;
use crate::bootstrap::{Bootstrap, until};
use crate::error::{Error, HOST_CALL, Result};

impl Group {
    /// Blocks until every rank has called it. Does not wait for work on streams.
    ///
    /// # Errors
    /// The group's error; [`Error::Timeout`] after `deadlines.open`; [`Error::Mismatch`] with both names if a rank
    /// makes another host-side collective call.
    pub fn barrier(&self) -> Result<()> {
        self.all_gather_for("barrier", &[]).map(drop)
    }

    /// Gathers `bytes` from every rank, in rank order; lengths may differ. Collective; blocks.
    ///
    /// # Errors
    /// The group's error; [`Error::Timeout`] after `deadlines.open`.
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.all_gather_for("gather bytes", bytes)
    }

    /// Gathers `bytes` from every rank for the collective call named `call`.
    pub(crate) fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.all_gather_by(until(self.0.config.deadlines.open), call, bytes)
    }

    /// As [`all_gather_for`](Self::all_gather_for), with a deadline before that of the group.
    pub(crate) fn all_gather_by(&self, earlier: Instant, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(|mesh, deadline| {
            mesh.announce(call);
            mesh.all_gather(bytes, deadline.min(earlier))
        })
    }

    /// Runs a host-side collective exchange. Its failure becomes the group's failure, and a failure of the group ends
    /// it.
    #[doc(hidden)]
    pub fn exchange<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        self.check()?;
        self.exchange_heeding(run)
    }

    pub(super) fn exchange_heeding<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        let health = self.0.health.clone();
        self.exchange_unchecked(|mesh, deadline| {
            mesh.heed(Some(Box::new(move || health.check())));
            let result = run(mesh, deadline);
            mesh.heed(None);
            result.map_err(|error| self.reason_of(error, !mesh.has_failed()))
        })
    }

    /// The reason why an exchange failed with `error`. A rank that received the group's failure passes it on as its own
    /// error, or has already left. The group's failure is more precise: it has the operation, and the rank that found
    /// it. If the ranks `agreed` in an exchange that succeeded, the result is not a consequence of a lost or late rank.
    pub(super) fn reason_of(&self, error: Error, agreed: bool) -> Error {
        match (&error, self.0.health.check()) {
            (Error::Peer { .. }, Err(Error::PeerLost { .. } | Error::Timeout { .. })) if agreed => error,
            // A notice that a peer passed on has the rank that waited; the group's failure has the rank for which it
            // waited.
            (
                Error::Peer { .. } | Error::PeerLost { .. } | Error::Timeout { .. } | Error::Aborted { .. },
                Err(failure),
            ) => failure,
            _ => error,
        }
    }

    /// Runs a host-side collective exchange while the group closes, without the check that it is open.
    pub(crate) fn exchange_unchecked<T>(&self, run: impl FnOnce(&mut Mesh, Instant) -> Result<T>) -> Result<T> {
        let deadline = until(self.0.config.deadlines.open);
        let result = run(&mut self.0.mesh.lock(), deadline);
        let health = &self.0.health;
        let failed = |error| match error {
            Error::PeerLost { rank, .. } if health.pages.get(rank).is_some_and(|page| page.has_left()) => {
                health.fail(health.gone(rank))
            }
            Error::PeerLost { .. } | Error::Bootstrap { .. } => {
                health.fail(error.clone());
                error
            }
            Error::Timeout { .. } => health.late_in_exchange(error),
            Error::Mismatch { ref what, .. } if what.starts_with(HOST_CALL) => {
                health.fail(error.clone());
                error
            }
            error => error,
        };
        result.map_err(|error| health.placed(failed(error)))
    }
}
