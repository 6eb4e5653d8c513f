//! The wire protocol of [`Tcp`](crate::bootstrap::Tcp) and [`Local`](crate::bootstrap::Local): all ranks connect to
//! rank 0, and all-gathers go through it.

mod hub;
mod spoke;
#[cfg(test)]
#[path = "../../../tests/unit/bootstrap/star.rs"]
mod tests;

use std::os::fd::OwnedFd;
use std::time::Instant;

use self::hub::Hub;
use self::spoke::Spoke;
use super::endpoint::Endpoint;
use super::frame::check_length;
use super::handshake::Secret;
use super::shown::Shown;
use super::wait::WaitLimit;
use crate::error::{Error, Result};
use crate::fork::Maker;

enum StarSide {
    Alone,
    Hub(Hub),
    Spoke(Spoke),
    /// The error after which the star can no longer be used.
    Failed(Error),
}

/// This rank's end of a star.
pub(super) struct Star {
    maker: Maker,
    rank: usize,
    world_size: usize,
    sequence: u64,
    side: StarSide,
}

impl Star {
    /// A world of one.
    pub(super) fn alone() -> Self {
        Self::new(0, 1, StarSide::Alone)
    }

    /// Rank 0: waits at `listener`, a listening socket, for all others.
    pub(super) fn listen(
        endpoint: Endpoint,
        listener: OwnedFd,
        secret: Secret,
        world_size: usize,
        limit: impl Into<WaitLimit>,
    ) -> Result<Self> {
        let _shown = Shown::begin(0, world_size, endpoint.place());
        let hub = Hub::form(endpoint, listener, secret, world_size, &limit.into())?;
        Ok(Self::new(0, world_size, StarSide::Hub(hub)))
    }

    /// Any other rank: connects to rank 0.
    pub(super) fn join(
        endpoint: &Endpoint,
        secret: Secret,
        rank: usize,
        world_size: usize,
        limit: impl Into<WaitLimit>,
    ) -> Result<Self> {
        let _shown = Shown::begin(rank, world_size, endpoint.place());
        let spoke = Spoke::join(endpoint, &secret, rank, world_size, &limit.into())?;
        Ok(Self::new(rank, world_size, StarSide::Spoke(spoke)))
    }

    fn new(rank: usize, world_size: usize, side: StarSide) -> Self {
        Self { maker: Maker::this(), rank, world_size, sequence: 0, side }
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn world_size(&self) -> usize {
        self.world_size
    }

    pub(super) fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        check_length(bytes.len())?;
        self.maker.check("a bootstrap")?;
        let outcome = match &mut self.side {
            StarSide::Alone => Ok(vec![bytes.to_vec()]),
            StarSide::Hub(hub) => hub.all_gather(self.sequence, bytes, deadline),
            StarSide::Spoke(spoke) => spoke.all_gather(self.sequence, bytes, deadline),
            StarSide::Failed(error) => Err(error.clone()),
        };
        self.sequence += 1;
        // Closing the sockets at once notifies the others.
        outcome.inspect_err(|error| self.side = StarSide::Failed(error.clone()))
    }
}
