//! Meshes of some of the ranks. The new sockets are created in pairs and sent over the old mesh.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{LIMIT_BYTES, Mesh, Peer, received_fd};
use crate::bootstrap::all_gather::Bootstrap;
use crate::bootstrap::channel::Channel;
use crate::error::{Error, Result};

impl Mesh {
    /// Makes a mesh of each set of ranks. Blocks until every rank of this mesh has called it. `members` are the ranks
    /// of this rank's set, in their order in the new mesh and equal on each member; none if this rank joins no set.
    ///
    /// Sets that do not fit together are an error on every rank, and leave this mesh unchanged. Errors of the new mesh
    /// have its rank numbers: [`Error::of_members`] maps them to those of this mesh. If some ranks fail and others
    /// succeed, the new mesh reports the cause to the others.
    pub fn split(&mut self, members: Option<&[usize]>, deadline: Instant) -> Result<Option<Mesh>> {
        let sets = self.all_gather(&encode(members.unwrap_or_default()), deadline)?;
        let sets: Vec<Vec<usize>> = sets.iter().map(|bytes| decode(bytes)).collect();
        self.check_sets(&sets, members)?;
        let members = members.unwrap_or_default();

        let mut ours: Vec<Option<OwnedFd>> = self.peers.iter().map(|_| None).collect();
        let mut theirs: Vec<Option<Arc<OwnedFd>>> = vec![None; ours.len()];
        let mut made = Ok(());
        for &peer in members.iter().filter(|peer| **peer > self.rank) {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None) {
                Ok((near, far)) => (ours[peer], theirs[peer]) = (Some(near), Some(Arc::new(far))),
                Err(errno) => made = Err(Error::system("make a pair of sockets", &errno.into())),
            }
        }
        let outgoing = theirs.iter().map(|fd| self.descriptor(fd.as_ref())).collect();
        drop(theirs);
        let frames = self.exchange(outgoing, deadline)?;
        for (peer, frame) in frames.into_iter().enumerate() {
            if let (Some(frame), true) = (frame, peer < self.rank && members.contains(&peer)) {
                match received_fd(frame, peer) {
                    Ok(socket) => ours[peer] = Some(socket),
                    Err(error) => made = made.and(Err(error)),
                }
            }
        }
        let mut part = members.iter().position(|member| *member == self.rank).map(|rank| {
            let connect = |peer: &usize| {
                let channel = Channel::new(ours[*peer].take()?, LIMIT_BYTES);
                // For the system both ends of the pair belong to the process that created it.
                Some(Peer::new(channel, self.peers[*peer].as_ref()?.life.clone()))
            };
            let peers = members.iter().map(connect).collect();
            Mesh::new(rank, peers, members.iter().map(|member| self.processes[*member]).collect())
        });
        // All or none: a rank that has no free descriptors fails the split, not a later call.
        let agreed = self.agree("split", made, deadline);
        if let (Err(error), Some(part)) = (&agreed, &mut part) {
            // Others may have succeeded, and must not report this rank as dead.
            part.fail(&error.clone().among(members));
        }
        agreed.map(|()| part)
    }

    /// Checks that the sets fit together. Every rank has all sets, so all ranks return the same outcome.
    fn check_sets(&self, sets: &[Vec<usize>], given: Option<&[usize]>) -> Result<()> {
        let limit = format!("it must hold the calling rank and others in 0..{}, each once", sets.len());
        for (rank, set) in sets.iter().enumerate() {
            let repeats = set.iter().enumerate().any(|(index, member)| set[..index].contains(member));
            let valid = set.is_empty() || set.contains(&rank);
            if repeats || !valid || set.iter().any(|member| *member >= sets.len()) {
                let invalid = Error::invalid("the set of a split", format_args!("{set:?}"), limit);
                let theirs = Error::Peer { rank, message: invalid.to_string() };
                return Err(if rank == self.rank { invalid } else { theirs });
            }
        }
        for (rank, set) in sets.iter().enumerate() {
            if let Some(&member) = set.iter().find(|member| sets[**member] != *set) {
                return Err(Error::Mismatch {
                    against: rank,
                    rank: member,
                    what: "the set of a split".into(),
                    ours: format!("{set:?}"),
                    theirs: format!("{:?}", sets[member]),
                });
            }
        }
        if given.is_some_and(<[usize]>::is_empty) {
            return Err(Error::invalid("the set of a split", "[]", limit));
        }
        Ok(())
    }
}

/// A set as bytes; no bytes for a rank that joins none.
fn encode(members: &[usize]) -> Vec<u8> {
    members.iter().flat_map(|member| (*member as u64).to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<usize> {
    let (members, _) = bytes.as_chunks::<8>();
    members.iter().map(|member| usize::try_from(u64::from_le_bytes(*member)).unwrap_or(usize::MAX)).collect()
}
