//! The libraries with which this library is compared.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::DeviceKind;

use crate::failure::CommandFailure;

/// Another library, or another way to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Competitor {
    /// NCCL on the same buffers.
    Nccl,
    /// NCCL on memory of its own in symmetric windows (2.27 or newer).
    NcclSymmetric,
}

impl Competitor {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::NcclSymmetric => "nccl-symmetric",
        }
    }
}

/// Refuses a competitor that this build or these devices cannot have, or that has memory of its own.
pub fn check_on_our_buffers(competitor: Competitor, kind: DeviceKind) -> Result<(), CommandFailure> {
    match competitor {
        Competitor::Nccl => check(competitor, kind),
        other => Err(CommandFailure::usage(format!("--against {}: this race is on our buffers", other.name()))),
    }
}

/// Refuses a competitor that this build or these devices cannot have.
pub fn check(competitor: Competitor, kind: DeviceKind) -> Result<(), CommandFailure> {
    let name = competitor.name();
    if cfg!(not(feature = "nccl")) {
        let fix = "cargo build --features nccl";
        return Err(CommandFailure::usage(format!("--against {name} needs a build with the feature `nccl` ({fix})")));
    }
    if kind != DeviceKind::Cuda {
        return Err(CommandFailure::usage(format!("--against {name} needs a GPU for every rank")));
    }
    Ok(())
}
