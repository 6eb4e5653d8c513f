//! Places of the program that a call writes.
#![allow(unsafe_code)]

use crate::error::{Result, argument};

/// The address, unless it is null.
pub(crate) fn not_null<T>(what: &str, address: *mut T) -> Result<*mut T> {
    match address.is_null() {
        true => Err(argument(what, "null", "the call writes it")),
        false => Ok(address),
    }
}

/// Writes an answer.
pub(crate) fn answer<T>(what: &str, out: *mut T, value: T) -> Result {
    let out = not_null(what, out)?;
    // SAFETY: the caller's place for the answer, which is not null.
    unsafe { out.write(value) };
    Ok(())
}
