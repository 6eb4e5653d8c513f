//! The caller's memory, registered with all ranks.

use std::fmt;
use std::sync::Arc;

use super::arena::Arena;
use super::operand::{Operand, Place, Sealed, View};
use super::plain::Ref;
use super::registration::{Pointer, Registration, register};
use crate::error::{Error, Result};
use crate::types::Element;

/// The caller's memory, registered for collectives. Every rank registers its own, of equal length.
///
/// When every rank's memory can be shared, peers address it directly (zero-copy). When one rank's cannot (pool, mapped
/// by address ranges, managed, host memory), nothing is exported and messages pass through the arena, with equal
/// results. [`is_shared`](Self::is_shared) tells which.
pub struct Adopted<'a, T: Element> {
    memory: Ref<'a, T>,
    registration: Option<Arc<Registration>>,
}

impl<'a, T: Element> Adopted<'a, T> {
    /// Registers `memory`. Collective. An error in `memory` is reported to all ranks.
    pub(crate) fn new(arena: &Arc<Arena>, memory: Result<Ref<'a, T>>) -> Result<Self> {
        let own = memory.and_then(|memory| {
            arena.group().device().check_same("the memory", memory.device())?;
            Ok((memory, Registration::reserve(arena)?))
        });
        let agreed = arena.group().exchange(|mesh, deadline| mesh.agree("adopt memory", own, deadline));
        let (memory, registration) = agreed?;
        let view = memory.view();
        let (address, bytes) = (view.address, view.elems * size_of::<T>());
        let pointer = Pointer { registration: &registration, address, bytes, owner: view.owner.cloned() };
        let shared = register(arena, &[pointer], &[])?;
        let registration = shared.first().copied().unwrap_or(false).then(|| Arc::new(registration));
        Ok(Self { memory, registration })
    }

    /// Whether peers address the memory directly. Equal on every rank.
    pub fn is_shared(&self) -> bool {
        self.registration.is_some()
    }

    /// The address of `rank`'s memory for this rank's device. Valid until the communicator is closed. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group. [`Error::Unsupported`] when peers do not address the
    /// memory. The group's error when it failed or was closed.
    pub fn peer_address(&self, rank: usize) -> Result<*mut T> {
        let registration = self.registration.as_ref().ok_or_else(|| {
            Error::unsupported("an address of peers", "the memory of some rank cannot be shared, so it is pushed")
        })?;
        registration.address(rank).map(<*mut u8>::cast)
    }

    /// The registered memory of this rank.
    pub fn memory(&self) -> &Ref<'a, T> {
        &self.memory
    }
}

impl<T: Element> Sealed for &Adopted<'_, T> {
    fn view(&self) -> View<'_> {
        let place = match &self.registration {
            Some(registration) => Place::Registered { group: registration.group_id(), slot: registration.slot() },
            None => Place::Pushed,
        };
        View { place, ..self.memory.view() }
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for &'op Adopted<'a, T> {}

impl<T: Element> fmt::Debug for Adopted<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_shared() { "shared" } else { "pushed" };
        write!(out, "Adopted({} {}, {how})", self.memory.len(), T::DTYPE)
    }
}
