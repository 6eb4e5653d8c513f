//! Conversions between this crate and [cudarc]'s contexts, streams and slices (feature `cudarc`).
//!
//! | cudarc | symmetra | |
//! |---|---|---|
//! | `CudaContext` | [`Device`] | [`device`] |
//! | `CudaStream` | [`Stream`] | [`stream`]: keeps the `Arc`, destroys nothing; [`new_stream`] makes both |
//! | `CudaSlice`, given | [`Owned`], then [`Ref`] | safe: it waits for the device before it is freed |
//! | `CudaSlice`, `CudaViewMut`, lent | [`Borrowed`], a [`Ref`] | [`borrow`]: the caller enqueues before it is dropped |
//! | `CudaSlice`, `CudaView`, read | [`Borrowed`], a [`Ref`] | [`input`]: the same, as an input alone |
//! | `nccl::safe::Comm` | [`comm::Comm`] | the same methods, safe: a port changes one line |
//! | `CudaView`, `CudaViewMut` | [`Lent`], from [`Ref`] | [`lend`]: safe, frees nothing |
//! | `DriverError` | [`Error`] | `?` |
//! | argument of a kernel | [`HeapView`], [`PadView`], [`PeerView`], [`MulticastData`] | `launch.arg(&heap)` |
//!
//! The types in these signatures are of cudarc 0.19. A new minor version of cudarc comes with a new minor version of this crate.
//!
//! cudarc allocates from a stream-ordered pool if the device has one. Such memory cannot be shared, so collectives on
//! it pass through the arena and [`Adopted::is_shared`](crate::Adopted::is_shared) is false. A
//! [`SymmetricBuffer`](crate::SymmetricBuffer) is zero-copy.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use symmetra::interop::cudarc::{Owned, device, stream};
//! use symmetra::{Communicator, Config, bootstrap::Tcp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = CudaContext::new(0)?;
//! let native = context.new_stream()?;
//! let tensor = native.clone_htod(&[1.0f32; 4096])?;
//!
//! let device = device(&context)?;
//! // SAFETY: no other code captures this stream.
//! let stream = unsafe { stream(&device, &native) }?;
//! let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
//! let communicator = Communicator::open(Tcp::from_env(deadline)?, &device, Config::default())?;
//! let tensor = Owned::new(&device, tensor)?;
//! communicator.all_reduce_in_place(&tensor.borrow(), &stream)?;
//! communicator.synchronize(&stream)?;
//! let tensor = tensor.into_inner()?;
//! let sums = native.clone_dtoh(&tensor)?;
//! # drop(sums);
//! # communicator.close()?;
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code)]

pub mod comm;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr, DriverError,
    SyncOnDrop,
};

use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::memory::{HeapView, MulticastData, Owner, PadView, PeerView, Ref, WithView};
use crate::stream::Stream;
use crate::types::Element;

macro_rules! kernel_arguments {
    ($($view:ty)*) => {$(
        // SAFETY: plain data, laid out as the structure that kernels take by value (`symmetra/device`).
        unsafe impl DeviceRepr for $view {}
    )*};
}

kernel_arguments! { HeapView PadView PeerView MulticastData }

/// The device of a context.
///
/// # Errors
/// [`Error::Unsupported`] for a context that is not the device's primary context, and the errors of [`Device::cuda`].
pub fn device(context: &CudaContext) -> Result<Device> {
    if !context.is_primary() {
        return Err(Error::unsupported("a context of its own", "streams and memory are those of the primary context"));
    }
    Device::cuda(context.ordinal())
}

/// A stream that both crates use. The result keeps the `Arc`.
///
/// # Errors
/// [`Error::InvalidArgument`] for a stream of another device.
///
/// # Safety
/// While any code captures the stream, work enqueued on it uses only operands that outlive that graph. The compiler
/// checks this for work that a [`Stream::capture`] on the result enqueues with its [`Capture`](crate::Capture). A
/// stream of cudarc's `per_thread_stream` is used as [`Stream::borrow_raw`] requires.
pub unsafe fn stream(device: &Device, stream: &Arc<CudaStream>) -> Result<Stream> {
    check(device, stream)?;
    // SAFETY: the handle belongs to the device, is valid as long as the `Arc` that the result keeps, and is captured as
    // the caller promises.
    unsafe { Stream::borrow_kept(device, stream.cu_stream() as u64, stream.clone()) }
}

/// Creates a stream that both crates use, in a separate context without cudarc's event tracking. Event tracking would
/// make a capture depend on work before it.
///
/// # Errors
/// [`Error::InvalidArgument`] for a device that is not of CUDA, [`Error::Device`] when the driver refuses.
///
/// # Safety
/// The requirements of [`stream`](fn@stream). Memory that cudarc allocates in this context is used only on this stream,
/// or the caller orders the streams that use it.
pub unsafe fn new_stream(device: &Device) -> Result<(Stream, Arc<CudaStream>)> {
    let ordinal = match (device.kind(), usize::try_from(device.ordinal())) {
        (DeviceKind::Cuda, Ok(ordinal)) => ordinal,
        _ => return Err(Error::invalid("the device", format!("{device:?}"), "a stream of cudarc needs a CUDA device")),
    };
    let context = CudaContext::new(ordinal)?;
    // SAFETY: the caller orders the streams, as the events would have.
    unsafe { context.disable_event_tracking() };
    let native = context.new_stream()?;
    // SAFETY: the caller's promise fulfils the requirements of `stream`.
    let stream = unsafe { stream(device, &native) }?;
    Ok((stream, native))
}

/// Memory of cudarc's that its owner keeps, borrowed for work on one stream. Dereferences to a [`Ref`].
///
/// It holds the guard of cudarc. When it is dropped, cudarc records the work of the stream, so that other streams that use the
/// memory, and its free, come after that work. So drop it after the last call that uses it is enqueued.
pub struct Borrowed<'a, T: Element> {
    memory: Ref<'a, T>,
    _guard: SyncOnDrop<'a>,
}

impl<'a, T: Element> Deref for Borrowed<'a, T> {
    type Target = Ref<'a, T>;

    fn deref(&self) -> &Self::Target {
        &self.memory
    }
}

impl<T: Element> fmt::Debug for Borrowed<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Borrowed({:?})", self.memory)
    }
}

/// Borrows a `CudaSlice` or `CudaViewMut` for work on `stream`, which cudarc makes wait for earlier users of the memory.
///
/// # Errors
/// [`Error::InvalidArgument`] for memory or a stream of another device.
///
/// # Safety
/// `memory` holds as many elements as its length. Work enqueued with the result is on `stream`, and is enqueued before the
/// result is dropped. All actions of the owner afterwards come after that work: by events, which cudarc tracks unless the
/// program disables that, by being on `stream`, or because the owner has waited. This includes dropping the slice. Memory that peers
/// address lives as long as [`Communicator::adopt`](crate::Communicator::adopt) requires.
pub unsafe fn borrow<'a, T: Element, M: DevicePtrMut<T>>(
    device: &Device,
    memory: &'a mut M,
    stream: &'a CudaStream,
) -> Result<Borrowed<'a, T>> {
    check(device, stream)?;
    check(device, memory.stream())?;
    let len = memory.len();
    let (address, guard) = memory.device_ptr_mut(stream);
    Ok(Borrowed { memory: Ref::new(address as *mut T, len, device), _guard: guard })
}

/// Borrows a `CudaSlice`, `CudaView` or `CudaViewMut` as an input for work on `stream`, which cudarc makes wait for earlier
/// writers of the memory. As an output of a call it is [`Error::InvalidArgument`].
///
/// # Errors
/// The errors of [`borrow`].
///
/// # Safety
/// The requirements of [`borrow`], for actions of the owner that write or free the memory.
pub unsafe fn input<'a, T: Element, M: DevicePtr<T>>(
    device: &Device,
    memory: &'a M,
    stream: &'a CudaStream,
) -> Result<Borrowed<'a, T>> {
    check(device, stream)?;
    check(device, memory.stream())?;
    let (address, guard) = memory.device_ptr(stream);
    Ok(Borrowed { memory: Ref::new(address as *mut T, memory.len(), device).read_only(), _guard: guard })
}

/// A `CudaSlice` that collectives own. Dropping it waits for the device, as for a
/// [`DeviceBuffer`](crate::DeviceBuffer), and then drops the slice. If peers have the memory mapped, the slice is
/// dropped when they cannot access it any more.
pub struct Owned<T: Element> {
    slice: Arc<Settled<T>>,
    memory: Ref<'static, T>,
}

/// A slice that is dropped after the device's work.
struct Settled<T: Element> {
    slice: ManuallyDrop<CudaSlice<T>>,
    device: Device,
}

impl<T: Element> Drop for Settled<T> {
    fn drop(&mut self) {
        match self.device.synchronize() {
            // SAFETY: the last use of the slice.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.slice) },
            Err(error) => {
                crate::log!(WARN, "{:?} does not settle, a slice is leaked: {error}", self.device);
            }
        }
    }
}

impl<T: Element> Owned<T> {
    /// Takes ownership of a slice.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for memory of another device; the slice is dropped.
    pub fn new(device: &Device, slice: CudaSlice<T>) -> Result<Self> {
        check(device, slice.stream())?;
        let (address, _) = slice.device_ptr(slice.stream());
        // SAFETY: the driver allocated it for this number of elements. It is freed when its last owner is dropped,
        // after the device's work, and `borrow` lends it no longer than that.
        let memory = unsafe { Ref::from_raw(device, address as *mut T, slice.len()) }?;
        let slice = Arc::new(Settled { slice: ManuallyDrop::new(slice), device: device.clone() });
        let owner: Owner = slice.clone();
        Ok(Self { slice, memory: memory.owned_by(Some(owner)) })
    }

    /// The memory as an operand. The order of streams decides which work uses it first.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.memory.clone()
    }

    /// The slice, for other work of the caller.
    pub fn slice(&self) -> &CudaSlice<T> {
        &self.slice.slice
    }

    /// Waits for the device and returns the slice.
    ///
    /// # Errors
    /// [`Error::Device`] if the device's work failed; the slice is leaked. [`Error::Unsupported`] if peers can access
    /// the memory because it was adopted or registered by a graph; the slice is dropped when they cannot access it any
    /// more.
    pub fn into_inner(self) -> Result<CudaSlice<T>> {
        let Self { slice, memory } = self;
        memory.device().synchronize()?;
        drop(memory);
        let lent = || {
            Error::unsupported("to give a slice back", "it was adopted or registered by a graph: peers can reach it")
        };
        let mut settled = ManuallyDrop::new(Arc::into_inner(slice).ok_or_else(lent)?);
        // SAFETY: `settled` is not used any more, and not dropped.
        let slice = unsafe { ManuallyDrop::take(&mut settled.slice) };
        // SAFETY: `settled` is not used any more, and not dropped.
        unsafe { std::ptr::drop_in_place(&raw mut settled.device) };
        Ok(slice)
    }
}

impl<T: Element> fmt::Debug for Owned<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Owned({} {} on {:?})", self.memory.len(), T::DTYPE, self.memory.device())
    }
}

/// Memory of this crate, in the form that cudarc's launches and libraries take. Dropping it frees nothing.
pub struct Lent<'a, T: Element> {
    slice: ManuallyDrop<CudaSlice<T>>,
    _memory: PhantomData<Ref<'a, T>>,
}

/// Lends memory to cudarc, for work on `stream`: a [`DeviceBuffer`](crate::DeviceBuffer) or this rank's part of a
/// [`SymmetricBuffer`](crate::SymmetricBuffer), through their `borrow`. The order of streams decides which work uses it
/// first. Its owner waits for the device before the memory is freed. A `CudaGraph` does not keep the memory that it
/// uses.
///
/// # Errors
/// [`Error::InvalidArgument`] for a stream of another device, and for read-only memory.
pub fn lend<'a, T: Element>(memory: Ref<'a, T>, stream: &Arc<CudaStream>) -> Result<Lent<'a, T>> {
    check(memory.device(), stream)?;
    memory.view_of().check_writable("the memory to lend")?;
    // SAFETY: the memory holds this number of elements, valid for `'a` and until the device has finished with them;
    // every bit pattern is a valid element. The slice is neither dropped nor moved out.
    let slice = unsafe { stream.upgrade_device_ptr(memory.as_raw() as u64, memory.len()) };
    Ok(Lent { slice: ManuallyDrop::new(slice), _memory: PhantomData })
}

impl<T: Element> Lent<'_, T> {
    /// A view for reading.
    pub fn as_view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// A view for writing.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

impl<T: Element> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the last use of the slice.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Releases the stream and events, but not the memory.
        slice.leak();
    }
}

impl<T: Element> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lent({} {} on CUDA device {})", self.slice.len(), T::DTYPE, self.slice.ordinal())
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Device { code: error.0 as i64, message: error.to_string() }
    }
}

/// Checks that a stream's context is the primary one of `device`.
fn check(device: &Device, stream: &CudaStream) -> Result<()> {
    let context = stream.context();
    let same = device.kind() == DeviceKind::Cuda && i32::try_from(context.ordinal()) == Ok(device.ordinal());
    if same && context.is_primary() {
        return Ok(());
    }
    let which = if context.is_primary() { "the primary context" } else { "a context of its own" };
    let value = format!("{which} of CUDA device {}", context.ordinal());
    Err(Error::invalid("the context", value, format!("this rank works on the primary context of {device:?}")))
}
