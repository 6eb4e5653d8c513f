//! Enqueued copies within a device, and between a device and the memory of the program.
#![allow(unsafe_code)]

use super::operand::Operand;
use super::pinned::HostBuffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::{Queue, Target};
use crate::types::Element;

/// Enqueues a copy of all elements of `from` into `to`, on one device, on a stream or in a capture. Both are memory of
/// this rank; of symmetric and adopted memory, this rank's part is used. Returns without waiting for the copy.
/// ```
/// # use symmetra::*;
/// fn keep(last: &SymmetricBuffer<f32>, kept: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     copy(last.slice(..kept.len())?, kept, stream)
/// }
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`] for lengths that differ, for memory of another device than the queue's, and for operands that
/// overlap without being the same; [`Error::Unsupported`] on a stream that is being captured by
/// [`Stream::capture`](crate::Stream::capture); [`Error::Device`] if the runtime refuses.
pub fn copy<'op, T: Element>(
    from: impl Operand<'op, T>,
    to: impl Operand<'op, T>,
    queue: impl Queue<'op>,
) -> Result<()> {
    let (from, to, queue) = (from.view(), to.view(), Target::of(&queue));
    let bytes = checked::<T>(queue, [(from.device, from.elems), (to.device, to.elems)])?;
    let apart = (from.address as usize).abs_diff(to.address as usize);
    if apart == 0 || bytes == 0 {
        return Ok(());
    }
    if apart < bytes {
        let limit = format!("operands of {bytes} bytes must be the same or {bytes} bytes apart");
        return Err(Error::invalid("the distance of source and destination", format!("{apart} bytes"), limit));
    }
    // SAFETY: both hold `bytes` bytes, and live until the device has done the work, or as long as the graph.
    queue.enqueue("copy", |raw| unsafe { raw.copy(to.address, from.address, bytes) })
}

/// Enqueues a copy of all elements of `from`, memory of the host, into `to`, on a stream or in a capture. Returns
/// without waiting for the copy. In a graph, each launch copies the contents of `from` at that time.
///
/// # Errors
/// The errors of [`copy`].
pub fn copy_from_host<'op, T: Element>(
    from: &'op HostBuffer<T>,
    to: impl Operand<'op, T>,
    queue: impl Queue<'op>,
) -> Result<()> {
    let (to, queue) = (to.view(), Target::of(&queue));
    let bytes = checked::<T>(queue, [(from.device(), from.len()), (to.device, to.elems)])?;
    let copy = |raw: &crate::sys::device::Stream| {
        // SAFETY: both hold `bytes` bytes. `to` lives as in `copy`. So does `from`, which waits for the device before
        // Rust accesses or frees its elements.
        unsafe { raw.copy(to.address, from.address(), bytes) }
    };
    if bytes == 0 { Ok(()) } else { queue.enqueue("copy from the host", copy) }
}

/// Enqueues a copy of all elements of `from` into `to`, memory of the host, on a stream or in a capture. Returns
/// without waiting for the copy. [`HostBuffer::elements`] waits for the copy.
///
/// # Errors
/// The errors of [`copy`].
pub fn copy_to_host<'op, T: Element>(
    from: impl Operand<'op, T>,
    to: &'op HostBuffer<T>,
    queue: impl Queue<'op>,
) -> Result<()> {
    let (from, queue) = (from.view(), Target::of(&queue));
    let bytes = checked::<T>(queue, [(from.device, from.elems), (to.device(), to.len())])?;
    let copy = |raw: &crate::sys::device::Stream| {
        // SAFETY: as in `copy_from_host`.
        unsafe { raw.copy(to.address(), from.address, bytes) }
    };
    if bytes == 0 { Ok(()) } else { queue.enqueue("copy to the host", copy) }
}

/// The bytes of a copy between two operands of equal length on the device of a queue.
fn checked<T: Element>(queue: Target<'_>, [from, to]: [(&Device, usize); 2]) -> Result<usize> {
    let device = queue.stream().device();
    device.check_same("the source", from.0)?;
    device.check_same("the destination", to.0)?;
    if from.1 != to.1 {
        return Err(Error::invalid("the destination's length", to.1, format!("the source has {} elements", from.1)));
    }
    Ok(from.1 * size_of::<T>())
}
