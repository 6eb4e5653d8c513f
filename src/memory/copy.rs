//! Enqueued copies within a device, and between a device and the memory of the program.
#![allow(unsafe_code)]

use super::operand::{Operand, View};
use super::pinned::HostBuffer;
use crate::error::{Error, Result};
use crate::stream::{Queue, Target};
use crate::types::{Dtype, Element};

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
/// [`Error::InvalidArgument`] for lengths that differ, for memory of another device than the queue's, for a read-only
/// `to`, and for operands that overlap without being the same; [`Error::Unsupported`] on a stream that is being
/// captured by
/// [`Stream::capture`](crate::Stream::capture); [`Error::Device`] if the runtime refuses.
pub fn copy<'op, T: Element>(
    from: impl Operand<'op, T>,
    to: impl Operand<'op, T>,
    queue: impl Queue<'op>,
) -> Result<()> {
    enqueue_copy("copy", &from.view(), &to.view(), T::DTYPE, Target::of(&queue))
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
    enqueue_copy("copy from the host", &from.view(T::DTYPE), &to.view(), T::DTYPE, Target::of(&queue))
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
    enqueue_copy("copy to the host", &from.view(), &to.view(T::DTYPE), T::DTYPE, Target::of(&queue))
}

/// Enqueues a copy named `what` of all elements of the first operand into the second, on the device of the queue.
pub(crate) fn enqueue_copy(
    what: &'static str,
    from: &View<'_>,
    to: &View<'_>,
    dtype: Dtype,
    queue: Target<'_>,
) -> Result<()> {
    let device = queue.stream().device();
    device.check_same("the source", from.device)?;
    device.check_same("the destination", to.device)?;
    to.check_writable("the destination")?;
    if from.elems != to.elems {
        let limit = format!("the source has {} elements", from.elems);
        return Err(Error::invalid("the destination's length", to.elems, limit));
    }
    let bytes = from.elems * dtype.bytes();
    let apart = (from.address as usize).abs_diff(to.address as usize);
    if apart == 0 || bytes == 0 {
        return Ok(());
    }
    if apart < bytes {
        let limit = format!("operands of {bytes} bytes must be the same or {bytes} bytes apart");
        return Err(Error::invalid("the distance of source and destination", format!("{apart} bytes"), limit));
    }
    // SAFETY: both hold `bytes` bytes, and live until the device has done the work, or as long as the graph. Memory of the
    // host waits for the device before Rust accesses or frees its elements.
    queue.enqueue(what, |raw| unsafe { raw.copy(to.address, from.address, bytes) })
}
