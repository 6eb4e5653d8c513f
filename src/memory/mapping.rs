//! The arenas of peers, mapped into this rank's address space.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::owner::{Offer, offered};
use crate::bootstrap::Bootstrap;
use crate::device::Allocation;
use crate::error::{Error, Result};
use crate::group::Group;

/// The mapping of a peer's arena. For a peer of this process it also keeps the owner's memory alive.
pub(super) struct Mapping {
    pub(super) mapped: Allocation,
    _owner: Option<Arc<Allocation>>,
}

/// Maps every rank's arena; `None` for this rank.
pub(super) fn exchange(group: &Group, memory: &Arc<Allocation>) -> Result<Vec<Option<Mapping>>> {
    let offer = Offer::new(memory.clone());
    group.exchange(|mesh, deadline| {
        let fd = mesh.agree("export the arena", memory.export_fd(), deadline)?;
        let tokens = mesh.all_gather(&offer.token().to_le_bytes(), deadline)?;
        let fds = mesh.all_gather_fds(fd.as_fd(), deadline)?;
        let mut mapped = Ok(Vec::with_capacity(fds.len()));
        for (rank, (fd, token)) in fds.into_iter().zip(tokens).enumerate() {
            let mapping = match fd {
                None => Ok(None),
                Some(_) if mesh.same_process(rank) => alias(group, rank, &token).map(Some),
                Some(fd) => Allocation::import(group.device(), fd, memory.bytes())
                    .map(|mapped| Some(Mapping { mapped, _owner: None })),
            };
            mapped = mapped.and_then(|mut all| mapping.map(|mapping| all.push(mapping)).map(|()| all));
        }
        mesh.agree("map the arenas", mapped, deadline)
    })
}

/// Maps the arena of a rank that is a thread of this process.
fn alias(group: &Group, rank: usize, token: &[u8]) -> Result<Mapping> {
    let token = token.try_into().map(u64::from_le_bytes).unwrap_or(0);
    let owner = offered(token).and_then(|owner| owner.downcast::<Allocation>().ok());
    let gone = || Error::PeerLost { rank, detail: ": its arena is gone".to_owned() };
    let owner = owner.ok_or_else(gone)?;
    Ok(Mapping { mapped: Allocation::alias(group.device(), &owner)?, _owner: Some(owner) })
}
