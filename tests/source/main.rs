//! Checks of the sources, without a rank: which file uses which, generated code, and the kernels.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bindings;
mod forks;
mod imports;
mod includes;
mod interface;
mod layering;
mod limits;
mod nvshmem;
mod schedules;
mod snippets;
mod sources;
mod words;
