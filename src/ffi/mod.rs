//! The language boundary: the only `#[cxx::bridge]`s of the crate.
//!
//! `device` is what Rust asks of C++; `export` what C++ asks of Rust. Two lanes cross:
//! cold calls return `Result` and keep kind, native code and rank of the exception;
//! hot calls return an `i32` that [`crate::device::Device::check`] turns into an error.
#![allow(unsafe_code)]

pub(crate) mod device;
mod exception;
mod export;
pub(crate) mod foreign;
#[cfg(feature = "gloo")]
pub(crate) mod gloo;
