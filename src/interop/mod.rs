//! Conversions from types of other crates. No other part of the public interface names those types.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "hip-sys")]
pub mod hip;
