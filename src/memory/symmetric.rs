//! Buffers cut from the arena: every rank has one at the same offset, and addresses all of them.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::arena::Arena;
use super::block::Block;
use super::layout::ALIGN;
use super::operand::{Operand, Place, Sealed, View};
use super::plain::{Ref, size_bytes};
use super::range::within;
use super::signal::{PAD_BYTES, SignalPad};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::types::Element;

/// `len` elements of symmetric memory: collectives on it copy nothing and register nothing.
///
/// Made by every rank at once; starts as zeros. Dropping is free and immediate: the space is
/// used again once every rank has dropped its buffer and allocates another.
pub struct SymmetricBuffer<T: Element> {
    arena: Arc<Arena>,
    block: Arc<Block>,
    offset_bytes: u64,
    len: usize,
    _type: PhantomData<T>,
}

impl<T: Element> SymmetricBuffer<T> {
    /// Collective; the elements lie before the signal pad in one block.
    pub(crate) fn new(arena: &Arc<Arena>, len: usize) -> Result<Self> {
        let bytes = size_bytes::<T>(len).map(|bytes| bytes as u64);
        let (block, region) = arena.allocate(bytes, PAD_BYTES)?;
        Ok(Self { arena: arena.clone(), block, offset_bytes: region.offset, len, _type: PhantomData })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of this rank's elements, for its device.
    pub fn as_raw(&self) -> *mut T {
        self.arena.own(self.offset_bytes).cast()
    }

    /// The address of a peer's elements, for the device of this rank. Valid until the communicator is closed. Does not
    /// block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group, the group's error when it failed or was closed.
    pub fn peer_address(&self, rank: usize) -> Result<*mut T> {
        let address = self.at(rank)?;
        self.arena.group().check()?;
        Ok(address)
    }

    /// The same for a call that has entered the group, which stays open for so long.
    pub(crate) fn at(&self, rank: usize) -> Result<*mut T> {
        let world = self.arena.group().world_size();
        if rank >= world {
            return Err(Error::invalid("rank", rank, format!("the world size is {world}")));
        }
        Ok(self.arena.at(rank, self.offset_bytes).cast())
    }

    /// Elements `range` of the buffer. Every rank must use the same range in one operation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<SymmetricSlice<'_, T>> {
        let range = within(range, self.len)?;
        Ok(SymmetricSlice { buffer: self, start: range.start, len: range.end - range.start })
    }

    /// The signal pad that belongs to the buffer.
    ///
    /// It cannot outlive it:
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
    /// while this is fine:
    /// ```
    /// # use symmetra::*;
    /// fn within(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let pad = buffer.signals();
    ///     pad.barrier(0, stream)
    /// }
    /// ```
    /// Nor can a graph that uses it outlive the buffer:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn captured(communicator: &Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let pad = buffer.signals();
    ///     stream.capture(move |capture| pad.barrier(0, capture))
    /// }
    /// ```
    /// as here, where both go together:
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
        SignalPad::new(&self.arena, self.offset_bytes + bytes.next_multiple_of(ALIGN))
    }

    /// Copies `values` into this rank's elements after what `stream` does so far. Blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the length differs or the stream is of another device,
    /// [`Error::Unsupported`] while the stream is being captured, [`Error::Device`] when the copy fails.
    pub fn write(&self, values: &[T], stream: &Stream) -> Result<()> {
        self.borrow().write(values, stream)
    }

    /// Copies this rank's elements out after what `stream` does so far. Blocks.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        self.borrow().read(stream)
    }

    /// The memory of this rank alone, as a [`Ref`]: plain memory, to collectives. Where it is adopted, or registered by
    /// a graph, its space is not used again before those who reach it so cannot any more.
    pub fn borrow(&self) -> Ref<'_, T> {
        let memory = Ref::new(self.as_raw(), self.len, self.arena.group().device());
        memory.owned_by(Some(self.block.clone()))
    }
}

impl<T: Element> fmt::Debug for SymmetricBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SymmetricBuffer({} {} of {:?})", self.len, T::DTYPE, self.arena.group())
    }
}

/// Some elements of a [`SymmetricBuffer`].
#[derive(Clone, Copy, Debug)]
pub struct SymmetricSlice<'a, T: Element> {
    buffer: &'a SymmetricBuffer<T>,
    start: usize,
    len: usize,
}

impl<T: Element> SymmetricSlice<'_, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn view<T: Element>(buffer: &SymmetricBuffer<T>, start: usize, elems: usize) -> View<'_> {
    let group = buffer.arena.group();
    let offset_bytes = buffer.offset_bytes + (start * size_of::<T>()) as u64;
    View {
        address: buffer.arena.own(offset_bytes),
        elems,
        place: Place::Symmetric { group: group.id(), offset_bytes },
        device: group.device(),
        owner: None,
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
