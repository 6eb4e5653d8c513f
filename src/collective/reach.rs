//! Whether and how peers address an operand.

use std::sync::Arc;

use super::Inner;
use super::turn::Recorded;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::kernel::args;
use crate::memory::{Place, Pooled, Registration, View};

/// A table of addresses, and the operand's offset from them.
#[derive(Clone)]
pub(super) struct Peers {
    pub(super) table: *const args::PeerTable,
    pub(super) offset_bytes: u64,
    /// The registration of adopted memory in which the operand was found. Another thread may drop the adoption before the
    /// launch.
    pub(super) found: Option<Arc<Registration>>,
}

impl Peers {
    pub(super) const NONE: Self = Self { table: std::ptr::null(), offset_bytes: 0, found: None };
}

/// An operand as peers address it, and its place in adopted memory, if it lies there.
pub(super) struct Located<'a> {
    pub(super) view: View<'a>,
    pub(super) pooled: Option<Pooled>,
}

impl Inner {
    /// Looks up plain memory of `bytes` bytes in the adopted memory of this rank.
    pub(super) fn locate<'a>(&self, operand: &View<'a>, bytes: usize) -> Located<'a> {
        let plain = operand.place == Place::Plain;
        let pooled = if plain { self.pools.find(operand.address, bytes) } else { None };
        let place = match &pooled {
            Some(Pooled { registration: Some(registration), offset_bytes, .. }) => {
                Place::Registered { group: self.group.id(), slot: registration.slot(), offset_bytes: *offset_bytes }
            }
            Some(_) => Place::Pushed,
            None => operand.place,
        };
        Located { view: View { place, ..operand.clone() }, pooled }
    }

    /// Whether peers can address an operand, or will be able to after its graph is registered. Equal on every rank that
    /// makes the same call.
    pub(super) fn reaches(&self, operand: &View<'_>, recording: bool) -> bool {
        match operand.place {
            Place::Symmetric { group, .. } | Place::Registered { group, .. } => group == self.group.id(),
            Place::Plain | Place::Part => recording && self.registers_plain(),
            Place::Pushed => false,
        }
    }

    /// Whether plain memory of this group's devices can be registered.
    fn registers_plain(&self) -> bool {
        let device = self.group.device();
        device.exports_plain_memory() || (device.kind() == DeviceKind::Host && self.group.is_one_process())
    }

    /// Whether any two ranks are threads of one process.
    pub(super) fn shares_a_process(&self) -> bool {
        let processes = self.group.processes();
        (1..processes.len()).any(|rank| processes[..rank].contains(&processes[rank]))
    }

    /// With `check_calls`, the offset of an operand that peers could access. All ranks must pass such operands at the same
    /// offset, even if peers do not access them.
    pub(super) fn offset_to_check(&self, operand: &View<'_>) -> Option<u64> {
        match operand.place {
            _ if !self.group.config().check_calls => None,
            Place::Symmetric { group, offset_bytes } | Place::Registered { group, offset_bytes, .. } => {
                (group == self.group.id()).then_some(offset_bytes)
            }
            Place::Plain | Place::Part | Place::Pushed => None,
        }
    }

    /// The table and offset by which peers address operand `number` of the next call.
    pub(super) fn peers(
        &self,
        Located { view, pooled }: &Located<'_>,
        bytes: usize,
        recorded: Option<&Recorded>,
        number: usize,
    ) -> Result<Peers> {
        if let (Some(recorded), Some(pooled)) = (recorded, pooled) {
            recorded.found(pooled, number);
        }
        let (slot, offset_bytes) = match (view.place, recorded) {
            // Table 0 holds the arenas.
            (Place::Symmetric { offset_bytes, .. }, _) => (0, offset_bytes),
            (Place::Registered { slot, offset_bytes, .. }, _) => (slot, offset_bytes),
            (Place::Plain | Place::Part, Some(recorded)) => (recorded.table(view, bytes, number)?, 0),
            (Place::Plain | Place::Part | Place::Pushed, _) => {
                return Err(unaddressed("access of peers to an operand"));
            }
        };
        let found = pooled.as_ref().and_then(|pooled| pooled.registration.clone());
        Ok(Peers { table: self.arena.table(slot), offset_bytes, found })
    }
}

/// The error of a call that needs memory which peers can address.
pub(super) fn unaddressed(what: impl Into<String>) -> Error {
    Error::unsupported(what, "peers cannot address it: use symmetric or adopted memory")
}

/// The operand's offset in the arena of this group, if it lies there.
pub(super) fn arena_offset(group: u64, operand: &View<'_>) -> Option<u64> {
    match operand.place {
        Place::Symmetric { group: owner, offset_bytes } if owner == group => Some(offset_bytes),
        _ => None,
    }
}
