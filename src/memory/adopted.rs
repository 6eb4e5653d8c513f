//! Memory of the program, registered with all ranks.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::host_copies::plain_copies;
use super::operand::{Operand, Place, Sealed, View};
use super::owner::Owner;
use super::plain::{Ref, size_bytes};
use super::pools::{PoolEntry, Pools};
use super::range::within;
use super::registration::{Pointer, Registration, register};
use crate::bootstrap::hello::tell;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::{Group, MAX_WORLD_SIZE};
use crate::types::Element;

/// Memory of the program, registered for collectives. Every rank registers its own memory, of equal length.
///
/// If every rank's memory can be shared, peers address it directly (zero-copy). If the memory of one rank cannot be
/// shared (pool, managed, host memory), nothing is exported and messages pass through the
/// arena, with equal results. [`is_shared`](Self::is_shared) returns which case applies.
///
/// An operand of a call may be the whole memory, a [`slice`](Self::slice), [elements](Self::elements) of any type at a
/// byte offset, or any memory inside it, such as a [`Ref`] or a [`DeviceBuffer`](crate::DeviceBuffer): the communicator
/// finds the operand by its address. So a pool that is adopted as a whole takes one registration, for eager calls and
/// for graphs. An operand must have the same offset on every rank. `check_calls` and
/// [`Graph::register`](crate::Graph::register) compare offsets. [`Ref::through_scratch`] is for an operand whose offset
/// differs. All ranks drop this object between the same calls. After that, an operand by address is plain memory again.
pub struct Adopted<'a, T: Element> {
    /// Declared first: it is dropped before the registration, so that no call finds memory without one.
    _entry: PoolEntry,
    memory: Ref<'a, T>,
    registration: Option<Arc<Registration>>,
}

impl<'a, T: Element> Adopted<'a, T> {
    /// Registers `memory`. Collective. An error in `memory` is reported to all ranks.
    pub(crate) fn new(arena: &Arc<Arena>, pools: &Arc<Pools>, memory: Result<Ref<'a, T>>) -> Result<Self> {
        let own = memory.and_then(|memory| {
            arena.group().device().check_same("the memory", memory.device())?;
            memory.view().check_writable("the memory to adopt")?;
            Ok((memory, Registration::reserve(arena)?))
        });
        let agreed = arena.group().exchange(|mesh, deadline| mesh.agree("adopt memory", own, deadline));
        let (memory, registration) = agreed?;
        let view = memory.view();
        let (address, bytes) = (view.address, view.elems * size_of::<T>());
        let owner = view.owner.cloned();
        let pointer = Pointer { registration: &registration, address, bytes, owner, by_pieces: true };
        let shared = register(arena, &[pointer], &[])?;
        let registration = shared.first().copied().unwrap_or(false).then(|| Arc::new(registration));
        let entry = PoolEntry::new(arena, pools, address, bytes, registration.as_ref());
        Ok(Self { _entry: entry, memory, registration })
    }

    /// Registers `memory`; this rank addresses the memory of all ranks by `peers`. Collective. An error in `memory` or
    /// `peers` is reported to all ranks.
    pub(crate) fn mapped(
        arena: &Arc<Arena>,
        pools: &Arc<Pools>,
        memory: Result<Ref<'a, T>>,
        peers: &[*mut T],
    ) -> Result<Self> {
        let group = arena.group();
        let own = memory.and_then(|memory| {
            group.device().check_same("the memory", memory.device())?;
            memory.view().check_writable("the memory to adopt")?;
            let addresses = addresses_of(group.rank(), group.world_size(), &memory, peers)?;
            arena.reclaim()?;
            Ok((memory, addresses, Registration::reserve(arena)?))
        });
        let agreed = group.exchange(|mesh, deadline| mesh.agree("adopt mapped memory", own, deadline));
        let (memory, addresses, registration) = agreed?;
        check_alike(group, &AdoptedShape { elems: memory.len(), dtype: T::DTYPE.to_string() })?;
        let written = arena.write_table(registration.slot(), &addresses);
        group.exchange(|mesh, deadline| mesh.agree("adopt mapped memory", written, deadline))?;
        let (bytes, registration) = (memory.len() * size_of::<T>(), Some(Arc::new(registration)));
        let entry = PoolEntry::new(arena, pools, memory.as_raw().cast(), bytes, registration.as_ref());
        Ok(Self { _entry: entry, memory, registration })
    }

    /// Elements `range` of the memory. Every rank must use the same range in one operation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range outside the memory.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<AdoptedSlice<'_, T>> {
        let range = within(range, self.memory.len())?;
        Ok(AdoptedSlice::of(&self.view_from(range.start * size_of::<T>(), range.len())))
    }

    /// `count` elements of any type, from byte `offset_bytes` of the memory on. Every rank must use the same offset in
    /// one operation. The memory of a pool has no element type: adopt it as bytes.
    /// ```
    /// # use half::bf16;
    /// # use symmetra::*;
    /// fn sum(communicator: &Communicator, pool: &Adopted<u8>, stream: &Stream) -> Result<()> {
    ///     let (hidden, logits) = (pool.elements::<bf16>(0, 4096)?, pool.elements::<f32>(8192, 1000)?);
    ///     communicator.all_reduce_in_place(hidden, stream)?;
    ///     communicator.all_reduce_in_place(logits, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for elements outside the memory, and for an address that is not aligned to the type.
    pub fn elements<U: Element>(&self, offset_bytes: usize, count: usize) -> Result<AdoptedSlice<'_, U>> {
        self.view_of_elements::<U>(offset_bytes, count).map(|view| AdoptedSlice::of(&view))
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

/// A range of an [`Adopted`], as elements of its own type or of another type.
#[derive(Clone, Copy)]
pub struct AdoptedSlice<'a, T: Element> {
    address: usize,
    len: usize,
    place: Place,
    device: &'a Device,
    owner: Option<&'a Owner>,
    _type: PhantomData<T>,
}

impl<'a, T: Element> AdoptedSlice<'a, T> {
    fn of(view: &View<'a>) -> Self {
        let View { address, elems, place, device, owner, .. } = *view;
        Self { address: address as usize, len: elems, place, device, owner, _type: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This rank's elements as a [`Ref`]. The communicator finds them by their address.
    pub fn borrow(&self) -> Ref<'a, T> {
        Ref::new(self.address as *mut T, self.len, self.device).owned_by(self.owner.cloned())
    }
}

plain_copies! { Adopted<'a, T>, memory }
plain_copies! { AdoptedSlice<'a, T>, borrow }

/// The properties of mapped memory that ranks compare.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct AdoptedShape {
    elems: usize,
    dtype: String,
}

/// Refuses memory whose length or type differs between ranks.
fn check_alike(group: &Group, own: &AdoptedShape) -> Result<()> {
    let told = group.exchange(|mesh, deadline| tell(mesh, "to adopt mapped memory", own, deadline))?;
    let Some((first, others)) = told.split_first() else { return Ok(()) };
    match others.iter().zip(1..).find(|(theirs, _)| *theirs != first) {
        None => Ok(()),
        Some((theirs, rank)) => {
            let words = |told: &AdoptedShape| format!("{} {}", told.elems, told.dtype);
            let what = "the mapped memory that is adopted".to_owned();
            let (ours, theirs) = (words(first), words(theirs));
            Err(group.placed(Error::Mismatch { what, against: 0, ours, rank, theirs }))
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
    /// Elements of another type, checked.
    pub(crate) fn view_of_elements<U: Element>(&self, offset_bytes: usize, count: usize) -> Result<View<'_>> {
        let (bytes, have) = (size_bytes::<U>(count)?, self.memory.len() * size_of::<T>());
        if offset_bytes.checked_add(bytes).is_none_or(|end| end > have) {
            let value = format!("{count} elements of {} from byte {offset_bytes}", U::DTYPE);
            return Err(Error::invalid("the range", value, format!("the memory has {have} bytes")));
        }
        let address = self.memory.as_raw() as usize + offset_bytes;
        if bytes > 0 && !address.is_multiple_of(align_of::<U>()) {
            let value = format!("{address:#x}, at byte {offset_bytes} of the memory");
            let limit = format!("{} must be aligned to {} bytes", U::DTYPE, align_of::<U>());
            return Err(Error::invalid("the address", value, limit));
        }
        Ok(self.view_from(offset_bytes, count))
    }

    /// `elems` elements after `skipped` bytes. The caller has checked that they are inside the memory.
    pub(crate) fn view_from(&self, skipped: usize, elems: usize) -> View<'_> {
        let whole = self.memory.view();
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
        let Self { address, len, place, device, owner, .. } = *self;
        View { address: address as *mut u8, elems: len, place, device, owner, read_only: false }
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for AdoptedSlice<'a, T> {}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for &'op Adopted<'a, T> {}

impl<T: Element> fmt::Debug for AdoptedSlice<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "AdoptedSlice({} {} at {:#x})", self.len, T::DTYPE, self.address)
    }
}

impl<T: Element> fmt::Debug for Adopted<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_shared() { "shared" } else { "pushed" };
        write!(out, "Adopted({} {}, {how})", self.memory.len(), T::DTYPE)
    }
}
