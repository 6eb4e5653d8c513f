//! Loading NCCL.

use std::ffi::OsStr;

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::nccl::Library;
use crate::variables::{LIBRARY_NAMES, Lookup, Process, library_path};

/// Loads NCCL, or RCCL for AMD GPUs, from `SYMMETRA_NCCL_LIBRARY`, else from `VLLM_NCCL_SO_PATH`, else from the usual places.
///
/// # Errors
/// The errors of [`Library::find`](crate::nccl::Library::find), with the variable.
pub fn nccl_library(kind: DeviceKind) -> Result<Library> {
    named_library(&Process, kind)
}

fn named_library(lookup: &impl Lookup, kind: DeviceKind) -> Result<Library> {
    let named = library_path(lookup)?;
    let path = named.as_ref().map(|(path, _)| OsStr::new(path));
    Library::find(kind, path).map_err(|error| match (error, &named) {
        (Error::Unsupported { what, reason }, Some((_, source))) => {
            Error::unsupported(what, format!("{reason} ({source} names it)"))
        }
        (Error::Unsupported { what, reason }, None) if kind != DeviceKind::Host => {
            Error::unsupported(what, format!("{reason} ({} may name one)", LIBRARY_NAMES.join(" or ")))
        }
        (error, _) => error,
    })
}

#[cfg(test)]
#[path = "../../tests/unit/backend/nccl_library.rs"]
mod tests;
