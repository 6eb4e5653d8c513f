//! Symmetric memory for kernels of the program: plain data, laid out as the structures of `symmetra/device`.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::arena::Arena;
use super::layout::words_bytes;
use crate::error::{Error, Result};
use crate::kernel::args;
use crate::types::Element;

/// The memory of all ranks for a kernel of yours, laid out as `symmetra::device::Heap`: pass it by value to the kernel,
/// which passes it to the functions of `symmetra/device/heap.cuh`. [`Communicator::heap`](crate::Communicator::heap)
/// creates it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HeapView(args::Heap);

/// The signals of a symmetric buffer for a kernel of yours, laid out as `symmetra::device::SignalPad`: pass it by value
/// to the kernel, which passes it to the functions of `symmetra/device/signal.cuh`.
/// [`SignalPad::view`](crate::SignalPad::view) creates it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PadView(args::SignalPad);

/// A symmetric buffer on all ranks for a kernel of yours, laid out as `symmetra::device::PeerView`.
/// [`SymmetricBuffer::view`](crate::SymmetricBuffer::view) creates it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PeerView {
    table: *const args::PeerTable,
    offset_bytes: u64,
    rank: u32,
    world: u32,
}

/// The elements of a symmetric buffer on all ranks, for the multicast accesses of a kernel of yours. Plain data, laid
/// out as `symmetra::device::MulticastData`: pass it by value to the kernel, which passes it to
/// `symmetra::device::Multicast` of `symmetra/device/multicast.cuh`. [`MulticastView::data`] creates it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct MulticastData(args::Multicast);

/// Elements of a symmetric buffer on all ranks, by multicast: a load returns the sum over the ranks, and a store writes
/// on every rank. [`SymmetricBuffer::multicast`](crate::SymmetricBuffer::multicast) and
/// [`SymmetricSlice::multicast`](crate::SymmetricSlice::multicast) create it.
///
/// Only multicast accesses of kernels may use the address; the effect of an ordinary load, store or copy there is
/// undefined. So the view cannot be copied to or from the host, and it is not an operand:
/// ```compile_fail,E0277
/// # use symmetra::*;
/// fn sum(communicator: &Communicator, view: MulticastView<'_, f32>, stream: &Stream) -> Result<()> {
///     communicator.all_reduce(view, view, stream)
/// }
/// ```
/// It cannot outlive the buffer:
/// ```compile_fail,E0597
/// # use symmetra::*;
/// fn outlive(communicator: &Communicator) -> Result<u64> {
///     let view = {
///         let buffer = communicator.symmetric::<f32>(8)?;
///         buffer.multicast()?
///     };
///     Ok(view.address())
/// }
/// ```
/// This compiles:
/// ```
/// # use symmetra::*;
/// fn within(communicator: &Communicator) -> Result<u64> {
///     let buffer = communicator.symmetric::<f32>(8)?;
///     let view = buffer.multicast()?;
///     Ok(view.address())
/// }
/// ```
#[derive(Clone, Copy)]
pub struct MulticastView<'buffer, T: Element> {
    data: MulticastData,
    buffer: PhantomData<&'buffer T>,
}

/// Bytes of a multicast access, which is aligned to its size.
const ACCESS_BYTES: u64 = 16;

// `include/symmetra/device/peer.cuh` asserts the size.
const _: () = assert!(size_of::<PeerView>() == 24);

macro_rules! any_thread {
    ($($view:ty)*) => {$(
        // SAFETY: addresses that Rust never follows; kernels do, and any thread may launch.
        unsafe impl Send for $view {}
        // SAFETY: addresses that Rust never follows, and that never change.
        unsafe impl Sync for $view {}
    )*};
}

any_thread! { HeapView PadView PeerView MulticastData }

impl HeapView {
    /// The heap of a group. Waits of kernels give up after `timeout`.
    pub(crate) fn new(arena: &Arena, timeout: Duration) -> Self {
        let (layout, channels) = (arena.layout(), arena.group().config().heap_channels);
        let signals = pad_at(arena, layout.kernel_signals.offset, channels as usize, arena.wait_for(timeout));
        Self(args::Heap {
            base: arena.everywhere(layout.heap.offset),
            bytes: layout.heap.bytes,
            signals,
            channels,
            reserved: 0,
        })
    }

    /// The plain data.
    pub(crate) fn raw(&self) -> args::Heap {
        self.0
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.0.signals.rank as usize
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.0.signals.world as usize
    }

    /// Channels of the signals.
    pub fn channels(&self) -> u32 {
        self.0.channels
    }

    /// The address on rank `rank` that corresponds to `mine`, an address in a symmetric buffer of this rank. Null if
    /// `rank` is not below the world size.
    pub fn at<T>(&self, mine: *mut T, rank: usize) -> *mut T {
        let own = self.0.base.get(self.rank()).map_or(0, |base| base.addr());
        let theirs = self.0.base.get(rank).filter(|base| !base.is_null());
        theirs.map_or(std::ptr::null_mut(), |base| base.wrapping_add(mine.addr().wrapping_sub(own)).cast())
    }
}

impl PadView {
    pub(super) fn new(pad: args::SignalPad) -> Self {
        Self(pad)
    }
}

impl PeerView {
    pub(super) fn new(table: *const args::PeerTable, offset_bytes: u64, rank: u32, world: u32) -> Self {
        Self { table, offset_bytes, rank, world }
    }
}

impl MulticastData {
    /// The data at an offset of every rank's arena.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if multicast is not open; [`Error::InvalidArgument`] for an offset that is not a multiple
    /// of 16 bytes; the group's error if the group has failed or is closed.
    pub(crate) fn at(arena: &Arena, offset_bytes: u64) -> Result<Self> {
        arena.group().check()?;
        let closed = |why: &str| Error::unsupported("a multicast view", format!("multicast is not open: {why}"));
        let bound = arena.multicast().map_err(closed)?;
        if !offset_bytes.is_multiple_of(ACCESS_BYTES) {
            let value = format!("{offset_bytes} bytes from the start of the arena");
            let limit = format!("it must be a multiple of {ACCESS_BYTES} bytes: so is a multicast access");
            return Err(Error::invalid("the start of a multicast view", value, limit));
        }
        // Table 0 holds the arenas.
        Ok(Self(bound.at(arena.table(0), arena.group().world_size(), offset_bytes)))
    }

    /// The plain data.
    pub(crate) fn raw(&self) -> args::Multicast {
        self.0
    }
}

impl<T: Element> MulticastView<'_, T> {
    pub(super) fn new(data: MulticastData) -> Self {
        Self { data, buffer: PhantomData }
    }

    /// The address of the elements, by which this rank's device addresses them on all ranks together. A number, because no
    /// ordinary access may use it. Valid until the communicator is closed. On the host device no memory is mapped there.
    pub fn address(&self) -> u64 {
        let MulticastData(data) = &self.data;
        data.address.addr() as u64 + data.offset_bytes
    }

    /// Bytes from the start of every rank's arena to the elements; a multiple of 16.
    pub fn offset_bytes(&self) -> u64 {
        self.data.0.offset_bytes
    }

    /// The view for a kernel of yours. Valid until the communicator is closed.
    pub fn data(&self) -> MulticastData {
        self.data
    }
}

/// The pad of `channels` channels at an offset of every arena.
pub(super) fn pad_at(arena: &Arena, offset_bytes: u64, channels: usize, wait: args::Wait) -> args::SignalPad {
    let group = arena.group();
    let words_bytes = words_bytes(channels, group.world_size());
    args::SignalPad {
        pads: arena.everywhere(offset_bytes).map(|pad| pad.cast()),
        sent: arena.own(offset_bytes + words_bytes).cast(),
        awaited: arena.own(offset_bytes + 2 * words_bytes).cast(),
        wait,
        rank: group.rank() as u32,
        world: group.world_size() as u32,
    }
}

impl fmt::Debug for HeapView {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(heap) = self;
        write!(out, "HeapView({} bytes and {} channels of {} ranks)", heap.bytes, heap.channels, heap.signals.world)
    }
}

impl fmt::Debug for PadView {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PadView(rank {} of {})", self.0.rank, self.0.world)
    }
}

impl fmt::Debug for PeerView {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, offset_bytes, rank, world } = self;
        write!(out, "PeerView(at byte {offset_bytes} of {table:?}, rank {rank} of {world})")
    }
}

impl fmt::Debug for MulticastData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(data) = self;
        write!(out, "MulticastData(at byte {} of {:?}, {} ranks)", data.offset_bytes, data.address, data.world)
    }
}

impl<T: Element> fmt::Debug for MulticastView<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MulticastData(data) = &self.data;
        let (name, offset_bytes, world) = (T::DTYPE, data.offset_bytes, data.world);
        write!(out, "MulticastView({name}, at byte {offset_bytes} of {:?}, {world} ranks)", data.address)
    }
}
