//! Which NCCL is loaded.

use std::ffi::OsStr;

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::nccl::Library;
use crate::variables::{LIBRARY_NAMES, Lookup, Process, library_path};

/// Loads the NCCL, or for AMD GPUs the RCCL, that `SYMMETRA_NCCL_LIBRARY` or else `VLLM_NCCL_SO_PATH` names, or else
/// the one that the dynamic loader finds.
///
/// # Errors
/// As [`Library::find`](crate::nccl::Library::find), with the variable.
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
mod tests {
    use super::*;

    #[test]
    fn pitfall_36_the_variable_that_names_nccl_is_obeyed_or_named() {
        struct Set(&'static [&'static str]);
        impl Lookup for Set {
            fn get(&self, name: &'static str) -> Result<Option<String>> {
                Ok(self.0.contains(&name).then(|| format!("/nowhere/{name}")))
            }
        }
        let words = |set| named_library(&Set(set), DeviceKind::Cuda).map(drop).unwrap_err().to_string();
        for set in
            [&["SYMMETRA_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"][..], &["SYMMETRA_NCCL_LIBRARY"], &["VLLM_NCCL_SO_PATH"]]
        {
            let words = words(set);
            let (path, name) = (format!("/nowhere/{} cannot be loaded", set[0]), format!("({} names it)", set[0]));
            assert!(words.contains(&path) && words.ends_with(&name), "{words}");
        }
        // A machine without it says all that was tried, and what may help.
        if let Err(error) = named_library(&Set(&[]), DeviceKind::Cuda) {
            let words = error.to_string();
            assert!(words.contains("libnccl.so.2 cannot") && words.contains("libnccl.so cannot"), "{words}");
            assert!(words.ends_with("(SYMMETRA_NCCL_LIBRARY or VLLM_NCCL_SO_PATH may name one)"), "{words}");
        }
    }
}
