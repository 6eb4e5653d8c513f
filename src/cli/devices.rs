//! Which device each rank works on.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Device, DeviceKind};

use crate::failure::Failure;

/// What `--device` may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// GPUs where this build supports them and there is one for every rank, else the CPU.
    Auto,
    /// The CPU.
    Host,
    /// NVIDIA GPUs: rank r works on device r.
    Cuda,
}

/// The device of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RankDevice {
    Host,
    Cuda(usize),
}

impl RankDevice {
    pub(crate) fn kind(self) -> DeviceKind {
        match self {
            Self::Host => DeviceKind::Host,
            Self::Cuda(_) => DeviceKind::Cuda,
        }
    }

    pub(crate) fn open(self) -> symmetra::Result<Device> {
        match self {
            Self::Host => Device::host(),
            Self::Cuda(ordinal) => Device::cuda(ordinal),
        }
    }
}

/// The devices of all ranks. `share` lets ranks outnumber the GPUs.
pub(crate) fn assign(choice: Choice, ranks: usize, share: bool) -> Result<Vec<RankDevice>, Failure> {
    if kind(choice, ranks) == DeviceKind::Host {
        return Ok(vec![RankDevice::Host; ranks]);
    }
    let count = Device::count(DeviceKind::Cuda);
    if cfg!(not(feature = "cuda")) {
        return Err(Failure::usage(
            "--device cuda needs a build with the feature `cuda` (cargo build --features cuda)",
        ));
    }
    if count == 0 {
        return Err(Failure::usage("--device cuda: there is no CUDA device (`symmetra doctor` may say why)"));
    }
    if count < ranks && !share {
        return Err(Failure::usage(format!(
            "{ranks} ranks need {ranks} CUDA devices, but there are {count} (--share-devices puts several ranks on one)"
        )));
    }
    Ok((0..ranks).map(|rank| RankDevice::Cuda(rank % count)).collect())
}

/// The kind of device that `choice` means for this many ranks.
pub(crate) fn kind(choice: Choice, ranks: usize) -> DeviceKind {
    match choice {
        Choice::Host => DeviceKind::Host,
        Choice::Cuda => DeviceKind::Cuda,
        Choice::Auto if Device::count(DeviceKind::Cuda) >= ranks => DeviceKind::Cuda,
        Choice::Auto => DeviceKind::Host,
    }
}
