//! `ncclMemAlloc`, and registrations. Registered memory goes by packets, as all memory does.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use symmetra::DeviceBuffer;

use crate::abi::{self, Handle};
use crate::comm::Comm;
use crate::error::{Failure, Result, argument};
use crate::out::{answer, not_null};
use crate::settings::settings;

/// The memory that this library allocated, by address.
static ALLOCATED: Lazy<Mutex<HashMap<usize, DeviceBuffer<u8>>>> = Lazy::new(Mutex::default);

/// `ncclMemAlloc`.
pub(crate) fn allocate(out: *mut *mut c_void, bytes: usize) -> Result {
    answer("the address of the pointer", out, std::ptr::null_mut())?;
    let device = settings()?.current_device()?;
    // Every pointer is of its own memory, also one of no bytes.
    let memory = DeviceBuffer::<u8>::new(&device, bytes.max(1))?;
    let address = memory.as_raw();
    ALLOCATED.lock().insert(address as usize, memory);
    answer("the address of the pointer", out, address.cast())
}

/// `ncclMemFree` of memory that this library allocated. `false` for other memory.
pub(crate) fn free(address: *mut c_void) -> bool {
    ALLOCATED.lock().remove(&(address as usize)).is_some()
}

/// The failure for an address without memory of `ncclMemAlloc`.
pub(crate) fn unknown(address: *mut c_void) -> Failure {
    Failure::new(abi::UNHANDLED_CUDA_ERROR, format!("{address:p} is not the start of memory of ncclMemAlloc"))
}

fn check_range(address: *mut c_void, bytes: usize) -> Result {
    if address.is_null() {
        return Err(argument("the buffer", "null", "a registration needs memory"));
    }
    match bytes {
        0 => Err(argument("the size", bytes, "a registration needs at least 1 byte")),
        _ => Ok(()),
    }
}

/// `ncclCommRegister`: a hint without effect.
pub(crate) fn register(comm: &Comm, address: *mut c_void, bytes: usize, out: *mut Handle) -> Result {
    check_range(address, bytes)?;
    let out = not_null("the address of the handle", out)?;
    answer("the address of the handle", out, comm.registrations.add(address as usize))
}

pub(crate) fn deregister(comm: &Comm, handle: Handle) -> Result {
    comm.registrations.remove(handle)
}

/// The flags of a window that NCCL has: symmetric, strictly ordered.
const WINDOW_FLAGS: c_int = 3;

/// `ncclCommWindowRegister`. No window: calls on the memory go by packets.
pub(crate) fn register_window(address: *mut c_void, bytes: usize, out: *mut Handle, flags: c_int) -> Result {
    check_range(address, bytes)?;
    if flags & !WINDOW_FLAGS != 0 {
        return Err(argument("the flags of the window", flags, format!("flags are 0 to {WINDOW_FLAGS}")));
    }
    answer("the address of the window", out, std::ptr::null_mut())
}

/// `ncclCommWindowDeregister`. A communicator has no windows.
pub(crate) fn deregister_window(window: Handle) -> Result {
    match window.is_null() {
        true => Ok(()),
        false => Err(argument("the window", format!("{window:p}"), "it is no window of the communicator")),
    }
}
