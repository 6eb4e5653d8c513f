//! Memory of the host for copies of a device for which the program need not wait.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::marker::PhantomData;

use super::operand::{Place, View};
use super::plain::size_bytes;
use crate::device::{Allocation, Device};
use crate::error::{Error, Result};
use crate::types::{Dtype, Element};

/// A multiple of every page size that a device needs.
const UNIT: usize = 64 << 10;

/// Page-locked memory of the host for `len` elements, for [`copy_from_host`](crate::copy_from_host) and
/// [`copy_to_host`](crate::copy_to_host). Contents start as zeros.
///
/// The program accesses the elements by [`elements`](Self::elements), which waits for the device. A graph borrows or
/// owns the buffer, so the program cannot access the elements while the graph exists. Dropping the buffer waits for the
/// device.
/// ```
/// # use symmetra::*;
/// fn mean(values: &DeviceBuffer<f32>, stream: &Stream) -> Result<f32> {
///     let mut copied = HostBuffer::new(stream.device(), values.len())?;
///     copy_to_host(values, &copied, stream)?;
///     let elements = copied.elements()?;
///     Ok(elements.iter().sum::<f32>() / elements.len() as f32)
/// }
/// ```
/// The elements cannot be accessed as long as a graph exists:
/// ```compile_fail,E0502
/// # use symmetra::*;
/// fn look(values: &DeviceBuffer<f32>, mut copied: HostBuffer<f32>, stream: &Stream) -> Result<f32> {
///     let graph = stream.capture(|capture| copy_to_host(values, &copied, capture))?;
///     let first = copied.elements()?[0];
///     graph.launch(stream)?;
///     Ok(first)
/// }
/// ```
/// Here the graph has been dropped:
/// ```
/// # use symmetra::*;
/// fn look(values: &DeviceBuffer<f32>, mut copied: HostBuffer<f32>, stream: &Stream) -> Result<f32> {
///     let graph = stream.capture(|capture| copy_to_host(values, &copied, capture))?;
///     graph.launch(stream)?;
///     drop(graph);
///     Ok(copied.elements()?[0])
/// }
/// ```
pub struct HostBuffer<T: Element> {
    /// Declared first: the pages are unpinned before they are freed. `None` without elements.
    pinned: Option<Allocation>,
    _pages: Option<Pages>,
    len: usize,
    device: Device,
    _type: PhantomData<T>,
}

/// Zeroed pages.
struct Pages(*mut u8, Layout);

// SAFETY: an owned allocation, which is not tied to a thread.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives no access to the memory.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0, self.1) }
    }
}

impl<T: Element> HostBuffer<T> {
    /// Allocates `len` zeros for copies of `device`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidArgument`] when the size overflows, [`Error::Device`] if the device cannot lock
    /// the pages.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let bytes = size_bytes::<T>(len)?;
        let (device, _type) = (device.clone(), PhantomData);
        if bytes == 0 {
            return Ok(Self { pinned: None, _pages: None, len, device, _type });
        }
        let room = || {
            let layout = Layout::from_size_align(bytes.checked_next_multiple_of(UNIT)?, UNIT).ok()?;
            // SAFETY: the layout has bytes.
            let address = unsafe { alloc_zeroed(layout) };
            (!address.is_null()).then_some(Pages(address, layout))
        };
        let pages = room().ok_or_else(|| {
            let message = format!("{len} elements of {} on the CPU, for copies of a device", T::DTYPE);
            Error::OutOfMemory { message }
        })?;
        // SAFETY: the pages are whole, and are freed after the result.
        let pinned = unsafe { Allocation::pin(&device, pages.0, pages.1.size()) }?;
        Ok(Self { pinned: Some(pinned), _pages: Some(pages), len, device, _type })
    }

    /// Allocates memory for copies of `device` that holds `values`.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn from_slice(values: &[T], device: &Device) -> Result<Self> {
        let mut buffer = Self::new(device, values.len())?;
        buffer.elements()?.copy_from_slice(values);
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, for the program to read and write. Blocks until all work of the device is done, because a copy may
    /// be in flight.
    ///
    /// # Errors
    /// [`Error::Device`] if work of the device failed.
    pub fn elements(&mut self) -> Result<&mut [T]> {
        let address = self.settled()?;
        if address.is_null() {
            return Ok(&mut []);
        }
        // SAFETY: `len` elements, aligned and initialised: zeros, or the data that a device copied, and every bit pattern
        // is an element. No copy is in flight: the device has done its work, and a graph that could start one, or a call
        // that enqueues one, has borrowed the buffer, which `&mut self` excludes.
        Ok(unsafe { std::slice::from_raw_parts_mut(address.cast(), self.len) })
    }

    /// The address of the elements, when the device has done all its work; null without elements.
    pub(crate) fn settled(&self) -> Result<*mut u8> {
        self.device.synchronize()?;
        Ok(self.address())
    }

    /// The bytes as an operand of a copy, of elements of `dtype`.
    pub(crate) fn view(&self, dtype: Dtype) -> View<'_> {
        let elems = self.len * T::DTYPE.bytes() / dtype.bytes();
        View {
            address: self.address(),
            elems,
            place: Place::Plain,
            device: &self.device,
            owner: None,
            read_only: false,
        }
    }

    /// Null without elements.
    fn address(&self) -> *mut u8 {
        self.pinned.as_ref().map_or(std::ptr::null_mut(), Allocation::address)
    }
}

impl<T: Element> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostBuffer({} {} for {:?})", self.len, T::DTYPE, self.device)
    }
}
