//! GPU collectives for LLM inference inside one host.

pub mod bootstrap;
mod error;
mod ffi;
mod kernel;
mod types;

pub use error::{Error, Operation, Result};
pub use types::{Dtype, Element};
