//! Memory of other ranks that lies in several pieces of physical memory.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use cxx::UniquePtr;

use super::Device;
use crate::error::Result;
use crate::fork::OfMaker;
use crate::sys::device::{self as sys, PointerInfo};
use crate::sys::{Caught, made};

/// Pieces of physical memory in one range of addresses. Dropping it waits for the device, then unmaps the pieces; in a
/// forked child it does nothing.
pub(crate) struct Assembly {
    raw: OfMaker<UniquePtr<sys::Assembly>>,
    /// Dropped after `raw`: the mappings must not outlive their device.
    _device: Device,
}

impl Assembly {
    /// Room for `bytes` bytes.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let raw = device.raw()?.assemble(bytes).caught()?;
        Ok(Self { raw: OfMaker::new(made(raw, "assembly")?), _device: device.clone() })
    }

    /// Maps the next piece, which another process exported as `fd`.
    pub(crate) fn add(&mut self, fd: OwnedFd, bytes: usize) -> Result<()> {
        self.raw.pin_mut().add(fd.into_raw_fd(), bytes).caught()
    }

    /// Maps the next piece, which is mapped at `base` in this process too.
    pub(crate) fn alias(&mut self, base: u64, bytes: usize) -> Result<()> {
        // SAFETY: the driver only looks `base` up in its tables, and the mapping keeps the physical memory.
        unsafe { self.raw.pin_mut().alias(base as *const u8, bytes) }.caught()
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.raw.address()
    }
}

/// A piece of physical memory that this process has mapped.
pub(crate) struct MappedPiece(PointerInfo);

impl MappedPiece {
    /// The piece at an address that `classify` reports as `POINTER_VMM`.
    pub(crate) fn at(device: &Device, address: u64) -> Result<Self> {
        // SAFETY: the driver only looks the address up in its tables.
        unsafe { device.raw()?.piece(address as *const u8) }.caught().map(Self)
    }

    /// The first address.
    pub(crate) fn base(&self) -> u64 {
        self.0.base
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// A descriptor of the piece at `base`, which other processes can map.
    pub(crate) fn export(device: &Device, base: u64) -> Result<OwnedFd> {
        // SAFETY: the driver only looks `base` up in its tables.
        let fd = unsafe { device.raw()?.export_piece(base as *const u8) }.caught()?;
        // SAFETY: `Device::export_piece` returns a new descriptor to its caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
