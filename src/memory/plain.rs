//! Plain memory of one rank: allocated here, or owned by the program.
#![allow(unsafe_code)]

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use super::host_copies::plain_copies;
use super::operand::{Operand, Place, Sealed, View};
use super::owner::Owner;
use super::range::within;
use crate::device::{Allocation, Device, DeviceKind};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::sys::Caught;
use crate::types::Element;

/// Device memory for `len` elements that no peer can address. Contents start undefined.
///
/// Dropping it waits for the device, as the runtime's own free does. If ranks are threads of one process, the runtime
/// may also wait for the devices of the other ranks: a rank that drops memory while a peer's work waits for the rank's
/// next call blocks until that work gives up. Peers address the memory after it was adopted, or after a graph that
/// captured it was registered. From then on, dropping it does not wait, and the memory stays allocated until no peer
/// can address it: see [`Graph::register`](crate::Graph::register).
pub struct DeviceBuffer<T: Element>(Ref<'static, T>);

impl<T: Element> DeviceBuffer<T> {
    /// Allocates `len` elements on `device`, contents undefined.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or [`Error::InvalidArgument`] when the size overflows.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        Self::allocate(device, len, Allocation::plain)
    }

    /// Allocates `len` elements that other libraries and processes can map as physical memory by a file descriptor, where a
    /// CUDA device has such memory. On other devices the memory is that of [`new`](Self::new).
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::Device`] if the driver gives another device of the process no access.
    #[doc(hidden)] // for `symmetra-nccl` alone
    pub fn exportable(device: &Device, len: usize) -> Result<Self> {
        match device.kind() == DeviceKind::Cuda && device.shares_memory() {
            true => Self::allocate(device, len, Allocation::exported),
            false => Self::new(device, len),
        }
    }

    fn allocate(device: &Device, len: usize, by: fn(&Device, usize) -> Result<Allocation>) -> Result<Self> {
        let bytes = size_bytes::<T>(len)?;
        let memory = (bytes > 0).then(|| by(device, bytes)).transpose()?;
        let address = memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.address().cast());
        let owner = memory.map(|memory| Arc::new(memory) as Owner);
        Ok(Self(Ref::new(address, len, device).owned_by(owner)))
    }

    /// Allocates memory on the stream's device and copies `values` there. Blocks.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) and [`write`](Self::write).
    pub fn from_slice(values: &[T], stream: &Stream) -> Result<Self> {
        let buffer = Self::new(stream.device(), values.len())?;
        buffer.write(values, stream)?;
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The buffer's device address; null when empty.
    pub fn as_raw(&self) -> *mut T {
        self.0.address
    }

    /// The whole buffer as a [`Ref`].
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.clone()
    }

    /// The whole buffer as a [`Ref`] that keeps the memory allocated until the `Ref` is dropped, also after the buffer is
    /// dropped.
    ///
    /// # Safety
    /// The buffer, or a `Ref` of this function, lives until all work with the memory has ended: a call returns before its work
    /// ends, and graphs and bound calls use the memory later.
    #[allow(unsafe_code)]
    pub unsafe fn shared(&self) -> Ref<'static, T> {
        self.0.clone()
    }
}

plain_copies! { DeviceBuffer<T>, borrow }

impl<T: Element> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DeviceBuffer({} {} on {:?})", self.len(), T::DTYPE, self.0.device)
    }
}

/// A borrowed range of memory that a device addresses.
#[derive(Clone)]
pub struct Ref<'a, T: Element> {
    address: *mut T,
    len: usize,
    device: Device,
    /// The memory's owner, if this crate knows it. A registration that gives peers access keeps it alive.
    owner: Option<Owner>,
    /// Whether peers never address it.
    pushed: bool,
    /// Whether calls may only read the memory.
    read_only: bool,
    _memory: PhantomData<&'a ()>,
}

// SAFETY: an address and a length that Rust never dereferences; devices may use it from any thread.
unsafe impl<T: Element> Send for Ref<'_, T> {}
// SAFETY: an address and a length that Rust never dereferences.
unsafe impl<T: Element> Sync for Ref<'_, T> {}

impl<'a, T: Element> Ref<'a, T> {
    /// Borrows memory of the program: `len` elements at `address`, which `device` can read and write.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a null or misaligned address, a length that overflows, or
    /// memory of another device.
    ///
    /// # Safety
    /// The memory is valid for reads and writes by `device` for `'a` and until all work enqueued with the result is
    /// done; Rust holds no reference to it meanwhile. Stream order determines the contents. Peers address memory that
    /// was captured and [registered](crate::Graph::register); it must live as long as
    /// [`Communicator::adopt`](crate::Communicator::adopt) requires.
    pub unsafe fn from_raw(device: &Device, address: *mut T, len: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        let memory = unsafe { Self::assume(device, address, len) }?;
        let bytes = size_bytes::<T>(len)?;
        if bytes > 0 {
            // SAFETY: the runtime only looks the address up in its tables.
            let info = unsafe { device.raw()?.classify(address.cast_const().cast()) }.caught()?;
            if info.device >= 0 && info.device != device.ordinal() {
                let limit = format!("this rank works on device {}", device.ordinal());
                return Err(Error::invalid("the owner of the memory", format!("device {}", info.device), limit));
            }
            if info.bytes > 0 && (address as u64 - info.base).saturating_add(bytes as u64) > info.bytes {
                let limit = format!("its allocation has {} bytes from {:#x}", info.bytes, info.base);
                return Err(Error::invalid("the memory", format!("{bytes} bytes at {address:p}"), limit));
            }
        }
        Ok(memory)
    }

    /// Borrows memory of the program as [`from_raw`](Self::from_raw) does, without a query of the driver: for calls where
    /// each microsecond of the host counts. An address that `device` cannot access is an error of the device when the call
    /// runs, which also ends the device's context.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a null or misaligned address, or a length that overflows.
    ///
    /// # Safety
    /// The requirements of [`from_raw`](Self::from_raw). The memory belongs to `device`, or `device` can access it.
    pub unsafe fn assume(device: &Device, address: *mut T, len: usize) -> Result<Self> {
        if size_bytes::<T>(len)? > 0 {
            if address.is_null() {
                return Err(Error::invalid("the address", "null", format!("{len} elements need memory")));
            }
            if !(address as usize).is_multiple_of(align_of::<T>()) {
                let limit = format!("{} must be aligned to {} bytes", T::DTYPE, align_of::<T>());
                return Err(Error::invalid("the address", format!("{address:p}"), limit));
            }
        }
        Ok(Self::new(address, len, device))
    }

    /// Borrows memory of the program for reading: `len` elements at `address`, which `device` can read. As an output of a
    /// call it is [`Error::InvalidArgument`], before anything is enqueued.
    ///
    /// # Errors
    /// The errors of [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// The memory is valid for reads by `device` for `'a` and until all work enqueued with the result is done. No code
    /// writes it meanwhile; shared references of Rust to it may exist. No kernel of the caller writes to the address
    /// [`as_raw`](Self::as_raw). Peers read memory that was captured and [registered](crate::Graph::register); it must
    /// live as long as [`Communicator::adopt`](crate::Communicator::adopt) requires.
    pub unsafe fn from_const(device: &Device, address: *const T, len: usize) -> Result<Self> {
        // SAFETY: the caller's promise covers reads, and calls refuse to write read-only memory.
        unsafe { Self::from_raw(device, address.cast_mut(), len) }.map(Self::read_only)
    }

    pub(crate) fn new(address: *mut T, len: usize, device: &Device) -> Self {
        let device = device.clone();
        Self { address, len, device, owner: None, pushed: false, read_only: false, _memory: PhantomData }
    }

    /// This memory, which calls may only read.
    pub(crate) fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// This operand, sent through scratch even if the memory is inside [adopted](crate::Adopted) memory or in a
    /// registered graph. For operands whose offset in adopted memory differs between ranks. All ranks must do the same.
    pub fn through_scratch(self) -> Self {
        Self { pushed: true, ..self }
    }

    pub(crate) fn owned_by(self, owner: Option<Owner>) -> Self {
        Self { owner, ..self }
    }

    /// This memory as elements of another type; a remainder is cut off.
    pub(crate) fn cast<U: Element>(&self) -> Ref<'a, U> {
        let len = self.len * size_of::<T>() / size_of::<U>();
        let memory = Ref::new(self.address.cast(), len, &self.device).owned_by(self.owner.clone());
        Ref { pushed: self.pushed, read_only: self.read_only, ..memory }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address.
    pub fn as_raw(&self) -> *mut T {
        self.address
    }

    /// Elements `range`, with the same lifetime. The owner cannot be dropped before their use:
    /// ```compile_fail,E0505
    /// # use symmetra::*;
    /// fn outlive(buffer: DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let part = buffer.borrow().slice(0..4)?;
    ///     drop(buffer);
    ///     communicator.all_reduce_in_place(&part, stream)
    /// }
    /// ```
    /// This compiles:
    /// ```
    /// # use symmetra::*;
    /// fn within(buffer: DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let part = buffer.borrow().slice(0..4)?;
    ///     communicator.all_reduce_in_place(&part, stream)?;
    ///     drop(buffer);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range outside the memory.
    pub fn slice(&self, range: impl RangeBounds<usize> + Debug) -> Result<Self> {
        Ok(self.part(within(range, self.len)?))
    }

    /// Elements `range`, which are inside the memory.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        Self { address: self.address.wrapping_add(range.start), len: range.len(), ..self.clone() }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Copies `values` into the memory, after earlier work of `stream`. Blocks until the copy is done.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the length differs, if the stream is of another device, or if the memory is
    /// read-only; [`Error::Unsupported`] while the stream is being captured; [`Error::Device`] if the copy fails.
    pub fn write(&self, values: &[T], stream: &Stream) -> Result<()> {
        if values.len() != self.len {
            return Err(Error::invalid("the number of values", values.len(), format!("the buffer has {}", self.len)));
        }
        self.view().check_writable("the memory to write")?;
        self.device.check_same("stream", stream.device())?;
        if values.is_empty() {
            return Ok(());
        }
        let (to, bytes) = (self.address.cast(), size_of_val(values));
        // SAFETY: `self` is valid for `bytes` (liveness, bounds); `values` until the copy is done.
        stream.run("copy to the device", |raw| unsafe { raw.copy(to, values.as_ptr().cast(), bytes) })
    }

    /// Copies the elements to the host, after earlier work of `stream`. Blocks until the copy is done.
    ///
    /// Plain memory does not belong to a group: after a collective that gave up, the copy contains old values. Call
    /// [`Communicator::synchronize`](crate::Communicator::synchronize) first.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write), except for the length; [`Error::OutOfMemory`] if the host cannot allocate
    /// the copy.
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        let Ok(mut values) = bytemuck::try_zeroed_vec::<T>(self.len) else {
            let message = format!("{} elements of {} on the CPU, to read a buffer into", self.len, T::DTYPE);
            return Err(Error::OutOfMemory { message });
        };
        self.read_into(&mut values, stream)?;
        Ok(values)
    }

    /// Copies the elements into `values`, memory of the host, after earlier work of `stream`. Blocks until the copy is
    /// done. Like [`read`](Self::read), without an allocation.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`Error::InvalidArgument`] if the length differs.
    pub fn read_into(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        self.device.check_same("stream", stream.device())?;
        if values.len() != self.len {
            return Err(Error::invalid("the number of values", values.len(), format!("the buffer has {}", self.len)));
        }
        if values.is_empty() {
            return Ok(());
        }
        let (to, bytes) = (values.as_mut_ptr().cast(), size_of_val(values));
        // SAFETY: `self` is valid for `bytes` (liveness, bounds); the host memory until the copy is done.
        stream.run("copy from the device", |raw| unsafe { raw.copy(to, self.address.cast(), bytes) })
    }
}

impl<T: Element> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ref({} {} at {:p} on {:?})", self.len, T::DTYPE, self.address, self.device)
    }
}

/// Size in bytes of `len` elements; an error on overflow.
pub(crate) fn size_bytes<T: Element>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| {
        Error::invalid("the number of elements", len, format!("{} of them must fit the address space", T::DTYPE))
    })
}

impl<T: Element> Sealed for &DeviceBuffer<T> {
    fn view(&self) -> View<'_> {
        self.0.view()
    }
}
impl<'op, T: Element> Operand<'op, T> for &'op DeviceBuffer<T> {}

impl<T: Element> Sealed for &Ref<'_, T> {
    fn view(&self) -> View<'_> {
        (*self).view()
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for &Ref<'a, T> {}

impl<T: Element> Sealed for Ref<'_, T> {
    fn view(&self) -> View<'_> {
        let (elems, owner, read_only) = (self.len, self.owner.as_ref(), self.read_only);
        let place = if self.pushed { Place::Pushed } else { Place::Plain };
        View { address: self.address.cast(), elems, place, device: &self.device, owner, read_only }
    }
}
impl<'op, 'a: 'op, T: Element> Operand<'op, T> for Ref<'a, T> {}
