//! Replaces `session.rs` in builds without NVSHMEM.

use std::convert::Infallible;

use super::{Communicator, Operand};
use crate::capi::report::{Report, guard};
use crate::error::Error;

pub struct ShmemSession(Infallible);

pub struct ShmemMapped(Infallible);

pub(super) fn shmem_open(_: &Communicator, _: &[u8], _: bool) -> Result<Box<ShmemSession>, Report> {
    guard(|| Err(Error::unsupported("NVSHMEM", "this build has none (feature nvshmem)")))
}

pub(super) fn shmem_symmetric(session: &ShmemSession, _: usize, _: u32) -> Result<Operand, Report> {
    match session.0 {}
}

/// # Safety
/// No requirements: a session cannot exist.
pub(super) unsafe fn shmem_adopt(session: &ShmemSession, _: &Operand) -> Result<Operand, Report> {
    match session.0 {}
}

pub(super) fn shmem_map(session: &ShmemSession, _: &Communicator) -> Result<Box<ShmemMapped>, Report> {
    match session.0 {}
}

/// # Safety
/// No requirements: mapped memory cannot exist.
pub(super) unsafe fn shmem_address_of(mapped: &ShmemMapped, _: &Operand) -> Result<usize, Report> {
    match mapped.0 {}
}

pub(super) fn shmem_reclaim(session: &ShmemSession) -> Result<(), Report> {
    match session.0 {}
}

pub(super) fn shmem_bytes(session: &ShmemSession) -> usize {
    match session.0 {}
}

pub(super) fn shmem_close(session: &ShmemSession) -> Result<(), Report> {
    match session.0 {}
}
