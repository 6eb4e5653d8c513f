//! Enqueued copies, and memory of the host for them.

use std::sync::Arc;

use super::mirror::value;
use super::report::guard;
use super::tensor::{resolve, target};
use super::{Device, Report};
use crate::error::{Error, Result};
use crate::memory::{HostBuffer, View, enqueue_copy};
use crate::stream::Target;
use crate::types::Dtype;
use bridge::{Operand, Queue};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type Device = crate::device::Device;
        type Operand = crate::capi::bridge::Operand;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        type HostMemory;
        fn host_memory_new(device: &Device, count: usize, dtype: u32) -> Result<Box<HostMemory>>;
        fn host_memory_dtype(memory: &HostMemory) -> u32;
        fn host_memory_count(memory: &HostMemory) -> usize;
        fn host_memory_address(memory: &HostMemory) -> Result<usize>;
        unsafe fn copy(from: &Operand, to: &Operand, queue: Queue) -> Result<()>;
        unsafe fn copy_from_host(from: &HostMemory, to: &Operand, queue: Queue) -> Result<()>;
        unsafe fn copy_to_host(from: &Operand, to: &HostMemory, queue: Queue) -> Result<()>;
    }
}

/// Memory of the host, which graphs of its copies keep alive.
pub struct HostMemory {
    bytes: Arc<HostBuffer<u8>>,
    dtype: Dtype,
}

impl HostMemory {
    /// The elements as an operand of a copy, which a capture keeps.
    fn lend(&self, queue: Target<'_>) -> (View<'_>, Dtype) {
        queue.keep(&self.bytes);
        (self.bytes.view(self.dtype), self.dtype)
    }
}

fn host_memory_new(device: &Device, count: usize, number: u32) -> Result<Box<HostMemory>, Report> {
    guard(|| {
        let dtype = value::<Dtype>(number)?;
        let bytes = count.checked_mul(dtype.bytes()).ok_or_else(|| {
            Error::invalid("the number of elements", count, format!("the bytes of {dtype} must fit 64 bits"))
        })?;
        Ok(Box::new(HostMemory { bytes: Arc::new(HostBuffer::new(device, bytes)?), dtype }))
    })
}

fn host_memory_dtype(memory: &HostMemory) -> u32 {
    memory.dtype as u32
}

fn host_memory_count(memory: &HostMemory) -> usize {
    memory.bytes.len() / memory.dtype.bytes()
}

/// The address of the elements, after all work of the device.
fn host_memory_address(memory: &HostMemory) -> Result<usize, Report> {
    guard(|| Ok(memory.bytes.settled()? as usize))
}

/// Enqueues a copy between operands of one type.
fn enqueue(what: &'static str, from: &(View<'_>, Dtype), to: &(View<'_>, Dtype), queue: Target<'_>) -> Result<()> {
    if to.1 != from.1 {
        return Err(Error::invalid("the destination's type", to.1, format!("the source's is {}", from.1)));
    }
    enqueue_copy(what, &from.0, &to.0, from.1, queue)
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn copy(from: &Operand, to: &Operand, queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [from, to]) }?;
        let device = queue.stream().device();
        // SAFETY: passed on.
        enqueue("copy", &unsafe { resolve(device, from) }?, &unsafe { resolve(device, to) }?, queue)
    })
}

/// # Safety
/// The pointers of operand and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn copy_from_host(from: &HostMemory, to: &Operand, queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [to]) }?;
        // SAFETY: passed on.
        let to = unsafe { resolve(queue.stream().device(), to) }?;
        enqueue("copy from the host", &from.lend(queue), &to, queue)
    })
}

/// # Safety
/// The pointers of operand and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn copy_to_host(from: &Operand, to: &HostMemory, queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [from]) }?;
        // SAFETY: passed on.
        let from = unsafe { resolve(queue.stream().device(), from) }?;
        enqueue("copy to the host", &from, &to.lend(queue), queue)
    })
}
