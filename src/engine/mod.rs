//! Engines of other projects that move bytes between hosts. They handle neither groups nor device memory. Gloo (feature
//! `gloo`) serves CPU memory over TCP.

mod gloo;
mod reduce;

pub(crate) use gloo::{GlooWire, Interface};
pub(crate) use reduce::reduce;
