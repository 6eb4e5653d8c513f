//! Symmetric memory of NVSHMEM, an operand of collectives.
#![allow(unsafe_code)]

use std::fmt::{self, Debug};
use std::ops::RangeBounds;
use std::sync::Arc;

use super::heap::{Heap, HeldBlock};
use crate::error::Result;
use crate::memory::{Adopted, AdoptedSlice, Operand, Ref, Sealed, View, group_copies, size_bytes};
use crate::types::Element;

/// `len` elements of NVSHMEM's symmetric memory on every rank. Collectives on it are zero-copy.
///
/// Dropping the buffer does not block. Its memory is freed by a later collective call of the session, after every rank
/// has dropped its buffer.
pub struct Buffer<T: Element> {
    /// Declared before the memory: the registration ends first.
    adopted: Adopted<'static, T>,
    held: Option<Arc<HeldBlock>>,
    heap: Arc<Heap>,
}

impl<T: Element> Buffer<T> {
    /// Creates the buffer. Collective.
    pub(super) fn new(heap: &Arc<Heap>, len: usize) -> Result<Self> {
        let (held, addresses) = heap.allocate(size_bytes::<T>(len))?;
        let group = heap.calls.group();
        let address = addresses.get(group.rank()).map_or(std::ptr::null_mut(), |address| *address as *mut T);
        let memory = Ref::new(address, len, group.device());
        // SAFETY: `allocate` found the addresses. The memory is freed after every rank has dropped its buffer and all
        // devices are idle (liveness, exclusion).
        let adopted = unsafe { heap.register(memory, &addresses) }?;
        Ok(Self { adopted, held: held.map(Arc::new), heap: heap.clone() })
    }

    /// Number of elements on each rank.
    pub fn len(&self) -> usize {
        self.adopted.memory().len()
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of this rank's elements, for the rank's device and for NVSHMEM. Null when empty.
    pub fn as_raw(&self) -> *mut T {
        self.adopted.memory().as_raw()
    }

    /// The address of rank `rank`'s elements, for this rank's device. Valid until the buffer is dropped. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rank outside the group, the group's error when it
    /// failed or was closed.
    pub fn peer_address(&self, rank: usize) -> Result<*mut T> {
        self.adopted.peer_address(rank)
    }

    /// Elements `range` of the buffer. Every rank must use the same range in one operation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a range outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<AdoptedSlice<'_, T>> {
        self.adopted.slice(range)
    }

    /// This rank's elements as a [`Ref`]. The communicator finds them by their address, like those of an [`Adopted`].
    pub fn borrow(&self) -> Ref<'_, T> {
        self.adopted.memory().clone().owned_by(self.held.clone().map(|held| held as _))
    }

    /// Elements of another type, checked.
    pub(crate) fn view_of_elements<U: Element>(&self, offset_bytes: usize, count: usize) -> Result<View<'_>> {
        self.adopted.view_of_elements::<U>(offset_bytes, count)
    }

    /// Checks that the results of finished calls in this buffer are valid.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.heap.calls.group().confirm()
    }
}

group_copies! { Buffer<T>, borrow, confirm }

impl<T: Element> Sealed for &Buffer<T> {
    fn view(&self) -> View<'_> {
        self.adopted.view_from(0, self.len())
    }
}
impl<'op, T: Element> Operand<'op, T> for &'op Buffer<T> {}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Buffer({} {} of NVSHMEM)", self.len(), T::DTYPE)
    }
}
