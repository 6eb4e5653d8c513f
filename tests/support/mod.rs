//! Code that the suites share: ranks as threads or processes, data, and resources of this process.
//!
//! `SYMMETRA_TEST_DEVICE=host|cuda` picks the device; `SYMMETRA_TEST_SHAPE=2x3` sets blocks and threads per block on
//! the host. Nothing here needs the machine that built the tests.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod batch;
pub mod call;
pub mod codec;
pub mod data;
pub mod device;
pub mod extent;
pub mod process;
pub mod refusal;
pub mod specials;
pub mod system;
pub mod world;

pub use data::{Data, Sample};
pub use device::{fits, is_host, lacks_nccl};
pub use world::{Rank, config, threads};
