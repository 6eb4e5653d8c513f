//! Environment variables: which there are, and what a name nobody knows was meant to be.

#[cfg(feature = "nccl")]
use std::ffi::OsStr;

use super::setting::Source;
#[cfg(feature = "nccl")]
use crate::device::DeviceKind;
use crate::error::{Error, Result};
#[cfg(feature = "nccl")]
use crate::nccl::Library;

/// A variable that symmetra reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: &'static str,
    /// What holds where it is unset.
    pub default: &'static str,
    /// What it does.
    pub effect: &'static str,
}

/// Every variable that symmetra reads, as README lists them. A setting made in the program always
/// beats one made here.
pub const VARIABLES: [Variable; 14] = [
    variable("RANK", "number", "required by env://", "this rank, of all ranks or of one data parallel replica"),
    variable("WORLD_SIZE", "number", "required by env://", "how many ranks there are, likewise"),
    variable("LOCAL_RANK", "number", "place on the host", "which device of the host this rank works on"),
    variable("MASTER_ADDR", "host", "required by env://", "where rank 0 listens"),
    variable("MASTER_PORT", "port", "required by env://", "the port it listens at"),
    variable("SYMMETRA_SECRET", "32 hex digits", "zeros", "what ranks prove to know when they meet by TCP"),
    variable("SYMMETRA_BIND", "IP address", "loopback", "the interface rank 0 listens at"),
    variable("SYMMETRA_INTERFACE", "IP address or name", "the way to rank 0", "the interface between hosts"),
    variable("SYMMETRA_BACKEND", "auto, own, nccl or host", "auto", "the one backend that may serve groups"),
    variable("SYMMETRA_NCCL_LIBRARY", "path", "libnccl.so.2, librccl.so.1", "the NCCL or RCCL to load"),
    variable("VLLM_NCCL_SO_PATH", "path", "unset", "the same, where SYMMETRA_NCCL_LIBRARY is unset"),
    variable("CUDA_VISIBLE_DEVICES", "list", "all", "which NVIDIA GPUs there are; read by the CUDA driver"),
    variable("HIP_VISIBLE_DEVICES", "list", "all", "which AMD GPUs there are; read by the HIP runtime"),
    variable("RUST_LOG", "filter", "warn", "what the program `symmetra` logs to standard error"),
];

const fn variable(name: &'static str, kind: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, kind, default, effect }
}

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
    const NAMES: [&str; 2] = ["SYMMETRA_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"];
    let named = match lookup.get(NAMES[0])? {
        Some(path) => Some((NAMES[0], path)),
        None => lookup.get(NAMES[1])?.map(|path| (NAMES[1], path)),
    };
    let path = named.as_ref().map(|(_, path)| OsStr::new(path));
    Library::find(kind, path).map_err(|error| match (error, &named) {
        (Error::Unsupported { what, reason }, Some((name, _))) => {
            Error::unsupported(what, format!("{reason} ({name} names it)"))
        }
        (Error::Unsupported { what, reason }, None) if kind != DeviceKind::Host => {
            Error::unsupported(what, format!("{reason} ({} may name one)", NAMES.join(" or ")))
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

/// Warns of variables of this process that look like symmetra's and are not.
pub(super) fn warn_of_unknown() {
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    for (name, nearest) in unknown(names.iter().map(String::as_str)) {
        tracing::warn!("nothing reads the variable {name}; did you mean {nearest}?");
    }
}

/// Says of every variable `SYMMETRA_*` among `names` that nobody reads which one it resembles.
fn unknown<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(String, &'static str)> {
    let ours = |name: &&str| name.starts_with("SYMMETRA_") && !name.starts_with("SYMMETRA_TEST_");
    let known = |name: &str| VARIABLES.iter().chain(&BUILD).any(|variable| variable.name == name);
    names.into_iter().filter(ours).filter(|name| !known(name)).map(|name| (name.to_owned(), nearest(name))).collect()
}

/// Read when symmetra is built, so that they are nobody's mistake.
const BUILD: [Variable; 2] = [
    variable("SYMMETRA_CUDA_ARCHS", "list", "80,90a,100a", "the GPU architectures to build for"),
    variable("SYMMETRA_UPDATE", "flag", "unset", "whether tests write generated files anew"),
];

fn nearest(name: &str) -> &'static str {
    let candidates = VARIABLES.iter().chain(&BUILD).filter(|variable| variable.name.starts_with("SYMMETRA_"));
    candidates.min_by_key(|variable| strsim::levenshtein(name, variable.name)).map_or("", |variable| variable.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_36_a_misspelt_variable_is_not_ignored_in_silence() {
        let names = ["PATH", "SYMMETRA_SECRETS", "SYMMETRA_SECRET", "SYMMETRA_NCCL_LIB", "SYMMETRA_TEST_DEVICE"];
        let expected = [
            ("SYMMETRA_SECRETS".to_owned(), "SYMMETRA_SECRET"),
            ("SYMMETRA_NCCL_LIB".to_owned(), "SYMMETRA_NCCL_LIBRARY"),
        ];
        assert_eq!(unknown(names), expected);
    }

    #[cfg(feature = "nccl")]
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

    #[test]
    fn readme_lists_every_variable() {
        for variable in VARIABLES {
            assert!(include_str!("../../README.md").contains(&format!("| `{}` |", variable.name)), "{}", variable.name);
        }
    }
}
