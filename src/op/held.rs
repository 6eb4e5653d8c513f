//! An operand handle without borrow and element type. The type of the builder that holds the handle keeps both.

use super::Strip;
use crate::device::Device;
use crate::memory::{Owner, Place, View};
use crate::types::Dtype;

/// An operand of a call with several operands.
pub(crate) struct Held {
    pub(crate) dtype: Dtype,
    pub(crate) elems: usize,
    address: *mut u8,
    place: Place,
    device: Device,
    owner: Option<Owner>,
    read_only: bool,
}

impl Held {
    pub(crate) fn new(dtype: Dtype, operand: &View<'_>) -> Self {
        let View { address, elems, place, device, owner, read_only } = *operand;
        Self { dtype, elems, address, place, device: device.clone(), owner: owner.cloned(), read_only }
    }

    /// A second handle to the same operand memory.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.dtype, &self.view())
    }

    pub(crate) fn view(&self) -> View<'_> {
        let Self { address, elems, place, ref device, ref owner, read_only, .. } = *self;
        View { address, elems, place, device, owner: owner.as_ref(), read_only }
    }

    pub(crate) fn strip(&self) -> Strip {
        Strip { address: self.address, bytes: (self.elems * self.dtype.bytes()) as u64 }
    }
}
