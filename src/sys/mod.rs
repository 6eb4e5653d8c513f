//! The C++ functions that Rust calls, by `#[cxx::bridge]`s.
//!
//! Cold calls return `Result` and keep kind, native code and rank of the exception. Hot calls return an `i32` that
//! [`crate::device::Device::check`] converts to an error.
#![allow(unsafe_code)]

pub(crate) mod device;
mod exception;
pub(crate) mod foreign;
#[cfg(feature = "gloo")]
pub(crate) mod gloo;

pub(crate) use exception::Caught;

use crate::error::{Error, Result};

/// An object that C++ returned, which is never null.
pub(crate) fn made<T: cxx::memory::UniquePtrTarget>(raw: cxx::UniquePtr<T>, what: &str) -> Result<cxx::UniquePtr<T>> {
    if raw.is_null() { Err(Error::internal(format!("a device backend returned no {what}"))) } else { Ok(raw) }
}
