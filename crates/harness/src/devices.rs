//! Which device each rank works on.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Device, DeviceKind};

use crate::failure::CommandFailure;

/// The values of `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// GPUs where this build supports them and there is one for every rank, else the CPU.
    Auto,
    /// The CPU.
    Host,
    /// NVIDIA GPUs: rank r works on device r.
    Cuda,
    /// AMD GPUs: rank r works on device r.
    Hip,
}

/// The device of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankDevice {
    Host,
    Cuda(usize),
    Hip(usize),
}

impl RankDevice {
    pub fn kind(self) -> DeviceKind {
        match self {
            Self::Host => DeviceKind::Host,
            Self::Cuda(_) => DeviceKind::Cuda,
            Self::Hip(_) => DeviceKind::Hip,
        }
    }

    pub fn open(self) -> symmetra::Result<Device> {
        match self {
            Self::Host => Device::host(),
            Self::Cuda(ordinal) => Device::cuda(ordinal),
            Self::Hip(ordinal) => Device::hip(ordinal),
        }
    }
}

impl fmt::Display for RankDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => out.write_str("host"),
            Self::Cuda(ordinal) | Self::Hip(ordinal) => write!(out, "{} {ordinal}", self.kind()),
        }
    }
}

/// The kinds of GPU, in the order in which they are tried.
pub const GPUS: [Gpu; 2] = [
    Gpu { kind: DeviceKind::Cuda, vendor: "CUDA", built: cfg!(feature = "cuda"), device: RankDevice::Cuda },
    Gpu { kind: DeviceKind::Hip, vendor: "HIP", built: cfg!(feature = "hip"), device: RankDevice::Hip },
];

/// A kind of GPU.
pub struct Gpu {
    pub kind: DeviceKind,
    /// The name that people use.
    pub vendor: &'static str,
    /// Whether this build supports it.
    pub built: bool,
    pub device: fn(usize) -> RankDevice,
}

impl Gpu {
    pub fn count(&self) -> usize {
        Device::count(self.kind)
    }
}

/// The devices of all ranks. `share` lets ranks outnumber the GPUs.
pub fn assign(kind: DeviceKind, ranks: usize, share: bool) -> Result<Vec<RankDevice>, CommandFailure> {
    let Some(gpu) = GPUS.iter().find(|gpu| gpu.kind == kind) else {
        return Ok(vec![RankDevice::Host; ranks]);
    };
    let (count, vendor) = (gpu.count(), gpu.vendor);
    if !gpu.built {
        return Err(CommandFailure::usage(format!(
            "--device {kind} needs a build with the feature `{kind}` (cargo build --features {kind})",
        )));
    }
    if count == 0 {
        return Err(CommandFailure::usage(format!(
            "--device {kind}: there is no {vendor} device (`symmetra doctor` may report why)"
        )));
    }
    if count < ranks && !share {
        return Err(CommandFailure::usage(format!(
            "{ranks} ranks need {ranks} {vendor} devices, but there are {count} (--share-devices puts several ranks on one)"
        )));
    }
    Ok((0..ranks).map(|rank| (gpu.device)(rank % count)).collect())
}

/// The kind of device that `choice` means for this many ranks. `share` lets ranks outnumber the GPUs.
pub fn kind(choice: Choice, ranks: usize, share: bool) -> DeviceKind {
    match choice {
        Choice::Host => DeviceKind::Host,
        Choice::Cuda => DeviceKind::Cuda,
        Choice::Hip => DeviceKind::Hip,
        Choice::Auto => automatic(&GPUS.map(|gpu| (gpu.kind, gpu.count())), ranks, share),
    }
}

/// The first kind with a GPU for every rank; else, if ranks share GPUs, the first kind with any GPU.
fn automatic(counts: &[(DeviceKind, usize)], ranks: usize, share: bool) -> DeviceKind {
    let with = |least: usize| counts.iter().find(|(_, count)| *count >= least);
    let found = with(ranks).or_else(|| with(1).filter(|_| share));
    found.map_or(DeviceKind::Host, |(kind, _)| *kind)
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/devices.rs"]
mod tests;

/// Whether a device can do multicast, this build has it, and a run may open it.
#[derive(Debug, serde::Serialize)]
pub struct MulticastWords {
    device: &'static str,
    build: &'static str,
    run: &'static str,
}

impl MulticastWords {
    pub fn new(device: &symmetra::Device) -> Result<Self, symmetra::Error> {
        let may = symmetra::Multicast::is_allowed(device.kind())?;
        Ok(Self {
            device: if device.can_multicast() { "can" } else { "cannot" },
            build: if cfg!(feature = "multicast") { "has" } else { "lacks" },
            run: if may { "may" } else { "forbidden" },
        })
    }

    /// Whether a group that asks for multicast would try to open it.
    pub fn all(&self) -> bool {
        (self.device, self.build, self.run) == ("can", "has", "may")
    }
}

impl std::fmt::Display for MulticastWords {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match (self.device, self.build, self.run) {
            ("cannot", ..) => "the device cannot do it",
            (_, "lacks", _) => "the device can, but the build lacks this feature",
            (.., "forbidden") => "the device can, but SYMMETRA_MULTICAST is not 1",
            _ => "a group that asks for it has it",
        })
    }
}
