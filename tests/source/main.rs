//! What the sources say, without a rank: who uses whom, what is generated, and which kernels there are.
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
mod sources;
mod words;
