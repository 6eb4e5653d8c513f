//! Settings from environment variables.

use std::env::VarError;
use std::path::PathBuf;

use super::setting::SettingSource;
use crate::error::{Error, Result};

/// Looks up variables: in the process's environment, or in a test's.
pub(crate) trait Lookup {
    fn get(&self, name: &'static str) -> Result<Option<String>>;
}

/// The environment of this process.
pub(crate) struct Process;

impl Lookup for Process {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        optional(name)
    }
}

/// A variable of this process, without blanks around its value; `None` if unset or empty.
pub(crate) fn optional(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::invalid(name, "not Unicode", "it must be text")),
    }
}

/// The folders of `LD_LIBRARY_PATH`, in which the dynamic loader looks first.
pub(crate) fn library_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// Variables that name an NCCL library, in order of precedence.
pub(crate) const LIBRARY_NAMES: [&str; 2] = ["SYMMETRA_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"];

/// The NCCL library that a variable names, with the variable.
pub(crate) fn library_path(lookup: &impl Lookup) -> Result<Option<(String, SettingSource)>> {
    match text(lookup, None, LIBRARY_NAMES[0])? {
        None => text(lookup, None, LIBRARY_NAMES[1]),
        named => Ok(named),
    }
}

/// A number: the program's, else the variable's, else `None`.
pub(crate) fn number(
    lookup: &impl Lookup,
    set: Option<usize>,
    name: &'static str,
) -> Result<Option<(usize, SettingSource)>> {
    if let Some(set) = set {
        return Ok(Some((set, SettingSource::Program)));
    }
    let Some(text) = lookup.get(name)? else { return Ok(None) };
    let number = text.trim().parse();
    let number = number.map_err(|_| Error::invalid(name, format_args!("`{text}`"), "it must be a number from 0"))?;
    Ok(Some((number, SettingSource::Variable(name))))
}

/// Whether a variable is 1. Unset counts as 0.
pub(crate) fn flag(lookup: &impl Lookup, name: &'static str) -> Result<bool> {
    match lookup.get(name)?.as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Error::invalid(name, format_args!("`{other}`"), "it must be 0 or 1")),
    }
}

/// A text: the program's, else the variable's, else `None`.
pub(crate) fn text(
    lookup: &impl Lookup,
    set: Option<String>,
    name: &'static str,
) -> Result<Option<(String, SettingSource)>> {
    match set {
        Some(set) => Ok(Some((set, SettingSource::Program))),
        None => Ok(lookup.get(name)?.map(|text| (text, SettingSource::Variable(name)))),
    }
}
