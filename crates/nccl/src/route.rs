//! The way of a call: checks of the handle, the library that serves the call, and what becomes of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::abi::{self, Code, Handle};
use crate::comm::{Comm, Own, Side};
use crate::error::{self, Failure, Result, argument};
use crate::group;
use crate::registry::{self, Found};

/// A result that has a code.
pub(crate) trait Outcome {
    fn code(self) -> Code;
}

impl Outcome for () {
    fn code(self) -> Code {
        abi::SUCCESS
    }
}

impl Outcome for Code {
    fn code(self) -> Code {
        self
    }
}

/// Runs a call of `function`. A failure is kept for `ncclGetLastError` and for the end of an open group.
pub(crate) fn call<T: Outcome>(function: &str, run: impl FnOnce() -> Result<T>) -> Code {
    let panicked = || Err(Failure::new(abi::INTERNAL_ERROR, "a panic inside the library"));
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
pub(crate) enum Target {
    /// A communicator that this library made, served by symmetra or not open yet.
    Own(Arc<Comm>),
    /// A handle of the real NCCL, of a communicator that this library made or of another.
    Real(Handle),
}

/// The communicator of a handle.
///
/// # Errors
/// A null or freed handle. A handle of another library is passed on.
pub(crate) fn target(handle: Handle) -> Result<Target> {
    if handle.is_null() {
        return Err(argument("the communicator", "null", "the call needs one"));
    }
    match registry::find(handle) {
        Found::Foreign => Ok(Target::Real(handle)),
        Found::Freed => Err(argument("the communicator", format!("{handle:p}"), "it was destroyed or aborted")),
        Found::Comm(comm) => Ok(match comm.side() {
            Ok(Side::Real(real)) => Target::Real(real.0),
            _ => Target::Own(comm),
        }),
    }
}

/// Runs `own` on the communicator of an operation.
pub(crate) fn operation<T>(comm: &Arc<Comm>, own: impl FnOnce(&Arc<Comm>, &Own) -> Result<T>) -> Result<T> {
    match comm.side()? {
        Side::Own(side) => own(comm, comm.usable(side)?),
        Side::Real(_) => Err(Failure::usage("the real NCCL serves the communicator")),
    }
}

/// The answer to a question that cannot fail; the default for a handle that is not a communicator of symmetra's kernels.
pub(crate) fn question<T: Default>(handle: Handle, answer: impl FnOnce(&Comm) -> T) -> T {
    match target(handle) {
        Ok(Target::Own(comm)) => answer(&comm),
        _ => T::default(),
    }
}
