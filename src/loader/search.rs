//! The search for the real NCCL or RCCL, in a process that may have another library under its name.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LAZY, RTLD_LOCAL};

use super::words;
use crate::variables::library_folders;

/// The symbol of a library that serves NCCL's names with symmetra. The search never takes such a library.
const MARKER: &CStr = c"symmetra_nccl_front";

/// Folders that every loader of 64-bit programs searches.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// The loader's list of further folders.
const CONFIGURED: &str = "/etc/ld.so.conf";

/// A library of a vendor, and the places of its files.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The names of its file, the usual name first. The last name is the start of all names.
    names: [&'static str; 2],
    /// The folder of its Python package, in a folder of packages.
    package: Option<&'static str>,
}

impl Wanted {
    /// NCCL.
    pub const NCCL: Self = Self { names: ["libnccl.so.2", "libnccl.so"], package: Some("nvidia/nccl/lib") };
    /// RCCL.
    pub const RCCL: Self = Self { names: ["librccl.so.1", "librccl.so"], package: None };

    /// The files of the library by absolute paths, each once, in the order of the search: objects of this process, the
    /// package next to a loaded PyTorch, the folders of `LD_LIBRARY_PATH`, and the folders of the system.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files_among(&loaded(), &folders(library_folders(), Path::new(CONFIGURED)))
    }

    /// The files among the objects of a process and in folders.
    fn files_among(&self, objects: &[PathBuf], folders: &[PathBuf]) -> Vec<PathBuf> {
        let start = self.names[1].as_bytes();
        let own = objects.iter().filter(|object| starts_with(object, start)).cloned();
        let torch = objects.iter().filter(|object| starts_with(object, b"libtorch"));
        // PACKAGES/torch/lib/libtorch.so
        let packages = torch.filter_map(|object| object.ancestors().nth(3)).filter_map(|packages| {
            let folder = self.package?;
            Some(packages.join(folder))
        });
        let named = |folder: PathBuf| self.names.map(|name| folder.join(name));
        let inside = packages.chain(folders.iter().cloned()).flat_map(named);
        let mut found: Vec<PathBuf> = Vec::new();
        for file in own.chain(inside).filter_map(|file| file.canonicalize().ok()).filter(|file| file.is_file()) {
            if !found.contains(&file) {
                found.push(file);
            }
        }
        found
    }

    /// The names and places of the search, for the message of an error.
    pub fn places(&self) -> String {
        let [usual, start] = self.names;
        format!("no {usual} or {start} of a vendor in this process, in LD_LIBRARY_PATH or in the folders of the system")
    }
}

/// Opens a library until the process ends. Its own calls bind to its own functions. `None` if the library serves NCCL's
/// names with symmetra.
///
/// # Safety
/// The file's initialisers have no requirements on the process.
///
/// # Errors
/// The file and the loader's description.
pub unsafe fn open_real(path: &OsStr) -> Result<Option<ManuallyDrop<libloading::Library>>, String> {
    // The runtime of AddressSanitizer refuses libraries that bind to themselves first.
    let deep = if has(&Handle::this(), c"__asan_init") { 0 } else { libc::RTLD_DEEPBIND };
    // SAFETY: the caller's promise.
    let opened = unsafe { Handle::open(Some(path), RTLD_LAZY | RTLD_LOCAL | deep) };
    let shown = Path::new(path).display();
    // Never unloaded, because threads of the library may outlive its users.
    let library = opened.map(ManuallyDrop::new);
    let library = library.map_err(|error| format!("{shown} cannot be loaded: {}", words(&error)))?;
    let real = !has(&library, MARKER);
    Ok(real.then(|| ManuallyDrop::new(ManuallyDrop::into_inner(library).into())))
}

/// Whether a library, or one that it needs, has a symbol.
fn has(library: &Handle, symbol: &CStr) -> bool {
    // SAFETY: the address is not used.
    unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) }.is_ok()
}

fn starts_with(object: &Path, start: &[u8]) -> bool {
    object.file_name().is_some_and(|name| name.as_bytes().starts_with(start))
}

/// The files of all shared objects of this process.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _bytes: usize, objects: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: the name of an object has an end.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: the list of the caller, which no other code uses meanwhile.
            let objects = unsafe { &mut *objects.cast::<Vec<PathBuf>>() };
            objects.push(OsString::from_vec(name.to_bytes().to_vec()).into());
        }
        0
    }
    let mut objects: Vec<PathBuf> = Vec::new();
    // SAFETY: the function takes a list of this type, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut objects).cast()) };
    objects
}

/// The folders in which the loader looks for a library without a path: of `LD_LIBRARY_PATH`, of the configuration, and
/// the usual ones.
fn folders(own: Vec<PathBuf>, configured: &Path) -> Vec<PathBuf> {
    own.into_iter().chain(configured_folders(configured)).chain(USUAL.map(PathBuf::from)).collect()
}

/// The folders that a file of the loader's configuration lists, and those of `*.conf` in the folder next to the file.
fn configured_folders(configured: &Path) -> Vec<PathBuf> {
    // `Path::with_added_extension` needs Rust 1.91.
    let mut folder = configured.as_os_str().to_owned();
    folder.push(".d");
    let beside = std::fs::read_dir(folder).into_iter().flatten();
    let beside = beside.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = beside.filter(|file| file.extension().is_some_and(|end| end == "conf")).collect();
    files.sort();
    let lists = files.iter().map(PathBuf::as_path).chain([configured]);
    let texts: Vec<String> = lists.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    lines.filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
#[path = "../../tests/unit/loader.rs"]
mod tests;
