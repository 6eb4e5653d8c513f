//! Symmetric buffers: every rank has a buffer at the same offset of its arena, and can address all of them.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::arena::Arena;
use super::block::BlockShare;
use super::host_copies::group_copies;
use super::layout::{ALIGN, SIGNAL_CHANNELS, pad_bytes};
use super::operand::{Operand, Place, Sealed, View};
use super::plain::{Ref, size_bytes};
use super::range::within;
use super::signal::SignalPad;
use super::view::{MulticastData, MulticastView, PeerView};
use crate::error::{Error, Result};
use crate::types::Element;

/// `len` elements of symmetric memory. Collectives on it are zero-copy and need no registration.
///
/// Every rank creates the buffer at the same time; it starts as zeros. Dropping it does not block. Its space is reused
/// after every rank has dropped its buffer and creates another.
pub struct SymmetricBuffer<T: Element> {
    arena: Arc<Arena>,
    block: Arc<BlockShare>,
    offset_bytes: u64,
    len: usize,
    _type: PhantomData<T>,
}

impl<T: Element> SymmetricBuffer<T> {
    /// Creates the buffer. Collective. One block contains the elements, followed by the signal pad.
    pub(crate) fn new(arena: &Arc<Arena>, len: usize) -> Result<Self> {
        let bytes = size_bytes::<T>(len).map(|bytes| bytes as u64);
        let (block, region) = arena.allocate(bytes, pad_bytes(SIGNAL_CHANNELS, arena.group().world_size()))?;
        Ok(Self { arena: arena.clone(), block, offset_bytes: region.offset, len, _type: PhantomData })
    }

    /// The offset of the elements in each rank's arena.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Number of elements on each rank.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of this rank's elements, for its device.
    pub fn as_raw(&self) -> *mut T {
        self.arena.own(self.offset_bytes).cast()
    }

    /// The address of rank `rank`'s elements, for this rank's device. Valid until the communicator is closed. Does not
    /// block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group, the group's error when it failed or was closed.
    pub fn peer_address(&self, rank: usize) -> Result<*mut T> {
        let address = self.at(rank)?;
        self.arena.group().check()?;
        Ok(address)
    }

    /// The address of rank `rank`'s elements, for a call that has entered the group and so keeps it open.
    pub(crate) fn at(&self, rank: usize) -> Result<*mut T> {
        let world = self.arena.group().world_size();
        if rank >= world {
            return Err(Error::invalid("rank", rank, format!("the world size is {world}")));
        }
        Ok(self.arena.at(rank, (self.offset_bytes, (self.len * size_of::<T>()) as u64))?.cast())
    }

    /// The buffer for a kernel of yours: plain data, laid out as `symmetra::device::PeerView`. Its addresses are valid
    /// until the communicator is closed.
    pub fn view(&self) -> PeerView {
        let group = self.arena.group();
        // Table 0 holds the arenas.
        PeerView::new(self.arena.table(0), self.offset_bytes, group.rank() as u32, group.world_size() as u32)
    }

    /// The buffer by multicast, for a kernel of yours. Contacts no peer, and does not block. Each rank may create it or
    /// not.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason, if multicast is not open
    /// ([`Config::multicast`](crate::Config::multicast) enables it); the group's error if the group has failed or is
    /// closed.
    pub fn multicast(&self) -> Result<MulticastView<'_, T>> {
        MulticastData::at(&self.arena, self.offset_bytes).map(MulticastView::new)
    }

    /// Elements `range` of the buffer. Every rank must use the same range in one operation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<SymmetricSlice<'_, T>> {
        let range = within(range, self.len)?;
        Ok(SymmetricSlice { buffer: self, start: range.start, len: range.end - range.start })
    }

    /// The buffer's signal pad. It cannot outlive the buffer:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn outlive(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let pad = {
    ///         let buffer = communicator.symmetric::<f32>(8)?;
    ///         buffer.signals()
    ///     };
    ///     pad.barrier(0, stream)
    /// }
    /// ```
    /// This compiles:
    /// ```
    /// # use symmetra::*;
    /// fn within(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let pad = buffer.signals();
    ///     pad.barrier(0, stream)
    /// }
    /// ```
    /// A graph that uses the pad cannot outlive the buffer either:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn captured(communicator: &Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let pad = buffer.signals();
    ///     stream.capture(move |capture| pad.barrier(0, capture))
    /// }
    /// ```
    /// Here the graph does not outlive the buffer:
    /// ```
    /// # use symmetra::*;
    /// fn captured(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let pad = buffer.signals();
    ///     stream.capture(move |capture| pad.barrier(0, capture))?.launch(stream)
    /// }
    /// ```
    pub fn signals(&self) -> SignalPad<'_> {
        let bytes = (self.len * size_of::<T>()) as u64;
        let guard_bytes = self.arena.layout().guard_bytes;
        SignalPad::new(&self.arena, self.offset_bytes + bytes.next_multiple_of(ALIGN) + guard_bytes)
    }

    /// Checks that the results of finished calls in this buffer are valid.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.arena.group().confirm()
    }

    /// This rank's elements as a [`Ref`], which collectives treat as plain memory. After it was registered, its space
    /// is reused only when no rank can address it through that registration.
    pub fn borrow(&self) -> Ref<'_, T> {
        let memory = Ref::new(self.as_raw(), self.len, self.arena.group().device());
        memory.owned_by(Some(self.block.clone()))
    }
}

group_copies! { SymmetricBuffer<T>, borrow, confirm }

impl<T: Element> fmt::Debug for SymmetricBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SymmetricBuffer({} {} of {:?})", self.len, T::DTYPE, self.arena.group())
    }
}

/// A range of elements of a [`SymmetricBuffer`].
#[derive(Clone, Copy, Debug)]
pub struct SymmetricSlice<'a, T: Element> {
    buffer: &'a SymmetricBuffer<T>,
    start: usize,
    len: usize,
}

impl<'a, T: Element> SymmetricSlice<'a, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This rank's elements as a [`Ref`]: see [`SymmetricBuffer::borrow`].
    pub fn borrow(&self) -> Ref<'a, T> {
        self.buffer.borrow().part(self.start..self.start + self.len)
    }

    /// Checks that the results of finished calls in this buffer are valid.
    fn confirm(&self) -> Result<()> {
        self.buffer.confirm()
    }

    /// The slice by multicast, for a kernel of yours: as [`SymmetricBuffer::multicast`]. The slice must start at a
    /// multiple of 16 bytes of the buffer.
    ///
    /// # Errors
    /// The errors of [`SymmetricBuffer::multicast`], and [`Error::InvalidArgument`] for a slice that starts elsewhere.
    pub fn multicast(&self) -> Result<MulticastView<'a, T>> {
        let offset_bytes = self.buffer.offset_bytes + (self.start * size_of::<T>()) as u64;
        MulticastData::at(&self.buffer.arena, offset_bytes).map(MulticastView::new)
    }
}

group_copies! { SymmetricSlice<'a, T>, borrow, confirm }

fn view<T: Element>(buffer: &SymmetricBuffer<T>, start: usize, elems: usize) -> View<'_> {
    let group = buffer.arena.group();
    let offset_bytes = buffer.offset_bytes + (start * size_of::<T>()) as u64;
    View {
        address: buffer.arena.own(offset_bytes),
        elems,
        place: Place::Symmetric { group: group.id(), offset_bytes },
        device: group.device(),
        owner: None,
        read_only: false,
    }
}

impl<T: Element> Sealed for &SymmetricBuffer<T> {
    fn view(&self) -> View<'_> {
        view(self, 0, self.len)
    }
}
impl<'op, T: Element> Operand<'op, T> for &'op SymmetricBuffer<T> {}

impl<T: Element> Sealed for SymmetricSlice<'_, T> {
    fn view(&self) -> View<'_> {
        view(self.buffer, self.start, self.len)
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for SymmetricSlice<'a, T> {}
