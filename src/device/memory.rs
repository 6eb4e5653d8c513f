//! Device memory: allocations, and mappings of peers' allocations.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use cxx::UniquePtr;

use super::Device;
use crate::error::Result;
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

/// One allocation or mapping. Dropping it waits for the device's work, then frees or unmaps the memory; in a forked
/// child dropping it does nothing.
///
/// Rust never creates a reference to the contents: a device or a peer may write them at any time.
pub(crate) struct Allocation {
    raw: OfMaker<UniquePtr<sys::Memory>>,
    /// Dropped after `raw`: memory must not outlive its device.
    device: Device,
}

impl Allocation {
    fn new(device: &Device, raw: UniquePtr<sys::Memory>) -> Result<Self> {
        Ok(Self { raw: OfMaker::new(made(raw, "memory")?), device: device.clone() })
    }

    /// Whether this process created the memory. Otherwise it is a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.device.is_here()
    }

    /// Memory for this rank only, contents undefined.
    pub(crate) fn plain(device: &Device, bytes: usize) -> Result<Self> {
        Self::new(device, device.raw()?.allocate(bytes).caught()?)
    }

    /// Zeroed memory that peers can import, at least `bytes` long.
    pub(crate) fn shared(device: &Device, bytes: usize) -> Result<Self> {
        let granularity = device.raw()?.shared_granularity().caught()?;
        Self::new(device, device.raw()?.allocate_shared(bytes.next_multiple_of(granularity)).caught()?)
    }

    /// Memory like [`shared`](Self::shared) that the other devices of this process can address too, at the same address. Only
    /// CUDA devices have such memory.
    pub(crate) fn exported(device: &Device, bytes: usize) -> Result<Self> {
        let memory = Self::shared(device, bytes)?;
        device.raw()?.open_to_peers(&memory.raw).caught()?;
        Ok(memory)
    }

    /// Maps shared memory that a peer exported as `fd`.
    pub(crate) fn import(device: &Device, fd: OwnedFd, bytes: usize) -> Result<Self> {
        Self::new(device, device.raw()?.import_shared(fd.into_raw_fd(), bytes).caught()?)
    }

    /// Maps shared memory of this process for another device. `owner` must outlive the result.
    pub(crate) fn alias(device: &Device, owner: &Self) -> Result<Self> {
        Self::new(device, device.raw()?.alias_shared(&owner.raw).caught()?)
    }

    /// Maps memory that another process exported by legacy IPC handle.
    pub(crate) fn import_ipc(device: &Device, handle: &sys::IpcHandle, bytes: usize) -> Result<Self> {
        Self::new(device, device.raw()?.import_ipc(handle, bytes).caught()?)
    }

    /// The file of the allocation at `base`, and the offset in it. For memory that `classify` reports as
    /// `POINTER_FILE`.
    pub(crate) fn export_file(device: &Device, base: u64) -> Result<(OwnedFd, u64)> {
        // SAFETY: the backend only looks `base` up in its tables.
        let part = unsafe { device.raw()?.export_file(base as *const u8) }.caught()?;
        // SAFETY: `Device::export_file` returns a new descriptor to its caller.
        Ok((unsafe { OwnedFd::from_raw_fd(part.fd) }, part.offset))
    }

    /// Maps a part of the file that holds plain memory of another process.
    pub(crate) fn import_file(device: &Device, fd: OwnedFd, offset: u64, bytes: usize) -> Result<Self> {
        let part = sys::FilePart { offset, fd: fd.into_raw_fd(), padding: 0 };
        Self::new(device, device.raw()?.import_file(&part, bytes).caught()?)
    }

    /// Makes host memory addressable by the device.
    ///
    /// # Safety
    /// `address` is page-aligned and mapped for `bytes` bytes for as long as the result lives.
    pub(crate) unsafe fn pin(device: &Device, address: *mut u8, bytes: usize) -> Result<Self> {
        // SAFETY: the caller's promise fulfils the requirements of `Device::pin`.
        Self::new(device, unsafe { device.raw()?.pin(address, bytes) }.caught()?)
    }

    pub(super) fn raw(&self) -> &sys::Memory {
        &self.raw
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.raw.address()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.raw.bytes()
    }

    /// A file descriptor that peers can import.
    pub(crate) fn export_fd(&self) -> Result<OwnedFd> {
        let fd = self.raw.export_fd().caught()?;
        // SAFETY: `Allocation::export_fd` returns a new descriptor to its caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
