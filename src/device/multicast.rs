//! One rank's handle of a multicast object.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use cxx::UniquePtr;

use super::{Allocation, Device};
use crate::error::Result;
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

/// One address for the shared memory of several ranks. `cpp/device/device.hpp` defines the order of the steps. Dropping
/// reverts them; in a forked child it does nothing.
pub(crate) struct MulticastSupport {
    raw: OfMaker<UniquePtr<sys::MulticastObject>>,
    /// Dropped after `raw`: the object must not outlive its device.
    _device: Device,
}

impl MulticastSupport {
    fn new(device: &Device, raw: UniquePtr<sys::MulticastObject>) -> Result<Self> {
        Ok(Self { raw: OfMaker::new(made(raw, "multicast object")?), _device: device.clone() })
    }

    /// The unit of the sizes of objects and of the memory that they bind.
    pub(crate) fn granularity(device: &Device, devices: usize) -> Result<usize> {
        device.raw()?.multicast_granularity(devices as u32).caught()
    }

    /// An object for `bytes` bytes on each of `devices` devices.
    pub(crate) fn create(device: &Device, bytes: usize, devices: usize) -> Result<Self> {
        Self::new(device, device.raw()?.create_multicast(bytes, devices as u32).caught()?)
    }

    /// The object that a rank exported as `fd`.
    pub(crate) fn import(device: &Device, fd: OwnedFd, bytes: usize) -> Result<Self> {
        Self::new(device, device.raw()?.import_multicast(fd.into_raw_fd(), bytes).caught()?)
    }

    /// A file descriptor that ranks can import.
    pub(crate) fn export_fd(&self) -> Result<OwnedFd> {
        let fd = self.raw.export_fd().caught()?;
        // SAFETY: `MulticastObject::export_fd` returns a new descriptor to its caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn add(&mut self) -> Result<()> {
        self.raw.pin_mut().add().caught()
    }

    /// Binds memory, which outlives the object. Every device has been added.
    pub(crate) fn bind(&mut self, memory: &Allocation) -> Result<()> {
        self.raw.pin_mut().bind(memory.raw()).caught()
    }

    pub(crate) fn map(&mut self) -> Result<()> {
        self.raw.pin_mut().map().caught()
    }

    /// The address, which only multicast accesses of kernels may use; null before [`map`](Self::map).
    pub(crate) fn address(&self) -> *mut u8 {
        self.raw.address()
    }
}
