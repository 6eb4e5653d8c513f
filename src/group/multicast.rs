//! The multicast setting of a group, and the checks before any driver is called.

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::settings::named;
use crate::variables::{Lookup, MULTICAST, flag};

/// Whether a group opens multicast: one address for the arenas of all ranks, at which the switch between GPUs sums and
/// stores. It needs the feature `multicast`, and on GPUs the environment variable `SYMMETRA_MULTICAST=1`, because
/// multicast has only been run on the host device. The host device emulates multicast by accesses to each rank's
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Multicast {
    /// No multicast.
    #[default]
    Off,
    /// Multicast if every rank can open it. Else the group continues without multicast, and
    /// [`Communicator::multicast`](crate::Communicator::multicast) has the reason.
    Try,
    /// Multicast, except in a group of one rank. If not all ranks can open it, opening the group fails with an equal
    /// [`Error::Unsupported`] on all ranks.
    Require,
}

impl Multicast {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Off, Self::Try, Self::Require];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Try => "try",
            Self::Require => "require",
        }
    }

    /// Whether this process lets groups on devices of this kind open multicast: on CUDA devices by
    /// `SYMMETRA_MULTICAST=1`, on the host device always, on HIP devices never. Calls no driver.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a value of the variable that is neither 0 nor 1.
    pub fn is_allowed(kind: DeviceKind) -> Result<bool> {
        match kind {
            DeviceKind::Host => Ok(true),
            DeviceKind::Cuda => flag(&crate::variables::Process, MULTICAST),
            DeviceKind::Hip => Ok(false),
        }
    }

    /// The reason why a group on devices of this kind has no multicast, as far as this rank knows before it calls a
    /// driver; `None` if there is no obstacle.
    pub(crate) fn refusal(self, kind: DeviceKind, world_size: usize, lookup: &impl Lookup) -> Result<Option<String>> {
        Ok(match (self, kind) {
            (Self::Off, _) => Some("the configuration does not ask for it".to_owned()),
            _ if !cfg!(feature = "multicast") => {
                Some("this library was built without the feature `multicast`".to_owned())
            }
            _ if world_size == 1 => Some("the group has one rank".to_owned()),
            (_, DeviceKind::Host) => None,
            (_, DeviceKind::Hip) => Some("AMD GPUs have none".to_owned()),
            (_, DeviceKind::Cuda) if flag(lookup, MULTICAST)? => None,
            (_, DeviceKind::Cuda) => {
                Some(format!("{MULTICAST} is not 1: on GPUs multicast has never been run, and this variable allows it"))
            }
        })
    }

    /// Refuses multicast that is required but unavailable.
    pub(super) fn check(self, kind: DeviceKind, world_size: usize, lookup: &impl Lookup) -> Result<()> {
        match self {
            // A single rank has no peers to sum or store for.
            Self::Require if world_size > 1 => {
                self.refusal(kind, world_size, lookup)?.map_or(Ok(()), |why| Err(unavailable(why)))
            }
            _ => Ok(()),
        }
    }
}

/// The error of a group that requires multicast but cannot open it.
pub(crate) fn unavailable(why: impl Into<String>) -> Error {
    Error::unsupported("multicast", why)
}

named!(Multicast, "multicast", Self::ALL);

#[cfg(test)]
#[path = "../../tests/unit/group/multicast.rs"]
mod tests;
