//! Files of other packages whose tests loom runs. Each file imports by `super`.
#![cfg(all(test, loom))]
#![allow(missing_docs, dead_code, clippy::unwrap_used)]

mod call {
    /// Replaces the type of `src/group/call.rs`: one word of an entry of the history. The moment of the call is another, and
    /// each further word would multiply the interleavings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct EnqueuedCall {
        pub(crate) bytes: u64,
        pub(crate) descriptor: u64,
    }

    impl EnqueuedCall {
        pub(crate) const WORDS: usize = 1;

        pub(crate) fn from_words([bytes]: [u64; 1]) -> Self {
            Self { bytes, descriptor: bytes }
        }

        pub(crate) fn words(&self) -> [u64; 1] {
            [self.bytes]
        }

        pub(crate) fn is_counted(&self) -> bool {
            true
        }

        pub(crate) fn op(&self) -> u32 {
            0
        }
    }
}
#[path = "../../../src/group/history.rs"]
mod history;

#[path = "../../../crates/ring/src/backoff.rs"]
mod backoff;
mod futex;
#[path = "../../../crates/ring/src/futex_event.rs"]
mod futex_event;
#[path = "../../../crates/ring/src/protocol.rs"]
mod protocol;
mod ring;
