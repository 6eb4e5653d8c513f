//! The command `symmetra` as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/differing_calls.rs"]
mod differing_calls;
#[cfg(feature = "nvshmem")]
#[path = "../harness/fake_nvshmem.rs"]
mod fake_nvshmem;
#[path = "../harness/program.rs"]
mod program;

mod all_reduce;
mod diagnosis;
mod differing;
mod documents;
mod exchange;
mod experts;
mod files;
mod goldens;
mod hostile;
mod launch;
mod leftovers;
mod mixed;
mod norm;
mod nvshmem;
mod postmortem;
mod status;
mod tensors;
mod trace;
mod tune;
mod unwritable;

use program::{
    Run, children, command, full, help, is_alive, pid, printed_at_a_signal, run as symmetra, run_with as symmetra_with,
    wait_until, wide, worlds,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_symmetra");
