//! Settings that environment variables make.

#[cfg(feature = "nccl")]
use std::ffi::OsStr;

use super::setting::Source;
#[cfg(feature = "nccl")]
use crate::device::DeviceKind;
use crate::error::{Error, Result};
#[cfg(feature = "nccl")]
use crate::nccl::Library;

/// Where variables are looked up: the process's environment, or a test's.
pub(super) trait Lookup {
    fn get(&self, name: &'static str) -> Result<Option<String>>;
}

/// The environment of this process.
pub(super) struct Process;

impl Lookup for Process {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        crate::bootstrap::tcp::optional(name)
    }
}

/// What may name an NCCL, the first before the second.
const LIBRARY_NAMES: [&str; 2] = ["SYMMETRA_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"];

/// The NCCL that a variable names, and which.
pub(super) fn library_path(lookup: &impl Lookup) -> Result<Option<(String, Source)>> {
    match text(lookup, None, LIBRARY_NAMES[0])? {
        None => text(lookup, None, LIBRARY_NAMES[1]),
        named => Ok(named),
    }
}

/// Loads the NCCL, or for AMD GPUs the RCCL, that `SYMMETRA_NCCL_LIBRARY` or else `VLLM_NCCL_SO_PATH` names, or else
/// the one that the dynamic loader finds.
///
/// # Errors
/// As [`Library::find`](crate::nccl::Library::find), with the variable.
#[cfg(feature = "nccl")]
pub fn nccl_library(kind: DeviceKind) -> Result<Library> {
    named_library(&Process, kind)
}

#[cfg(feature = "nccl")]
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

/// A number: the program's, else the variable's, else none.
pub(super) fn number(lookup: &impl Lookup, set: Option<usize>, name: &'static str) -> Result<Option<(usize, Source)>> {
    if let Some(set) = set {
        return Ok(Some((set, Source::Program)));
    }
    let Some(text) = lookup.get(name)? else { return Ok(None) };
    let number = text.trim().parse();
    let number = number.map_err(|_| Error::invalid(name, format_args!("`{text}`"), "it must be a number from 0"))?;
    Ok(Some((number, Source::Variable(name))))
}

/// Words: the program's, else the variable's, else none.
pub(super) fn text(lookup: &impl Lookup, set: Option<String>, name: &'static str) -> Result<Option<(String, Source)>> {
    match set {
        Some(set) => Ok(Some((set, Source::Program))),
        None => Ok(lookup.get(name)?.map(|text| (text, Source::Variable(name)))),
    }
}

#[cfg(all(test, feature = "nccl"))]
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
