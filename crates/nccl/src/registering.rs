//! Collective registrations of windows: at once, or at the end of a group.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use symmetra::{DeviceKind, Ref};

use crate::abi::Handle;
use crate::at_once::at_once;
use crate::comm::{Comm, OwnComm, ServingLibrary};
use crate::error::{Result, argument};
use crate::log;
use crate::memory;
use crate::out::not_null;
use crate::windows::{FLAGS, WindowRequest};

/// A registration that this rank takes part in.
pub(crate) struct Registering {
    comm: Arc<Comm>,
    asked: WindowRequest,
    /// The address of the program's `ncclWindow_t`.
    place: usize,
}

impl Registering {
    /// `ncclCommWindowRegister` of `bytes` bytes at `address`. 0 bytes of one rank are a failure on all ranks.
    ///
    /// # Safety
    /// `window` is null or an `ncclWindow_t` of the program. It stays until the call returns, or until the outermost group has
    /// ended.
    pub(crate) unsafe fn new(
        comm: &Arc<Comm>,
        address: *mut c_void,
        bytes: usize,
        window: *mut Handle,
        flags: c_int,
    ) -> Result<Self> {
        comm.check_usable()?;
        let window = not_null("the address of the window", window)?;
        // SAFETY: the caller's promise.
        unsafe { window.write(std::ptr::null_mut()) };
        if address.is_null() {
            return Err(argument("the buffer", "null", "a window needs memory"));
        }
        if flags & !FLAGS != 0 {
            return Err(argument("the flags of the window", flags, format!("flags are 0 to {FLAGS}")));
        }
        let asked = WindowRequest { address: address as usize, bytes, flags };
        Ok(Self { comm: comm.clone(), asked, place: window as usize })
    }

    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Registers the memory. Collective; blocks.
    pub(crate) fn run(self) -> Result {
        let Self { comm, asked, place } = self;
        let ServingLibrary::Own(own) = comm.side()? else { return Ok(()) };
        let memory = memory_of(own, asked);
        match own.windows.register(&own.communicator, asked, memory)? {
            // SAFETY: the promise of `new`.
            Some(window) => unsafe { (place as *mut Handle).write(window) },
            None => log::warn(&format!(
                "{}: no window of {} bytes at {:#x}, because some rank cannot share its memory: calls go by packets",
                comm.name(),
                asked.bytes,
                asked.address
            )),
        }
        Ok(())
    }

    /// Registers the windows of a group: those of a communicator in their order, and all communicators at the same time.
    pub(crate) fn run_all(mut windows: Vec<Self>) -> Result {
        let mut of_comms = Vec::new();
        while let Some(first) = windows.first() {
            let comm = first.comm.clone();
            let (own, others) = windows.into_iter().partition::<Vec<_>, _>(|window| Arc::ptr_eq(&window.comm, &comm));
            windows = others;
            of_comms.push(own);
        }
        let run = |windows: Vec<Self>| windows.into_iter().try_for_each(Self::run);
        if of_comms.len() < 2 {
            return of_comms.into_iter().try_for_each(run);
        }
        let steps = of_comms.into_iter().map(|windows| move || run(windows)).collect();
        at_once(steps, "windows were registered").into_iter().collect()
    }
}

/// The memory of a window, if the device knows all its bytes as one allocation. The owner is known for memory of this
/// library.
fn memory_of(own: &OwnComm, WindowRequest { address, bytes, .. }: WindowRequest) -> Option<Ref<'static, u8>> {
    let device = own.communicator.device();
    // Every communicator of the host device has a device of its own, which knows no memory of others.
    let of_library = memory::find(address..address.saturating_add(bytes)).filter(|_| device.kind() != DeviceKind::Host);
    // SAFETY: NCCL's contract is that the memory is valid until its window is deregistered on all ranks.
    of_library.or_else(|| unsafe { Ref::from_raw(device, address as *mut u8, bytes) }.ok())
}
