//! Symmetric memory as kernels of the caller see it: plain data, laid out as the structures of `symmetra/device`.
#![allow(unsafe_code)]

use std::fmt;
use std::time::Duration;

use super::arena::Arena;
use super::layout::words_bytes;
use crate::kernel::args;

/// The memory of all ranks for a kernel of yours, laid out as `symmetra::device::Heap`: pass it by value, and give it to the
/// functions of `symmetra/device/heap.cuh`. [`Communicator::heap`](crate::Communicator::heap) makes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HeapView(args::Heap);

/// The signals of a symmetric buffer for a kernel of yours, laid out as `symmetra::device::SignalPad`: pass it by value, and
/// give it to the functions of `symmetra/device/signal.cuh`. [`SignalPad::view`](crate::SignalPad::view) makes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PadView(args::SignalPad);

/// A symmetric buffer on all ranks for a kernel of yours, laid out as `symmetra::device::PeerView`.
/// [`SymmetricBuffer::view`](crate::SymmetricBuffer::view) makes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PeerView {
    table: *const args::PeerTable,
    offset_bytes: u64,
    rank: u32,
    world: u32,
}

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

any_thread! { HeapView PadView PeerView }

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

    /// Where rank `rank` has what this rank has at `mine`, an address in a symmetric buffer. Null for a rank that there is not.
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

/// The pad of so many channels at an offset of every arena.
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
        write!(out, "PeerView({offset_bytes} bytes behind {table:?}, rank {rank} of {world})")
    }
}
