//! Operands whose element type the program knows at run time.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;

use super::operand::{Place, Sealed, View};
use super::plain::Ref;
use super::range::within;
use super::symmetric::SymmetricBuffer;
use crate::device::Device;
use crate::error::Result;
use crate::types::{Dtype, Element, with_type};

/// A borrowed range of memory with an element type that is known at run time, for
/// [`ProcessGroup::perform_untyped`](crate::ProcessGroup::perform_untyped).
#[derive(Clone)]
pub struct Untyped<'a> {
    bytes: Ref<'a, u8>,
    dtype: Dtype,
    /// The place of symmetric memory, which peers can address.
    place: Option<Place>,
}

impl<'a> Untyped<'a> {
    /// Borrows memory of the program: `len` elements of `dtype` at `address`, which `device` can read and write.
    ///
    /// # Errors
    /// The errors of [`Ref::from_raw`].
    ///
    /// # Safety
    /// The requirements of [`Ref::from_raw`].
    pub unsafe fn from_raw(device: &Device, dtype: Dtype, address: *mut c_void, len: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        with_type!(dtype, T => unsafe { Ref::<T>::from_raw(device, address.cast(), len) }.map(|memory| memory.untyped()))
    }

    /// Borrows memory of the program as [`from_raw`](Self::from_raw) does, without a query of the driver: see
    /// [`Ref::assume`].
    ///
    /// # Errors
    /// The errors of [`Ref::assume`].
    ///
    /// # Safety
    /// The requirements of [`Ref::assume`].
    pub unsafe fn assume(device: &Device, dtype: Dtype, address: *mut c_void, len: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        with_type!(dtype, T => unsafe { Ref::<T>::assume(device, address.cast(), len) }.map(|memory| memory.untyped()))
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }

    /// Whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn view(&self) -> View<'_> {
        let view = self.bytes.view();
        View { elems: self.len(), place: self.place.unwrap_or(view.place), ..view }
    }
}

impl<'a, T: Element> Ref<'a, T> {
    /// This memory, with its element type as a value.
    pub fn untyped(&self) -> Untyped<'a> {
        Untyped { bytes: self.cast(), dtype: T::DTYPE, place: None }
    }
}

impl SymmetricBuffer<u8> {
    /// Elements `range` of the buffer taken as elements of `dtype`. Every rank must use the same range in one operation.
    /// ```
    /// # use symmetra::*;
    /// fn first(buffer: &SymmetricBuffer<u8>, dtype: Dtype) -> Result<Untyped<'_>> {
    ///     buffer.untyped(dtype, 0..buffer.len() / dtype.bytes())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a range outside the buffer.
    pub fn untyped(&self, dtype: Dtype, range: Range<usize>) -> Result<Untyped<'_>> {
        let range = within(range, self.len() / dtype.bytes())?;
        let part = self.slice(range.start * dtype.bytes()..range.end * dtype.bytes())?;
        Ok(Untyped { bytes: part.borrow(), dtype, place: Some(part.view().place) })
    }
}

impl fmt::Debug for Untyped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Untyped({} {} at {:p})", self.len(), self.dtype, self.bytes.as_raw())
    }
}
