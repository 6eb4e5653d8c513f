//! Devices and streams.

use super::Report;
use super::report::guard;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::stream::Stream;

pub(super) fn device_host() -> Result<Box<Device>, Report> {
    guard(|| Device::host().map(Box::new))
}

pub(super) fn device_cuda(ordinal: usize) -> Result<Box<Device>, Report> {
    guard(|| Device::cuda(ordinal).map(Box::new))
}

pub(super) fn device_hip(ordinal: usize) -> Result<Box<Device>, Report> {
    guard(|| Device::hip(ordinal).map(Box::new))
}

pub(super) fn device_count(kind: u32) -> Result<usize, Report> {
    guard(|| {
        let kinds = [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip];
        let kind = kinds.into_iter().find(|known| *known as u32 == kind);
        kind.map(Device::count)
            .ok_or_else(|| Error::invalid("the number of a DeviceKind", "unknown", "it must be 0, 1 or 2"))
    })
}

pub(super) fn device_kind(device: &Device) -> u32 {
    device.kind() as u32
}

pub(super) fn device_ordinal(device: &Device) -> i32 {
    device.ordinal()
}

pub(super) fn device_name(device: &Device) -> Result<String, Report> {
    guard(|| Ok(device.name()))
}

pub(super) fn device_synchronize(device: &Device) -> Result<(), Report> {
    guard(|| device.synchronize())
}

pub(super) fn stream_new(device: &Device) -> Result<Box<Stream>, Report> {
    guard(|| Stream::new(device).map(Box::new))
}

/// # Safety
/// The requirements of `Stream::borrow_raw`: the caller's duty.
pub(super) unsafe fn stream_borrow(device: &Device, raw: u64) -> Result<Box<Stream>, Report> {
    // SAFETY: passed on.
    guard(|| unsafe { Stream::borrow_raw(device, raw) }.map(Box::new))
}

pub(super) fn stream_native(stream: &Stream) -> u64 {
    stream.as_raw()
}

pub(super) fn stream_done(stream: &Stream) -> Result<bool, Report> {
    guard(|| stream.is_done())
}

pub(super) fn stream_synchronize(stream: &Stream) -> Result<(), Report> {
    guard(|| stream.synchronize())
}
