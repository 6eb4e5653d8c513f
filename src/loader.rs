//! Libraries that are loaded at run time: how a library is opened, and how its functions are looked up. A library is
//! never unloaded, because its threads may outlive all users of the library.
#![allow(unsafe_code)]

pub(crate) mod search;

use std::error::Error as _;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::Path;

/// The loader's description of an error, without its prefix.
pub(crate) fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Opens a library until the process ends.
///
/// # Safety
/// The file's initialisers have no requirements on the process.
///
/// # Errors
/// The file and the loader's description.
pub(crate) unsafe fn open(path: &OsStr) -> Result<ManuallyDrop<libloading::Library>, String> {
    // SAFETY: the caller's promise.
    let library = unsafe { libloading::Library::new(path) };
    let shown = Path::new(path).display();
    library.map(ManuallyDrop::new).map_err(|error| format!("{shown} cannot be loaded: {}", words(&error)))
}

/// Declares `Symbols`: the functions of a library, by the types of the library's header, looked up once. A function of
/// the second list is `None` if the library lacks it.
macro_rules! symbols {
    (
        always { $($name:ident: fn($($arg:ty),* $(,)?) $(-> $result:ty)?;)* }
        later { $($newer:ident: fn($($newer_arg:ty),* $(,)?) -> $newer_result:ty;)* }
    ) => {
        /// The functions, looked up once. A function that older libraries lack may be `None`.
        pub(super) struct Symbols {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($newer_arg),*) -> $newer_result>,)*
        }

        impl Symbols {
            /// # Safety
            /// The functions of `library` have these types, and `library` outlives every use of the result.
            ///
            /// # Errors
            /// The loader's description, which names the missing function.
            pub(super) unsafe fn load(library: &libloading::Library) -> std::result::Result<Self, String> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's promise.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|error| $crate::loader::words(&error))?
                    },)*
                    $($newer: {
                        // SAFETY: the caller's promise.
                        let found = unsafe { library.get(concat!(stringify!($newer), "\0").as_bytes()) };
                        found.ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}
pub(crate) use symbols;
