//! The way of a call: checks of the handle, the library that serves the call, and what becomes of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::abi::{self, Code, Handle};
use crate::comm::{Comm, OwnComm, ServingLibrary};
use crate::error::{self, CallFailure, Result, argument};
use crate::group;
use crate::registry::{self, HandleKind};

/// A result that has a code.
pub(crate) trait Coded {
    fn code(self) -> Code;
}

impl Coded for () {
    fn code(self) -> Code {
        abi::SUCCESS
    }
}

impl Coded for Code {
    fn code(self) -> Code {
        self
    }
}

/// Runs a call of `function`. A failure is kept for `ncclGetLastError` and for the end of an open group.
pub(crate) fn call<T: Coded>(function: &str, run: impl FnOnce() -> Result<T>) -> Code {
    let panicked = || Err(CallFailure::new(abi::INTERNAL_ERROR, "a panic inside the library"));
    match catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| panicked()) {
        Ok(value) => value.code(),
        Err(failure) => {
            error::keep(function, &failure);
            group::remember(&failure);
            failure.code
        }
    }
}

/// A communicator as the handle of a call.
pub(crate) enum CommTarget {
    /// A communicator that this library made, served by symmetra or not open yet.
    Own(Arc<Comm>),
    /// A handle of the real NCCL, of a communicator that this library made or of another.
    Real(Handle),
}

/// The communicator of a handle that this library made; `None` for a handle of another library.
///
/// # Errors
/// A null or freed handle.
pub(crate) fn made_here(handle: Handle) -> Result<Option<Arc<Comm>>> {
    if handle.is_null() {
        return Err(argument("the communicator", "null", "the call needs one"));
    }
    match registry::find(handle) {
        HandleKind::Foreign => Ok(None),
        HandleKind::Freed => Err(argument("the communicator", format!("{handle:p}"), "it was destroyed or aborted")),
        HandleKind::Comm(comm) => Ok(Some(comm)),
    }
}

/// The communicator of a handle.
///
/// # Errors
/// A null or freed handle. A handle of another library is passed on.
pub(crate) fn target(handle: Handle) -> Result<CommTarget> {
    let Some(comm) = made_here(handle)? else { return Ok(CommTarget::Real(handle)) };
    Ok(match comm.side() {
        Ok(ServingLibrary::Real(real)) => CommTarget::Real(real.handle()),
        _ => CommTarget::Own(comm),
    })
}

/// Runs `own` on the communicator of an operation.
pub(crate) fn operation<T>(comm: &Arc<Comm>, own: impl FnOnce(&Arc<Comm>, &OwnComm) -> Result<T>) -> Result<T> {
    match comm.side()? {
        ServingLibrary::Own(side) => own(comm, comm.usable(side)?).map_err(|failure| comm.whole(failure)),
        ServingLibrary::Real(_) => Err(CallFailure::usage("the real NCCL serves the communicator")),
    }
}

/// The answer to a question that cannot fail: of this library, or of the real one for its handles. The default for a handle of
/// no communicator, and without a real library.
pub(crate) fn question<T: Default>(
    handle: Handle,
    answer: impl FnOnce(&Comm) -> T,
    pass: impl FnOnce(Handle) -> Result<T>,
) -> T {
    match target(handle) {
        Ok(CommTarget::Own(comm)) => answer(&comm),
        Ok(CommTarget::Real(handle)) => pass(handle).unwrap_or_default(),
        Err(_) => T::default(),
    }
}
