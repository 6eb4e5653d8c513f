//! What a collective may read or write.

use std::ops::Range;

use super::owner::Owner;
use crate::device::Device;
use crate::types::{Dtype, Element};

mod sealed {
    /// Says where an operand is; unnameable outside, so that no other type can be one.
    pub trait Sealed {
        fn view(&self) -> super::View<'_>;
    }
}

/// Memory of `T` that is borrowed for `'op`: a [`SymmetricBuffer`](crate::SymmetricBuffer) or a
/// slice of one, a [`DeviceBuffer`](crate::DeviceBuffer), an [`Adopted`](crate::Adopted) or a
/// [`Ref`](crate::Ref). Sealed.
pub trait Operand<'op, T: Element>: sealed::Sealed {}

pub(crate) use sealed::Sealed;

/// An operand, addressable by its device and not readable by Rust.
#[derive(Clone)]
pub struct View<'a> {
    pub(crate) address: *mut u8,
    pub(crate) elems: usize,
    pub(crate) place: Place,
    pub(crate) device: &'a Device,
    /// Who keeps plain memory, where that is known here.
    pub(crate) owner: Option<&'a Owner>,
}

impl<'a> View<'a> {
    /// Some elements of the operand.
    pub(crate) fn part(&self, range: Range<usize>, dtype: Dtype) -> Self {
        let start_bytes = range.start * dtype.bytes();
        let place = match self.place {
            Place::Symmetric { group, offset_bytes } => {
                Place::Symmetric { group, offset_bytes: offset_bytes + start_bytes as u64 }
            }
            // A table of addresses is of whole operands.
            Place::Registered { .. } | Place::Plain | Place::Pushed => Place::Plain,
        };
        Self { address: self.address.wrapping_add(start_bytes), elems: range.len(), place, ..*self }
    }
}

/// How peers reach an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the arena of this group, at the same offset on every rank.
    Symmetric {
        /// Of the group.
        group: u64,
        /// In the arena.
        offset_bytes: u64,
    },
    /// Through a table of addresses.
    Registered {
        /// Of the group.
        group: u64,
        /// Number of the table.
        slot: u32,
    },
    /// Not at all, or once a graph that captured it is registered.
    Plain,
    /// Not at all: it was adopted, and some rank's cannot be shared.
    Pushed,
}

/// Crate-side access to [`View`].
pub(crate) trait WithView {
    fn view_of(&self) -> View<'_>;
}

impl<S: Sealed> WithView for S {
    fn view_of(&self) -> View<'_> {
        self.view()
    }
}
