//! Sessions of NVSHMEM.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Group, Operand};
use crate::capi::collectives::Caller;
use crate::capi::config::dtype;
use crate::capi::report::{Report, guard};
use crate::capi::tensor::Tensor;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::memory::Ref;
use crate::nvshmem::{Library, Session};
use crate::types::with_type;

pub struct ShmemSession {
    session: Session,
    communicator: Communicator,
}

/// A tensor that C++ takes over.
fn given(tensor: Box<Tensor>, number: u32) -> Operand {
    let tensor = Box::into_raw(tensor).cast_const();
    Operand { tensor, address: std::ptr::null_mut(), start: 0, count: 0, dtype: number }
}

/// An empty name is that of the variable, or the usual one.
///
/// # Safety
/// The group's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn shmem_open(group: Group, library: &[u8], joins: bool) -> Result<Box<ShmemSession>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let Caller::Communicator(communicator) = (unsafe { Caller::new(group) })? else {
            return Err(Error::Internal { message: "a session of NVSHMEM over no communicator".to_owned() });
        };
        let library = Library::find((!library.is_empty()).then(|| OsStr::from_bytes(library)));
        let session = if joins { Session::join(library, communicator) } else { Session::open(library, communicator) }?;
        Ok(Box::new(ShmemSession { session, communicator: communicator.clone() }))
    })
}

pub(super) fn shmem_symmetric(session: &ShmemSession, count: usize, number: u32) -> Result<Operand, Report> {
    guard(|| {
        let dtype = dtype(number)?;
        let tensor = with_type!(dtype, T => Tensor::new(session.session.symmetric::<T>(count)?, dtype));
        Ok(given(tensor, number))
    })
}

/// # Safety
/// The memory is as the header of `nvshmem::Session::adopt` requires: *caller's duty*.
pub(super) unsafe fn shmem_adopt(session: &ShmemSession, memory: &Operand) -> Result<Operand, Report> {
    guard(|| {
        let (dtype, device) = (dtype(memory.dtype)?, session.communicator.device());
        let tensor = with_type!(dtype, T => {
            let memory = Ref::<'static, T>::new(memory.address.cast(), memory.count, device);
            // SAFETY: passed on. NVSHMEM knows its heap, and so refuses memory that is not there.
            Tensor::new(unsafe { session.session.adopt(memory) }?, dtype)
        });
        Ok(given(tensor, memory.dtype))
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
