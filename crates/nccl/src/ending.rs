//! The end of a communicator. No call of the program waits for peers, for graphs or for memory to be freed.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{self, Code, Handle};
use crate::comm::{Comm, ServingLibrary};
use crate::error::{Result, argument};
use crate::registry;
use crate::route::{self, CommTarget};

/// Pause between two looks whether another thread still uses the communicator.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether the calls under way run to their end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunningCalls {
    Finish,
    GiveUp,
}

/// Ends a handle. A thread of its own leaves the group and frees the memory, because both wait: for other threads of the
/// program, and for the calls under way.
fn free(handle: Handle, calls: RunningCalls) {
    let Some(comm) = registry::remove(handle) else { return };
    let leave = move || {
        if let Some(ServingLibrary::Own(own)) = alone(comm).into_side() {
            match calls {
                // The group has ended for the program, which cannot read a failure any more.
                RunningCalls::Finish => drop(own.communicator.depart()),
                RunningCalls::GiveUp => own.communicator.abandon(),
            }
        }
    };
    // Without a thread the memory stays until the process ends.
    drop(std::thread::Builder::new().name("symmetra-end".to_owned()).spawn(leave));
}

/// The communicator when no other thread uses it.
fn alone(mut comm: Arc<Comm>) -> Comm {
    loop {
        match Arc::try_unwrap(comm) {
            Ok(comm) => return comm,
            Err(shared) => {
                comm = shared;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// The way of a call that ends a communicator. Null is none.
fn end(
    handle: Handle,
    own: impl FnOnce(Arc<Comm>) -> Result,
    real: impl FnOnce(Handle) -> Result<Code>,
) -> Result<Code> {
    if handle.is_null() {
        return Ok(abi::SUCCESS);
    }
    match route::target(handle)? {
        CommTarget::Own(comm) => own(comm).map(|()| abi::SUCCESS),
        CommTarget::Real(passed) => real(passed),
    }
}

/// `ncclCommFinalize`: no operation may follow.
pub(crate) fn finalize(handle: Handle, real: impl FnOnce(Handle) -> Result<Code>) -> Result<Code> {
    end(handle, |comm| comm.check_not_real().and_then(|()| comm.finalize()), real)
}

/// `ncclCommRevoke`: calls under way give up, and no operation may follow.
pub(crate) fn revoke(handle: Handle, flags: c_int, real: impl FnOnce(Handle) -> Result<Code>) -> Result<Code> {
    let revoke = |comm: Arc<Comm>| match flags {
        0 => comm.revoke(),
        _ => Err(argument("the flags of the revoke", flags, "no flag is known: it must be 0")),
    };
    end(handle, revoke, real)
}

/// `ncclCommDestroy`: calls under way run to their end, and the memory is freed then.
pub(crate) fn destroy(handle: Handle, real: impl FnOnce(Handle) -> Result<Code>) -> Result<Code> {
    let code = end(handle, |comm| comm.check_not_real(), real)?;
    free(handle, RunningCalls::Finish);
    Ok(code)
}

/// `ncclCommAbort`: calls under way give up.
pub(crate) fn abort(handle: Handle, real: impl FnOnce(Handle) -> Result<Code>) -> Result<Code> {
    let stop = |comm: Arc<Comm>| {
        comm.abort();
        Ok(())
    };
    let code = end(handle, stop, real)?;
    free(handle, RunningCalls::GiveUp);
    Ok(code)
}
