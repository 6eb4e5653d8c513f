//! Whether and how peers address an operand.

use super::Inner;
use super::graph_part::Recorded;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::kernel::args;
use crate::memory::{Place, View};

/// A table of addresses, and the operand's offset from them.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    pub(super) table: *const args::PeerTable,
    pub(super) offset_bytes: u64,
}

impl Peers {
    pub(super) const NONE: Self = Self { table: std::ptr::null(), offset_bytes: 0 };
}

impl Inner {
    /// Whether peers can address an operand, or can once its graph is registered. Equal on every rank that makes the
    /// same call.
    pub(super) fn reaches(&self, operand: &View<'_>, recording: bool) -> bool {
        match operand.place {
            Place::Symmetric { group, .. } | Place::Registered { group, .. } => group == self.group.id(),
            Place::Plain => recording && self.registers_plain(),
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

    /// With `check_calls`, the offset of an operand that peers could access: all ranks give one at the same offset, whether
    /// peers access it or not.
    pub(super) fn offset_to_check(&self, operand: &View<'_>) -> Option<u64> {
        match operand.place {
            _ if !self.group.config().check_calls => None,
            Place::Symmetric { group, offset_bytes } | Place::Registered { group, offset_bytes, .. } => {
                (group == self.group.id()).then_some(offset_bytes)
            }
            Place::Plain | Place::Pushed => None,
        }
    }

    /// Where peers find operand `number` of the next call.
    pub(super) fn peers(
        &self,
        operand: &View<'_>,
        bytes: usize,
        recorded: Option<&Recorded>,
        number: usize,
    ) -> Result<Peers> {
        let (slot, offset_bytes) = match (operand.place, recorded) {
            // Table 0 holds the arenas.
            (Place::Symmetric { offset_bytes, .. }, _) => (0, offset_bytes),
            (Place::Registered { slot, offset_bytes, .. }, _) => (slot, offset_bytes),
            (Place::Plain, Some(recorded)) => (recorded.table(operand, bytes, number)?, 0),
            (Place::Plain | Place::Pushed, _) => {
                return Err(Error::Internal { message: "memory that is pushed has no peers".to_owned() });
            }
        };
        Ok(Peers { table: self.arena.table(slot), offset_bytes })
    }
}

/// The operand's offset in the arena of this group, if it lies there.
pub(super) fn arena_offset(group: u64, operand: &View<'_>) -> Option<u64> {
    match operand.place {
        Place::Symmetric { group: owner, offset_bytes } if owner == group => Some(offset_bytes),
        _ => None,
    }
}
