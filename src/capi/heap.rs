//! The memory of all ranks for kernels of C++ programs, and such kernels on the host device.

use std::time::Duration;

use super::report::guard;
use super::tensor::target;
use super::{Communicator, Report};
use crate::device::HostShape;
use crate::error::Error;
use crate::kernel::args::Heap;
use crate::stream::HostLaunch;
use crate::sys::device::HostKernel;
use bridge::{MaybeSize, Queue};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/kernels/args.hpp");
        include!("symmetra/src/capi/mod.rs.h");

        type Communicator = crate::collective::Communicator;
        type MaybeSize = crate::capi::bridge::MaybeSize;
        type Queue = crate::capi::bridge::Queue;
        #[namespace = "symmetra::device"]
        type Heap = crate::kernel::args::Heap;
    }

    extern "Rust" {
        unsafe fn heap_view(communicator: &Communicator, deadline_ms: MaybeSize, queue: Queue) -> Result<Heap>;
        fn heap_has_native_atomics(communicator: &Communicator) -> bool;
        unsafe fn launch_host(entry: usize, args: &[u8], blocks: u32, threads: u32, queue: Queue) -> Result<()>;
    }
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn heap_view(communicator: &Communicator, deadline_ms: MaybeSize, queue: Queue) -> Result<Heap, Report> {
    let deadline = deadline_ms.set.then(|| Duration::from_millis(deadline_ms.value as u64));
    guard(|| {
        // SAFETY: passed on.
        let queue = unsafe { target(queue, []) }?;
        Ok(communicator.heap_on(deadline, queue)?.raw())
    })
}

fn heap_has_native_atomics(communicator: &Communicator) -> bool {
    communicator.has_native_atomics()
}

/// # Safety
/// `entry` is the address of a function that takes the address of a copy of `args`, and both are as the header of `launch`
/// requires: *caller's duty*. The queue's pointers are those of the headers: *borrowing*.
unsafe fn launch_host(entry: usize, args: &[u8], blocks: u32, threads: u32, queue: Queue) -> Result<(), Report> {
    guard(|| {
        if entry == 0 {
            return Err(Error::invalid("the kernel", "null", "it must be a function"));
        }
        // SAFETY: caller's duty.
        let entry = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*const core::ffi::c_void)>(entry) };
        let kernel = HostKernel { entry, args: args.as_ptr().cast(), bytes: args.len() as u64 };
        let launch = HostLaunch::of_caller(HostShape { blocks, threads });
        // SAFETY: passed on.
        let queue = unsafe { target(queue, []) }?;
        // SAFETY: caller's duty.
        unsafe { launch.enqueue(&kernel, queue) }
    })
}
