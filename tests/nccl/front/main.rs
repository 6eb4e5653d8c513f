//! `libsymmetra_nccl.so` on the host device, by its C functions alone.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::multiple_unsafe_ops_per_block, clippy::too_many_arguments, non_snake_case)]

mod bad_input;
mod exports;
mod forward;
mod groups;
mod killed;
mod library;
mod life;
mod nccl_tests;
mod operations;
mod parts;
mod programs;
mod python;
mod scaled;
mod texts;
mod values;
mod wheel;
mod windows;
mod world;
