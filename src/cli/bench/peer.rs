//! The libraries that a race is run against.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

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
pub(super) fn distinct(peers: &[Peer]) -> Result<Vec<Peer>, Failure> {
    let mut found = Vec::new();
    for peer in peers {
        if found.contains(peer) {
            return Err(Failure::usage(format!("--against names {} twice", peer.name())));
        }
        if cfg!(not(feature = "nccl")) {
            let (name, fix) = (peer.name(), "cargo build --features nccl");
            return Err(Failure::usage(format!("--against {name} needs a build with the feature `nccl` ({fix})")));
        }
        found.push(*peer);
    }
    Ok(found)
}
