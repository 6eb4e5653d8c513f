//! The caller's memory, registered with all ranks.

use std::fmt::{self, Debug};
use std::ops::RangeBounds;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::operand::{Operand, Place, Sealed, View};
use super::plain::Ref;
use super::range::within;
use super::registration::{Pointer, Registration, register};
use crate::bootstrap::hello::tell;
use crate::error::{Error, Result};
use crate::group::{Group, MAX_WORLD_SIZE};
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

    /// Registers `memory`, which this rank reaches on every rank by `peers`. Collective. An error in `memory` or `peers` is
    /// reported to all ranks.
    pub(crate) fn mapped(arena: &Arc<Arena>, memory: Result<Ref<'a, T>>, peers: &[*mut T]) -> Result<Self> {
        let group = arena.group();
        let own = memory.and_then(|memory| {
            group.device().check_same("the memory", memory.device())?;
            let addresses = addresses_of(group.rank(), group.world_size(), &memory, peers)?;
            arena.reclaim()?;
            Ok((memory, addresses, Registration::reserve(arena)?))
        });
        let agreed = group.exchange(|mesh, deadline| mesh.agree("adopt mapped memory", own, deadline));
        let (memory, addresses, registration) = agreed?;
        check_alike(group, &Told { elems: memory.len(), dtype: T::DTYPE.to_string() })?;
        let written = arena.write_table(registration.slot(), &addresses);
        group.exchange(|mesh, deadline| mesh.agree("adopt mapped memory", written, deadline))?;
        Ok(Self { memory, registration: Some(Arc::new(registration)) })
    }

    /// Elements `range` of the memory. Every rank must use the same range in one operation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range outside the memory.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<AdoptedSlice<'_, T>> {
        let range = within(range, self.memory.len())?;
        Ok(AdoptedSlice { adopted: self, start: range.start, len: range.end - range.start })
    }

    /// Whether peers address the memory directly. Equal on every rank.
    pub fn is_shared(&self) -> bool {
        self.registration.is_some()
    }

    /// The address of `rank`'s memory for this rank's device. Valid until the communicator is closed. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group. [`Error::Unsupported`] when peers do not address the
    /// memory. The group's error if the group has failed or was closed.
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

/// A range of elements of an [`Adopted`].
#[derive(Clone, Copy, Debug)]
pub struct AdoptedSlice<'a, T: Element> {
    adopted: &'a Adopted<'a, T>,
    start: usize,
    len: usize,
}

impl<T: Element> AdoptedSlice<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What ranks compare of memory that they have mapped.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    elems: usize,
    dtype: String,
}

/// Refuses memory whose length or type differs between ranks.
fn check_alike(group: &Group, own: &Told) -> Result<()> {
    let told = group.exchange(|mesh, deadline| tell(mesh, "to adopt mapped memory", own, deadline))?;
    let Some((first, others)) = told.split_first() else { return Ok(()) };
    match others.iter().zip(1..).find(|(theirs, _)| *theirs != first) {
        None => Ok(()),
        Some((theirs, rank)) => {
            let words = |told: &Told| format!("{} {}", told.elems, told.dtype);
            let what = "the mapped memory that is adopted".to_owned();
            Err(Error::Mismatch { what, against: 0, ours: words(first), rank, theirs: words(theirs) })
        }
    }
}

/// The addresses of all ranks, checked.
fn addresses_of<T: Element>(
    rank: usize,
    world: usize,
    memory: &Ref<'_, T>,
    peers: &[*mut T],
) -> Result<[*mut u8; MAX_WORLD_SIZE]> {
    if peers.len() != world {
        return Err(Error::invalid("the number of addresses", peers.len(), format!("the world size is {world}")));
    }
    let mut addresses = [std::ptr::null_mut(); MAX_WORLD_SIZE];
    for (peer, &address) in peers.iter().enumerate() {
        let what = format!("the address of rank {peer}'s memory");
        let shown = format!("{address:p}");
        if address.is_null() && !memory.is_empty() {
            return Err(Error::invalid(&what, shown, "the memory has elements"));
        }
        if !address.is_aligned() {
            return Err(Error::invalid(&what, shown, format!("{} is aligned to {} bytes", T::DTYPE, align_of::<T>())));
        }
        if peer == rank && address != memory.as_raw() {
            return Err(Error::invalid(&what, shown, format!("this rank's memory is at {:p}", memory.as_raw())));
        }
        addresses[peer] = address.cast();
    }
    Ok(addresses)
}

impl<T: Element> Adopted<'_, T> {
    pub(crate) fn view_from(&self, start: usize, elems: usize) -> View<'_> {
        let (skipped, whole) = (start * size_of::<T>(), self.memory.view());
        let place = match &self.registration {
            Some(registration) => {
                Place::Registered { group: registration.group_id(), slot: registration.slot(), offset_bytes: 0 }
            }
            None => Place::Pushed,
        };
        View { place: place.after(skipped), elems, address: whole.address.wrapping_add(skipped), ..whole }
    }
}

impl<T: Element> Sealed for &Adopted<'_, T> {
    fn view(&self) -> View<'_> {
        self.view_from(0, self.memory.len())
    }
}
impl<T: Element> Sealed for AdoptedSlice<'_, T> {
    fn view(&self) -> View<'_> {
        self.adopted.view_from(self.start, self.len)
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for AdoptedSlice<'a, T> {}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for &'op Adopted<'a, T> {}

impl<T: Element> fmt::Debug for Adopted<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_shared() { "shared" } else { "pushed" };
        write!(out, "Adopted({} {}, {how})", self.memory.len(), T::DTYPE)
    }
}
