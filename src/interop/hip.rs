//! Conversions from and to the raw types of [hip-sys](hip_sys) (feature `hip-sys`).
//!
//! | hip-sys | symmetra | |
//! |---|---|---|
//! | `hipDevice_t` | [`Device`] | [`device`] |
//! | `hipStream_t` | [`Stream`] | [`stream`]: borrows the handle, destroys nothing; back by [`as_raw`] |
//! | `hipDeviceptr_t` | [`Ref`] | [`borrow`]: the caller ensures that it is freed late enough |
//!
//! This module uses only the types. Functions of hip-sys are linked; functions that symmetra calls are looked up at run
//! time. Do not pass hip-sys's `hipError_t` from C: it is a closed Rust enum.
//!
//! ```no_run
//! use std::ffi::c_void;
//! use symmetra::interop::hip::{borrow, device, stream};
//! use symmetra::{Communicator, Config, bootstrap::Tcp};
//!
//! # fn all_reduce(native: hip_sys::hiprt::hipStream_t, tensor: *mut c_void) -> Result<(), Box<dyn std::error::Error>> {
//! let device = device(0)?;
//! // SAFETY: `native` is a stream of device 0 that outlives all uses; no other code captures it.
//! let stream = unsafe { stream(&device, native) }?;
//! let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
//! let communicator = Communicator::open(Tcp::from_env(deadline)?, &device, Config::default())?;
//! // SAFETY: 4096 floats from hipMalloc, freed after the stream is synchronised.
//! let tensor = unsafe { borrow::<f32>(&device, tensor, 4096) }?;
//! communicator.all_reduce_in_place(&tensor, &stream)?;
//! communicator.synchronize(&stream)?;
//! communicator.close()?;
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code)]

use hip_sys::hiprt::{hipDevice_t, hipDeviceptr_t, hipStream_t};

use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::memory::Ref;
use crate::stream::Stream;
use crate::types::Element;

/// The device with this ordinal.
///
/// # Errors
/// The errors of [`Device::hip`]; [`Error::InvalidArgument`] for a negative ordinal.
pub fn device(device: hipDevice_t) -> Result<Device> {
    let ordinal =
        usize::try_from(device).map_err(|_| Error::invalid("device ordinal", device, "it must not be negative"))?;
    Device::hip(ordinal)
}

/// Wraps a stream of the program; null is the default stream.
///
/// # Errors
/// [`Error::InvalidArgument`] for a stream of another device, or a device that is not of HIP.
///
/// # Safety
/// The requirements of [`Stream::borrow_raw`].
pub unsafe fn stream(device: &Device, stream: hipStream_t) -> Result<Stream> {
    check(device)?;
    // SAFETY: the caller's promise fulfils the requirements of `borrow_raw`.
    unsafe { Stream::borrow_raw(device, stream as u64) }
}

/// The handle of a stream, valid as long as the stream.
///
/// # Errors
/// [`Error::InvalidArgument`] for a stream of a device that is not of HIP.
pub fn as_raw(stream: &Stream) -> Result<hipStream_t> {
    check(stream.device())?;
    Ok(stream.as_raw() as hipStream_t)
}

/// Borrows `len` elements of device memory that stay with their owner.
///
/// # Errors
/// The errors of [`Ref::from_raw`]; [`Error::InvalidArgument`] for a device that is not of HIP.
///
/// # Safety
/// The requirements of [`Ref::from_raw`].
pub unsafe fn borrow<'a, T: Element>(device: &Device, address: hipDeviceptr_t, len: usize) -> Result<Ref<'a, T>> {
    check(device)?;
    // SAFETY: the caller's promise fulfils the requirements of `from_raw`.
    unsafe { Ref::from_raw(device, address.cast(), len) }
}

fn check(device: &Device) -> Result<()> {
    if device.kind() == DeviceKind::Hip {
        return Ok(());
    }
    Err(Error::invalid("the device", format!("{device:?}"), "a handle of HIP needs a HIP device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_hip_are_refused_by_other_devices() {
        let host = Device::host().unwrap();
        assert!(matches!(device(-1), Err(Error::InvalidArgument { .. })));
        // SAFETY: refused before it is used.
        let stream_of_host = unsafe { stream(&host, std::ptr::null_mut()) };
        assert!(matches!(stream_of_host, Err(Error::InvalidArgument { .. })));
        // SAFETY: refused before it is used.
        let memory_of_host = unsafe { borrow::<f32>(&host, std::ptr::null_mut(), 1) };
        assert!(matches!(memory_of_host, Err(Error::InvalidArgument { .. })));
        assert!(matches!(as_raw(&Stream::new(&host).unwrap()), Err(Error::InvalidArgument { .. })));
    }
}
