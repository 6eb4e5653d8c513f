//! NVSHMEM's bootstrap plugin: a file in the folder of the library, by which processing elements meet.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::library::Library;
use crate::error::{Error, Result};

/// The name of the plugin for identities that ranks exchange by themselves. A version may follow.
const PLUGIN: &str = "nvshmem_bootstrap_uid.so";

/// The bootstrap plugin of an NVSHMEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    path: PathBuf,
    version: Option<String>,
}

impl Plugin {
    /// The file, as NVSHMEM would open it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version in the name of the file, or of the target of a link, for example `3.0.0` or `3`.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The plugin in a folder, for a library of this major version.
    fn beside(folder: &Path, major: i32) -> Result<Self> {
        let names = [format!("{PLUGIN}.{major}"), PLUGIN.to_owned()];
        let Some(path) = names.iter().map(|name| folder.join(name)).find(|path| path.is_file()) else {
            let reason = format!("{} has no {}", folder.display(), names.join(" and no "));
            return Err(Error::unsupported("NVSHMEM's bootstrap plugin", reason));
        };
        let version = path.canonicalize().ok().and_then(|file| version(&file)).or_else(|| version(&path));
        Ok(Self { path, version })
    }
}

/// The rest of the file name after the name of the plugin.
fn version(file: &Path) -> Option<String> {
    let version = file.file_name()?.to_str()?.strip_prefix(PLUGIN)?.strip_prefix('.')?;
    Some(version.to_owned())
}

impl Library {
    /// The bootstrap plugin in the folder of the library. NVSHMEM loads the plugin when a session opens, and a session
    /// cannot open without it. Loads nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the folder of the library has no plugin, with the folder and the names; NVSHMEM may
    /// still find one in the path of the dynamic loader.
    pub fn bootstrap_plugin(&self) -> Result<Plugin> {
        let file = self.file();
        let Some(folder) = file.as_deref().and_then(Path::parent) else {
            let reason = "the dynamic loader does not report the path of the library";
            return Err(Error::unsupported("NVSHMEM's bootstrap plugin", reason));
        };
        Plugin::beside(folder, self.version().major)
    }

    /// The file from which the library was loaded.
    fn file(&self) -> Option<PathBuf> {
        let function = self.symbols().nvshmem_malloc as *const libc::c_void;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address is allowed, and `found` is valid for the write.
        if unsafe { libc::dladdr(function, found.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: all fields may be null, so zeros are a value.
        let name = unsafe { found.assume_init() }.dli_fname;
        if name.is_null() {
            return None;
        }
        // SAFETY: the loader's name of a library, which is never unloaded, is a string that stays.
        let name = unsafe { CStr::from_ptr(name) };
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/nvshmem/plugin.rs"]
mod tests;
