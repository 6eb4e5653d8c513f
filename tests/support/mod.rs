//! What the suites share: ranks as threads or processes, data, and what the system says of us.
//!
//! `SYMMETRA_TEST_DEVICE=host|cuda` picks the device, `SYMMETRA_TEST_SHAPE=2x3` the host's blocks
//! and threads a block. Nothing here needs the machine the tests were built on.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod batch;
pub mod data;
pub mod device;
pub mod extent;
pub mod process;
pub mod specials;
pub mod system;
pub mod world;

pub use data::{Data, Sample};
pub use device::{fits, is_host};
pub use world::{Rank, config, threads};
