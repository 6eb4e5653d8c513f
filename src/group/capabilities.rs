//! The common capabilities of the devices of all ranks. They are equal on every rank, so choices made from them agree.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::bootstrap::hello::tell;
use crate::bootstrap::mesh::Mesh;
use crate::device::Device;
use crate::error::Result;

/// The capabilities that all ranks' devices have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capabilities {
    /// The vendor's name of the device if all ranks have the same model; else empty.
    pub(crate) name: String,
    /// The lowest compute capability.
    pub(crate) compute_capability: (u32, u32),
    /// The fewest multiprocessors.
    pub(crate) multiprocessors: u32,
    /// Whether every device changes words atomically in the memory of every other.
    pub(crate) native_atomics: bool,
    /// Whether every device can add 8-bit floats by multicast.
    pub(crate) adds_f8: bool,
}

impl Capabilities {
    pub(crate) fn of(device: &Device) -> Self {
        Self {
            name: device.name(),
            compute_capability: device.compute_capability(),
            multiprocessors: device.multiprocessors(),
            native_atomics: true,
            adds_f8: device.adds_f8(),
        }
    }

    /// The capabilities that all ranks' devices share. Collective.
    pub(super) fn agree(mesh: &mut Mesh, device: &Device, deadline: Instant) -> Result<Self> {
        let uuids = tell(mesh, "which device it has", &device.uuid(), deadline)?;
        let asked: Result<Vec<bool>> = uuids.iter().map(|uuid| device.native_atomics(uuid)).collect();
        let native = mesh.agree("ask how devices are linked", asked, deadline)?.into_iter().all(|native| native);
        let own = Self { native_atomics: native, ..Self::of(device) };
        let all = tell(mesh, "to compare devices", &own, deadline)?;
        Ok(all.into_iter().fold(own, Self::common))
    }

    fn common(self, other: Self) -> Self {
        Self {
            name: if self.name == other.name { self.name } else { String::new() },
            compute_capability: self.compute_capability.min(other.compute_capability),
            multiprocessors: self.multiprocessors.min(other.multiprocessors),
            native_atomics: self.native_atomics && other.native_atomics,
            adds_f8: self.adds_f8 && other.adds_f8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_two() {
        let device = |name: &str, compute_capability, multiprocessors| Capabilities {
            name: name.to_owned(),
            compute_capability,
            multiprocessors,
            native_atomics: multiprocessors != 144,
            adds_f8: multiprocessors != 144,
        };
        let (one, other) = (device("A", (9, 0), 132), device("B", (8, 6), 144));
        let both = Capabilities { native_atomics: false, adds_f8: false, ..device("", (8, 6), 132) };
        assert_eq!(one.clone().common(other), both);
        assert_eq!(one.clone().common(one.clone()), one);
    }
}
