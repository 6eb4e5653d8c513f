//! The functions of a bootstrap that the program implements: `cpp/core/foreign.hpp`.
#![allow(clippy::multiple_unsafe_ops_per_block, unreachable_pub, missing_docs)]

use std::pin::Pin;
use std::time::Instant;

use crate::error::{Error, Result};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/cpp/core/bridge.hpp");
        include!("symmetra/cpp/core/foreign.hpp");

        #[namespace = "symmetra"]
        type Bootstrap;
        fn rank_of(bootstrap: &Bootstrap) -> Result<usize>;
        fn world_size_of(bootstrap: &Bootstrap) -> Result<usize>;
        fn all_gather(bootstrap: Pin<&mut Bootstrap>, send: &[u8], receive: &mut [u8], timeout_ms: u64) -> Result<()>;
        fn barrier(bootstrap: Pin<&mut Bootstrap>, timeout_ms: u64) -> Result<()>;
    }

    // For bootstraps that Rust owns.
    impl UniquePtr<Bootstrap> {}
}

pub(crate) use bridge::Bootstrap;

// SAFETY: the header requires objects that any thread may use, one at a time.
unsafe impl Send for Bootstrap {}

pub(crate) fn rank(bootstrap: &Bootstrap) -> Result<usize> {
    bridge::rank_of(bootstrap).map_err(thrown)
}

pub(crate) fn world_size(bootstrap: &Bootstrap) -> Result<usize> {
    bridge::world_size_of(bootstrap).map_err(thrown)
}

/// `receive` is as long as `send` of all ranks together.
pub(crate) fn all_gather(
    bootstrap: Pin<&mut Bootstrap>,
    send: &[u8],
    receive: &mut [u8],
    deadline: Instant,
) -> Result<()> {
    bridge::all_gather(bootstrap, send, receive, remaining_ms(deadline)).map_err(thrown)
}

pub(crate) fn barrier(bootstrap: Pin<&mut Bootstrap>, deadline: Instant) -> Result<()> {
    bridge::barrier(bootstrap, remaining_ms(deadline)).map_err(thrown)
}

fn remaining_ms(deadline: Instant) -> u64 {
    u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
}

/// The error of an exception: a bootstrap error with its text, or a lost rank if the exception names one.
fn thrown(exception: cxx::Exception) -> Error {
    let text = exception.what();
    let words = text.splitn(4, '|').nth(3).unwrap_or(text).to_owned();
    match super::exception::thrown(&exception) {
        lost @ Error::PeerLost { .. } => lost,
        _ => Error::bootstrap(words),
    }
}
