//! `ncclMemAlloc`, and hints of the program about its memory.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use symmetra::{DeviceBuffer, Ref};

use crate::abi::{self, Code, Handle};
use crate::comm::Comm;
use crate::error::{CallFailure, Result, argument};
use crate::out::{answer, not_null};
use crate::settings::settings;
use crate::windows;

/// The memory that this library allocated, by address.
static ALLOCATED: Lazy<Mutex<BTreeMap<usize, DeviceBuffer<u8>>>> = Lazy::new(Mutex::default);

/// `ncclMemAlloc`. `pass` allocates by the real library. This library allocates physical memory too, where the device has it:
/// communicators of the real library accept windows of physical memory alone.
pub(crate) fn allocate(out: *mut *mut c_void, bytes: usize, pass: impl FnOnce() -> Result<Code>) -> Result<Code> {
    answer("the address of the pointer", out, std::ptr::null_mut())?;
    let settings = settings()?;
    if settings.is_off() {
        return pass();
    }
    let device = settings.current_device()?;
    // Every pointer is of its own memory, also one of no bytes.
    let memory = DeviceBuffer::<u8>::exportable(&device, bytes.max(1))?;
    let address = memory.as_raw();
    ALLOCATED.lock().insert(address as usize, memory);
    answer("the address of the pointer", out, address.cast()).map(|()| abi::SUCCESS)
}

/// `ncclMemFree` of memory that this library allocated, which ends the windows inside. `false` for other memory.
pub(crate) fn free(address: *mut c_void) -> bool {
    let Some(memory) = ALLOCATED.lock().remove(&(address as usize)) else { return false };
    windows::forget(&(address as usize..address as usize + memory.len()));
    true
}

/// Memory that this library allocated and that contains the range.
#[allow(unsafe_code)]
pub(crate) fn find(range: Range<usize>) -> Option<Ref<'static, u8>> {
    let allocated = ALLOCATED.lock();
    let (start, memory) = allocated.range(..=range.start).next_back()?;
    // SAFETY: as with NCCL, the program frees the memory only after the work that uses it.
    let memory = unsafe { memory.shared() };
    memory.slice(range.start - start..range.end.checked_sub(*start)?).ok()
}

/// The failure for an address without memory of `ncclMemAlloc`.
pub(crate) fn unknown(address: *mut c_void) -> CallFailure {
    CallFailure::new(abi::UNHANDLED_CUDA_ERROR, format!("{address:p} is not the start of memory of ncclMemAlloc"))
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
