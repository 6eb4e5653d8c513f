//! Conversions from types of other crates, which appear nowhere else in the public interface.

pub mod cudarc;
