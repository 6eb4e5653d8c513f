//! Sessions of NVSHMEM.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Communicator, Operand};
use crate::capi::mirror::value;
use crate::capi::report::{Report, guard};
use crate::capi::tensor::{Tensor, resolve};
use crate::memory::Ref;
use crate::nvshmem::{Library, Mapped, Session};
use crate::types::{Dtype, with_type};

pub struct ShmemSession {
    session: Session,
    communicator: Communicator,
}

pub struct ShmemMapped(Mapped, Communicator);

/// A tensor whose ownership passes to C++.
fn given(tensor: Box<Tensor>, number: u32) -> Operand {
    let tensor = Box::into_raw(tensor).cast_const();
    Operand { tensor, address: std::ptr::null_mut(), start: 0, count: 0, dtype: number, typed: false, pushed: false }
}

/// An empty name means the name in the variable, or the default name.
pub(super) fn shmem_open(
    communicator: &Communicator,
    library: &[u8],
    joins: bool,
) -> Result<Box<ShmemSession>, Report> {
    guard(|| {
        let library = Library::find((!library.is_empty()).then(|| OsStr::from_bytes(library)));
        let session = if joins { Session::join(library, communicator) } else { Session::open(library, communicator) }?;
        Ok(Box::new(ShmemSession { session, communicator: communicator.clone() }))
    })
}

pub(super) fn shmem_symmetric(session: &ShmemSession, count: usize, number: u32) -> Result<Operand, Report> {
    guard(|| {
        let dtype = value::<Dtype>(number)?;
        let tensor = with_type!(dtype, T => Tensor::new(session.session.symmetric::<T>(count)?, dtype));
        Ok(given(tensor, number))
    })
}

/// # Safety
/// The memory is as the header of `nvshmem::Session::adopt` requires: *caller's duty*.
pub(super) unsafe fn shmem_adopt(session: &ShmemSession, memory: &Operand) -> Result<Operand, Report> {
    guard(|| {
        let (dtype, device) = (value::<Dtype>(memory.dtype)?, session.communicator.device());
        let tensor = with_type!(dtype, T => {
            let memory = Ref::<'static, T>::new(memory.address.cast(), memory.count, device);
            // SAFETY: passed on. NVSHMEM knows the bounds of its heap, and refuses memory outside it.
            Tensor::new(unsafe { session.session.adopt(memory) }?, dtype)
        });
        Ok(given(tensor, memory.dtype))
    })
}

pub(super) fn shmem_map(session: &ShmemSession, communicator: &Communicator) -> Result<Box<ShmemMapped>, Report> {
    guard(|| Ok(Box::new(ShmemMapped(session.session.map(communicator)?, communicator.clone()))))
}

/// # Safety
/// The operand's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn shmem_address_of(mapped: &ShmemMapped, buffer: &Operand) -> Result<usize, Report> {
    guard(|| {
        // SAFETY: passed on.
        let (view, _) = unsafe { resolve(mapped.1.device(), buffer) }?;
        mapped.0.address_at(view.place)
    })
}

pub(super) fn shmem_reclaim(session: &ShmemSession) -> Result<(), Report> {
    guard(|| session.session.reclaim())
}

pub(super) fn shmem_bytes(session: &ShmemSession) -> usize {
    session.session.memory_bytes()
}

pub(super) fn shmem_close(session: &ShmemSession) -> Result<(), Report> {
    guard(|| session.session.close())
}
