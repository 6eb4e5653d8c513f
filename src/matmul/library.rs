//! The loaded cuBLASLt library and its functions. Codes and attributes are integers: a closed enumeration would be
//! undefined behaviour with a newer library.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, OsStr, OsString, c_char, c_void};
use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::loader::{self, symbols};
use crate::variables::{CUBLASLT_LIBRARY, optional};

/// The names of the library for the dynamic loader, the newest first.
const USUAL: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];

/// A `cublasLtHandle_t`, a descriptor, a layout or a preference.
pub(super) type GemmHandle = *mut c_void;

/// A `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct GemmAlgorithm([u64; 8]);

/// A `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FoundAlgorithm {
    pub(super) algorithm: GemmAlgorithm,
    pub(super) workspace_bytes: usize,
    pub(super) state: i32,
    waves: f32,
    reserved: [i32; 4],
}

impl FoundAlgorithm {
    pub(super) const NONE: Self =
        Self { algorithm: GemmAlgorithm([0; 8]), workspace_bytes: 0, state: -1, waves: 0.0, reserved: [0; 4] };
}

// The size in cuBLASLt's header.
const _: () = assert!(size_of::<FoundAlgorithm>() == 96);

symbols! {
    always {
        cublasLtGetVersion: fn() -> usize;
        cublasLtGetStatusString: fn(i32) -> *const c_char;
        cublasLtCreate: fn(*mut GemmHandle) -> i32;
        cublasLtDestroy: fn(GemmHandle) -> i32;
        cublasLtMatmulDescCreate: fn(*mut GemmHandle, i32, i32) -> i32;
        cublasLtMatmulDescDestroy: fn(GemmHandle) -> i32;
        cublasLtMatmulDescSetAttribute: fn(GemmHandle, i32, *const c_void, usize) -> i32;
        cublasLtMatrixLayoutCreate: fn(*mut GemmHandle, i32, u64, u64, i64) -> i32;
        cublasLtMatrixLayoutDestroy: fn(GemmHandle) -> i32;
        cublasLtMatrixLayoutSetAttribute: fn(GemmHandle, i32, *const c_void, usize) -> i32;
        cublasLtMatmulPreferenceCreate: fn(*mut GemmHandle) -> i32;
        cublasLtMatmulPreferenceDestroy: fn(GemmHandle) -> i32;
        cublasLtMatmulPreferenceSetAttribute: fn(GemmHandle, i32, *const c_void, usize) -> i32;
        cublasLtMatmulAlgoGetHeuristic: fn(GemmHandle, GemmHandle, GemmHandle, GemmHandle, GemmHandle, GemmHandle, GemmHandle, i32, *mut FoundAlgorithm, *mut i32) -> i32;
        cublasLtMatmul: fn(
            GemmHandle, GemmHandle, *const c_void, *const c_void, GemmHandle, *const c_void, GemmHandle, *const c_void, *const c_void, GemmHandle,
            *mut c_void, GemmHandle, *const GemmAlgorithm, *mut c_void, usize, *mut c_void
        ) -> i32;
    }
    later {}
}

/// The name of a GEMM in errors of loading.
const WHAT: &str = "a product on a GPU";

/// cuBLASLt, loaded. Never unloaded.
pub(super) struct GemmLibrary {
    pub(super) symbols: Symbols,
    /// The library's version number: 120900 is 12.9.0.
    pub(super) version: usize,
    pub(super) name: String,
}

impl GemmLibrary {
    /// Loads the library that `SYMMETRA_CUBLASLT_LIBRARY` names, else the first that the dynamic loader finds.
    pub(super) fn find() -> Result<Self> {
        let named = optional(CUBLASLT_LIBRARY)?.map(OsString::from);
        let names = named.map_or_else(|| USUAL.map(OsString::from).to_vec(), |named| vec![named]);
        let mut reasons = Vec::new();
        for name in names {
            match Self::load(&name) {
                Ok(library) => return Ok(library),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(Error::unsupported(WHAT, format!("{} ({CUBLASLT_LIBRARY} may name a cuBLASLt)", reasons.join("; "))))
    }

    fn load(path: &OsStr) -> std::result::Result<Self, String> {
        let shown = Path::new(path).display().to_string();
        // SAFETY: cuBLASLt's initialisers have no requirements on the process. The user promises, as for every library, that
        // the file is a cuBLASLt.
        let library = unsafe { loader::open(path) }?;
        // SAFETY: the library stays loaded.
        let symbols = unsafe { Symbols::load(&library) };
        let symbols = symbols.map_err(|error| format!("{shown} lacks a function: {error}"))?;
        // SAFETY: the function has no arguments.
        let version = unsafe { (symbols.cublasLtGetVersion)() };
        let name = format!("cuBLASLt {}.{}.{}, {shown}", version / 10_000, version / 100 % 100, version % 100);
        Ok(Self { symbols, version, name })
    }

    /// Turns a result into an error.
    pub(super) fn check(&self, call: &str, code: i32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function accepts any code.
        let words = unsafe { (self.symbols.cublasLtGetStatusString)(code) };
        let words = match words.is_null() {
            true => "no description".into(),
            // SAFETY: a static text.
            false => unsafe { CStr::from_ptr(words) }.to_string_lossy(),
        };
        Err(Error::Device { code: code.into(), message: format!("{call}: {words}, in {}", self.name) })
    }
}

impl fmt::Debug for GemmLibrary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}
