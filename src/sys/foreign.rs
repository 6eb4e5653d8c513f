//! What Rust asks of a bootstrap that the caller implements: `cpp/core/foreign.hpp`.
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

    // One that Rust keeps.
    impl UniquePtr<Bootstrap> {}
}

pub(crate) use bridge::Bootstrap;

// SAFETY: its header asks callers for objects that any one thread at a time may use.
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

/// Whatever the object threw is a failure to meet, in its own words, unless it names who died: nobody else may know.
fn thrown(exception: cxx::Exception) -> Error {
    let text = exception.what();
    let words = text.splitn(4, '|').nth(3).unwrap_or(text).to_owned();
    match Error::from(exception) {
        lost @ Error::PeerLost { .. } => lost,
        _ => Error::bootstrap(words),
    }
}
