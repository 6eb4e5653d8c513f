//! The libraries that a race is run against.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Communicator, DeviceKind, Element, SymmetricBuffer};

use super::side::Side;
use crate::all_reduce::Collective;
use crate::failure::Failure;

/// Another library, or another way to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Peer {
    /// NCCL on the same buffers.
    Nccl,
    /// NCCL on memory of its own in symmetric windows (2.27 or newer).
    NcclSymmetric,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::NcclSymmetric => "nccl-symmetric",
        }
    }
}

/// Each once, in the order they were named.
pub(super) fn distinct(peers: &[Peer], kind: DeviceKind) -> Result<Vec<Peer>, Failure> {
    let mut found = Vec::new();
    for peer in peers {
        if found.contains(peer) {
            return Err(Failure::usage(format!("--against names {} twice", peer.name())));
        }
        if cfg!(not(feature = "nccl")) {
            let (name, fix) = (peer.name(), "cargo build --features nccl");
            return Err(Failure::usage(format!("--against {name} needs a build with the feature `nccl` ({fix})")));
        }
        if kind != DeviceKind::Cuda {
            return Err(Failure::usage(format!("--against {} needs a GPU for every rank", peer.name())));
        }
        found.push(*peer);
    }
    Ok(found)
}

/// Before the ranks are started: whether the peers can be had. Returns a line about them.
#[cfg(feature = "nccl")]
pub(super) fn describe(peers: &[Peer]) -> Result<Option<String>, Failure> {
    if peers.is_empty() { Ok(None) } else { super::nccl::describe().map(Some) }
}

/// First of all, while the program has one thread.
#[cfg(feature = "nccl")]
pub(super) fn keep_multicast_off(peers: &[Peer]) {
    if !peers.is_empty() {
        super::nccl::keep_multicast_off();
    }
}

/// The peers of one rank, ready to run.
#[cfg(feature = "nccl")]
pub(super) struct Peers<'a>(Vec<Peer>, Option<super::nccl::Entrant<'a>>);

#[cfg(feature = "nccl")]
impl<'a> Peers<'a> {
    /// `largest_bytes`: of an operand. Collective; blocks.
    pub(super) fn open(
        peers: &[Peer],
        ours: &'a Communicator,
        collective: Collective,
        largest_bytes: u64,
    ) -> Result<Self, Failure> {
        let open = || super::nccl::Entrant::open(peers, ours, collective, largest_bytes as usize);
        Ok(Self(peers.to_vec(), (!peers.is_empty()).then(open).transpose()?))
    }

    /// A side each, in their order.
    pub(super) fn sides<'s, T: Element>(
        &'s self,
        input: &'s SymmetricBuffer<T>,
        output: &'s SymmetricBuffer<T>,
    ) -> Result<Vec<Box<dyn Side<'s, T> + 's>>, Failure> {
        let mut sides: Vec<Box<dyn Side<'s, T> + 's>> = Vec::new();
        for (peer, entrant) in self.0.iter().flat_map(|peer| self.1.iter().map(move |entrant| (*peer, entrant))) {
            sides.push(Box::new(entrant.side(peer, input, output)?));
        }
        Ok(sides)
    }
}

/// There is nobody to use it.
#[cfg(not(feature = "nccl"))]
pub(super) fn keep_multicast_off(_peers: &[Peer]) {}

/// None can be had: [`distinct`] has said so.
#[cfg(not(feature = "nccl"))]
pub(super) fn describe(_peers: &[Peer]) -> Result<Option<String>, Failure> {
    Ok(None)
}

/// No peers.
#[cfg(not(feature = "nccl"))]
pub(super) struct Peers;

#[cfg(not(feature = "nccl"))]
impl Peers {
    pub(super) fn open(
        _peers: &[Peer],
        _ours: &Communicator,
        _collective: Collective,
        _largest_bytes: u64,
    ) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(super) fn sides<'s, T: Element>(
        &'s self,
        _input: &'s SymmetricBuffer<T>,
        _output: &'s SymmetricBuffer<T>,
    ) -> Result<Vec<Box<dyn Side<'s, T> + 's>>, Failure> {
        Ok(Vec::new())
    }
}
