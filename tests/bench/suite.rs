//! The program `symmetra-bench` as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(feature = "nvshmem")]
#[path = "../harness/fake_nvshmem.rs"]
mod fake_nvshmem;
#[path = "../harness/program.rs"]
mod program;

mod layer;
mod matmul;
mod moe;
mod nvshmem;
mod output;
mod races;

use program::{Run, command, help, printed_at_a_signal, run as bench, wide};

const PROGRAM: &str = env!("CARGO_BIN_EXE_symmetra-bench");
