//! Conversions from types of other crates, which appear nowhere else in the public interface.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "hip-sys")]
pub mod hip;
