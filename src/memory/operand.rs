//! Memory that a collective may read or write.

use std::fmt::Display;
use std::ops::Range;

use super::owner::Owner;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::types::{Dtype, Element};

mod sealed {
    /// Returns the operand's location. Not nameable outside the crate, so no other type can implement it.
    pub trait Sealed {
        fn view(&self) -> super::View<'_>;
    }
}

/// Memory of `T` that is borrowed for `'op`: a [`SymmetricBuffer`](crate::SymmetricBuffer) or a slice of one, a
/// [`DeviceBuffer`](crate::DeviceBuffer), an [`Adopted`](crate::Adopted) or a slice of one, or a [`Ref`](crate::Ref). Sealed.
pub trait Operand<'op, T: Element>: sealed::Sealed {}

pub(crate) use sealed::Sealed;

/// An operand, addressable by its device and not readable by Rust.
#[derive(Clone)]
pub struct View<'a> {
    pub(crate) address: *mut u8,
    pub(crate) elems: usize,
    pub(crate) place: Place,
    pub(crate) device: &'a Device,
    /// The owner of plain memory, if this crate knows it.
    pub(crate) owner: Option<&'a Owner>,
    /// Whether calls may only read the memory.
    pub(crate) read_only: bool,
}

impl<'a> View<'a> {
    /// Refuses read-only memory as the operand `what`, which a call writes.
    pub(crate) fn check_writable(&self, what: impl Display) -> Result<()> {
        match self.read_only {
            false => Ok(()),
            true => Err(Error::invalid(&what.to_string(), "read-only memory", "the call writes it")),
        }
    }

    /// Some elements of the operand. All parts that a step reads or writes are created here.
    ///
    /// # Errors
    /// [`Error::Internal`] for a range outside the operand, so that no step accesses memory outside it.
    pub(crate) fn part(&self, range: Range<usize>, dtype: Dtype) -> Result<Self> {
        if range.start > range.end || range.end > self.elems {
            let message = format!("elements {range:?} of an operand of {} were asked for", self.elems);
            return Err(Error::internal(message));
        }
        let start_bytes = range.start * dtype.bytes();
        let place = match self.place {
            place @ Place::Symmetric { .. } => place.after(start_bytes),
            // Parts may begin at different offsets on different ranks.
            Place::Registered { .. } | Place::Plain | Place::Part => Place::Part,
            Place::Pushed => Place::Pushed,
        };
        Ok(Self { address: self.address.wrapping_add(start_bytes), elems: range.len(), place, ..*self })
    }
}

/// How peers address an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The operand is in this group's arena, at one offset on every rank.
    Symmetric {
        /// Number of the group.
        group: u64,
        /// Offset in the arena.
        offset_bytes: u64,
    },
    /// Peers use a table of registered addresses.
    Registered {
        /// Number of the group.
        group: u64,
        /// Number of the table.
        slot: u32,
        /// Offset from the addresses in the table, equal on every rank.
        offset_bytes: u64,
    },
    /// Peers cannot address it, unless it is inside adopted memory; after a graph that captured it is registered, they
    /// can.
    Plain,
    /// Like `Plain`, but never looked up in adopted memory: its offset may differ between ranks.
    Part,
    /// Peers do not address it: some rank's memory cannot be shared, or the caller requested this.
    Pushed,
}

impl Place {
    /// Whether peers can address the operand.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::Symmetric { .. } | Self::Registered { .. })
    }

    /// How peers address the memory `bytes` bytes after the operand's start, at the same distance on every rank.
    pub(crate) fn after(self, bytes: usize) -> Self {
        match self {
            Self::Symmetric { group, offset_bytes } => {
                Self::Symmetric { group, offset_bytes: offset_bytes + bytes as u64 }
            }
            Self::Registered { group, slot, offset_bytes } => {
                Self::Registered { group, slot, offset_bytes: offset_bytes + bytes as u64 }
            }
            Self::Plain | Self::Part | Self::Pushed => self,
        }
    }
}

/// Access to [`View`] inside the crate.
pub(crate) trait WithView {
    fn view_of(&self) -> View<'_>;
}

impl<S: Sealed> WithView for S {
    fn view_of(&self) -> View<'_> {
        self.view()
    }
}
