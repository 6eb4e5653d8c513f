//! What moves bytes between hosts, over engines of others.
//!
//! A side room: it knows neither groups nor memory of devices. Gloo (feature `gloo`) serves
//! memory of the CPU over TCP.

mod gloo;
mod reduce;

pub(crate) use gloo::{Interface, Wire};
pub(crate) use reduce::reduce;
