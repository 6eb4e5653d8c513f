//! One-sided writes into peers' memory: copies and the stores of a probe arrive where they should,
//! before the signal that follows them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use symmetra::{Communicator, DeviceBuffer, Error, Stream, SymmetricBuffer};

use support::*;
