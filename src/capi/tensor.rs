//! Memory whose element type is known only to C++.

use std::sync::Arc;

use super::bridge::{MaybeOperand, Operand, Queue};
use super::mirror::value;
use super::report::guard;
use super::{Communicator, Device, Report, Stream};
use crate::error::{Error, Result};
use crate::kernel::args::{Multicast, SignalArgs, kSignalBarrier, kSignalPut, kSignalWait};
use crate::memory::{
    Adopted, DeviceBuffer, MulticastData, Owner, Place, Ref, SignalPad, SymmetricBuffer, View, WithView,
};
use crate::op::Held;
use crate::stream::Target;
use crate::types::{Dtype, Element, with_type};

/// A buffer or registered memory. Cheap to clone; clones share ownership.
#[derive(Clone)]
pub struct Tensor {
    owner: Arc<dyn UntypedMemory>,
    address: usize,
    count: usize,
    place: Place,
    device: Device,
    dtype: Dtype,
    /// The owner of plain memory.
    keeper: Option<Owner>,
}

/// A buffer without its element type.
pub(super) trait UntypedMemory: Send + Sync {
    /// The signal array, if the buffer has one.
    fn signals(&self) -> Option<SignalPad<'_>> {
        None
    }

    fn peer_address(&self, _rank: usize) -> Result<usize> {
        Err(Error::unsupported("an address of peers", "only symmetric and adopted memory have one"))
    }

    /// Elements of another type, from a byte offset on.
    fn elements(&self, _dtype: Dtype, _offset_bytes: usize, _count: usize) -> Result<View<'_>> {
        Err(Error::unsupported("elements of another type", "only adopted memory has them"))
    }

    /// Checks the results of finished calls, if the memory belongs to a group.
    fn confirm(&self) -> Result<()> {
        Ok(())
    }
}

impl<T: Element> UntypedMemory for SymmetricBuffer<T> {
    fn signals(&self) -> Option<SignalPad<'_>> {
        Some(SymmetricBuffer::signals(self))
    }

    fn peer_address(&self, rank: usize) -> Result<usize> {
        SymmetricBuffer::peer_address(self, rank).map(|address| address as usize)
    }

    fn confirm(&self) -> Result<()> {
        SymmetricBuffer::confirm(self)
    }
}

impl<T: Element> UntypedMemory for DeviceBuffer<T> {}
impl<T: Element> UntypedMemory for Adopted<'_, T> {
    fn peer_address(&self, rank: usize) -> Result<usize> {
        Adopted::peer_address(self, rank).map(|address| address as usize)
    }

    fn elements(&self, dtype: Dtype, offset_bytes: usize, count: usize) -> Result<View<'_>> {
        with_type!(dtype, U => self.view_of_elements::<U>(offset_bytes, count))
    }
}

#[cfg(feature = "nvshmem")]
impl<T: Element> UntypedMemory for crate::nvshmem::Buffer<T> {
    fn peer_address(&self, rank: usize) -> Result<usize> {
        crate::nvshmem::Buffer::peer_address(self, rank).map(|address| address as usize)
    }

    fn elements(&self, dtype: Dtype, offset_bytes: usize, count: usize) -> Result<View<'_>> {
        with_type!(dtype, U => self.view_of_elements::<U>(offset_bytes, count))
    }

    fn confirm(&self) -> Result<()> {
        crate::nvshmem::Buffer::confirm(self)
    }
}

impl Tensor {
    pub(super) fn new<M: UntypedMemory + 'static>(memory: M, dtype: Dtype) -> Box<Self>
    where
        for<'a> &'a M: WithView,
    {
        let reference = &memory;
        let View { address, elems, place, device, owner, .. } = reference.view_of();
        let (address, device, keeper) = (address as usize, device.clone(), owner.cloned());
        Box::new(Self { address, count: elems, place, device, dtype, keeper, owner: Arc::new(memory) })
    }

    /// Bytes as elements of another type.
    pub(super) fn of_bytes(memory: DeviceBuffer<u8>, dtype: Dtype) -> Box<Self> {
        let bytes = Self::new(memory, dtype);
        Box::new(Self { count: bytes.count / dtype.bytes(), ..*bytes })
    }

    fn pad(&self) -> Result<SignalPad<'_>> {
        self.owner.signals().ok_or_else(|| Error::unsupported("a signal pad", "only symmetric buffers have one"))
    }

    /// Elements `start..start + count`.
    fn slice(&self, start: usize, count: usize) -> Result<View<'_>> {
        if start.checked_add(count).is_none_or(|end| end > self.count) {
            let value = format!("{count} elements from {start}");
            return Err(Error::invalid("the range", value, format!("the memory has {}", self.count)));
        }
        let skipped = start * self.dtype.bytes();
        let (address, owner) = ((self.address + skipped) as *mut u8, self.keeper.as_ref());
        Ok(View {
            address,
            elems: count,
            place: self.place.after(skipped),
            device: &self.device,
            owner,
            read_only: false,
        })
    }
}

/// The checked view of an operand, and its element type.
///
/// # Safety
/// The operand's pointers are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn resolve<'a>(device: &'a Device, operand: &Operand) -> Result<(View<'a>, Dtype)> {
    let Operand { tensor, address, start, count, dtype: number, typed, pushed } = *operand;
    // SAFETY: borrowing.
    if let Some(tensor) = unsafe { tensor.as_ref::<'a>() } {
        if typed {
            let dtype = value::<Dtype>(number)?;
            return Ok((tensor.owner.elements(dtype, start, count)?, dtype));
        }
        return Ok((tensor.slice(start, count)?, tensor.dtype));
    }
    let dtype = value::<Dtype>(number)?;
    // SAFETY: caller's duty.
    with_type!(dtype, T => unsafe { Ref::<T>::from_raw(device, address.cast(), count) }.map(drop))?;
    let place = if pushed { Place::Pushed } else { Place::Plain };
    Ok((View { address, elems: count, place, device, owner: None, read_only: false }, dtype))
}

/// The checked operand, with its element type.
///
/// # Safety
/// The operand's pointers are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn held(device: &Device, operand: &Operand) -> Result<Held> {
    // SAFETY: passed on.
    let (view, dtype) = unsafe { resolve(device, operand) }?;
    Ok(Held::new(dtype, &view))
}

/// The checked operand, if there is one.
///
/// # Safety
/// The operand's pointers are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn maybe_held(device: &Device, asked: &MaybeOperand) -> Result<Option<Held>> {
    // SAFETY: passed on.
    asked.set.then(|| unsafe { held(device, &asked.operand) }).transpose()
}

/// The tensors among operands.
///
/// # Safety
/// The pointers of operands are those of the headers: *borrowing*.
pub(super) unsafe fn tensors<'t, 'o>(
    operands: impl IntoIterator<Item = &'o Operand>,
) -> impl Iterator<Item = &'t Tensor> {
    // SAFETY: borrowing. An absent operand's pointer is null.
    operands.into_iter().filter_map(|operand| unsafe { operand.tensor.as_ref() })
}

/// Where a queue enqueues. A capture keeps the tensors among `operands` as long as its graph lives.
///
/// # Safety
/// The pointers of queue and operands are those of the headers: *borrowing*.
pub(super) unsafe fn target<'a, 'o>(
    queue: Queue,
    operands: impl IntoIterator<Item = &'o Operand>,
) -> Result<Target<'a>> {
    // SAFETY: passed on.
    unsafe { target_keeping(queue, tensors(operands)) }
}

/// Where a queue enqueues. A capture keeps `tensors` as long as its graph lives; a stream never runs the iterator.
///
/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn target_keeping<'a, 't>(queue: Queue, tensors: impl IntoIterator<Item = &'t Tensor>) -> Result<Target<'a>> {
    // SAFETY: borrowing.
    let (stream, capture) = (unsafe { queue.stream.as_ref() }, unsafe { queue.capture.as_ref() });
    match (stream, capture) {
        (Some(stream), _) => Ok(stream.into()),
        (None, Some(capture)) => Ok(capture.keep(tensors)?.into()),
        (None, None) => Err(Error::invalid("the queue", "missing", "a call has a stream or a capture")),
    }
}

pub(super) fn tensor_symmetric(communicator: &Communicator, count: usize, number: u32) -> Result<Box<Tensor>, Report> {
    guard(|| {
        let dtype = value::<Dtype>(number)?;
        Ok(with_type!(dtype, T => Tensor::new(communicator.symmetric::<T>(count)?, dtype)))
    })
}

/// `mapped`: the addresses `peers`, one for each rank, are those of the peers' memory.
///
/// # Safety
/// The memory, and the memory at the addresses, follow the headers of `Communicator::adopt`: *caller's duty*.
pub(super) unsafe fn tensor_adopt(
    communicator: &Communicator,
    memory: &Operand,
    mapped: bool,
    peers: &[usize],
) -> Result<Box<Tensor>, Report> {
    guard(|| {
        let (dtype, device) = (value::<Dtype>(memory.dtype)?, communicator.device());
        with_type!(dtype, T => {
            // SAFETY: passed on.
            let memory = unsafe { Ref::<'static, T>::from_raw(device, memory.address.cast(), memory.count) };
            let peers: Vec<*mut T> = peers.iter().map(|address| *address as *mut T).collect();
            // SAFETY: passed on.
            let adopted = unsafe {
                if mapped { communicator.adopt_mapped_made(memory, &peers) } else { communicator.adopt_made(memory) }
            }?;
            Ok(Tensor::new(adopted, dtype))
        })
    })
}

pub(super) fn tensor_on_device(device: &Device, count: usize, number: u32) -> Result<Box<Tensor>, Report> {
    guard(|| {
        let dtype = value::<Dtype>(number)?;
        Ok(with_type!(dtype, T => Tensor::new(DeviceBuffer::<T>::new(device, count)?, dtype)))
    })
}

pub(super) fn tensor_count(tensor: &Tensor) -> usize {
    tensor.count
}

pub(super) fn tensor_dtype(tensor: &Tensor) -> u32 {
    tensor.dtype as u32
}

pub(super) fn tensor_address(tensor: &Tensor) -> usize {
    tensor.address
}

pub(super) fn tensor_is_shared(tensor: &Tensor) -> bool {
    !matches!(tensor.place, Place::Plain | Place::Pushed)
}

pub(super) fn tensor_peer_address(tensor: &Tensor, rank: usize) -> Result<usize, Report> {
    guard(|| tensor.owner.peer_address(rank))
}

pub(super) fn tensor_peer_table(tensor: &Tensor) -> Result<usize, Report> {
    guard(|| {
        let pad = tensor.pad()?;
        pad.arena().group().check()?;
        // Table 0 holds the arenas.
        Ok(pad.arena().table(0) as usize)
    })
}

pub(super) fn tensor_offset_bytes(tensor: &Tensor) -> Result<u64, Report> {
    guard(|| match tensor.place {
        Place::Symmetric { offset_bytes, .. } => Ok(offset_bytes),
        _ => Err(Error::unsupported("an offset in the arena", "only symmetric buffers have one")),
    })
}

/// The elements from `start` on.
pub(super) fn tensor_multicast(tensor: &Tensor, start: usize) -> Result<Multicast, Report> {
    guard(|| match tensor.slice(start, tensor.count.saturating_sub(start))?.place {
        Place::Symmetric { offset_bytes, .. } => Ok(MulticastData::at(tensor.pad()?.arena(), offset_bytes)?.raw()),
        _ => Err(Error::unsupported("a multicast view", "only symmetric buffers have one")),
    })
}

/// # Safety
/// `values` is valid for the tensor's elements: *caller's duty*.
pub(super) unsafe fn tensor_write(tensor: &Tensor, values: *const u8, stream: &Stream) -> Result<(), Report> {
    // SAFETY: the tensor's memory lives (borrowing), `values` until the copy is done (caller's duty).
    let work = |to, bytes| stream.run("copy to the device", |raw| unsafe { raw.copy(to, values, bytes) });
    guard(|| copy(tensor, values.is_null(), stream, work))
}

/// # Safety
/// `values` is valid for the tensor's elements: *caller's duty*.
pub(super) unsafe fn tensor_read(tensor: &Tensor, values: *mut u8, stream: &Stream) -> Result<(), Report> {
    // SAFETY: as in `tensor_write`.
    let work =
        |from: *mut u8, bytes| stream.run("copy from the device", |raw| unsafe { raw.copy(values, from, bytes) });
    guard(|| {
        copy(tensor, values.is_null(), stream, work)?;
        tensor.owner.confirm()
    })
}

fn copy(tensor: &Tensor, null: bool, stream: &Stream, work: impl FnOnce(*mut u8, usize) -> Result<()>) -> Result<()> {
    tensor.device.check_same("stream", stream.device())?;
    let bytes = tensor.count * tensor.dtype.bytes();
    if bytes == 0 {
        return Ok(());
    }
    if null {
        return Err(Error::invalid("the address of the values", "null", format!("{bytes} bytes are copied")));
    }
    work(tensor.address as *mut u8, bytes)
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn signal_put(tensor: &Tensor, peer: usize, channel: usize, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| unsafe { signal(tensor, kSignalPut, peer, channel, queue) })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn signal_wait(tensor: &Tensor, peer: usize, channel: usize, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| unsafe { signal(tensor, kSignalWait, peer, channel, queue) })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn signal_barrier(tensor: &Tensor, channel: usize, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on. Rank 0 always exists.
    guard(|| unsafe { signal(tensor, kSignalBarrier, 0, channel, queue) })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn signal(tensor: &Tensor, action: u32, peer: usize, channel: usize, queue: Queue) -> Result<()> {
    let pad = tensor.pad()?;
    // SAFETY: passed on.
    pad.enqueue(action, peer, channel, unsafe { target_keeping(queue, [tensor]) }?)
}

pub(super) fn signal_view(tensor: &Tensor) -> Result<SignalArgs, Report> {
    guard(|| {
        let pad = tensor.pad()?;
        pad.arena().group().check()?;
        pad.args(kSignalBarrier, 0, 0)
    })
}
