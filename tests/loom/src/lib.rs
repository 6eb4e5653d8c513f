//! Files of other packages whose tests loom runs. Each file imports by `super`.
#![cfg(all(test, loom))]
#![allow(missing_docs, dead_code, clippy::unwrap_used)]

mod call {
    /// Replaces the type of `src/group/call.rs`: the two words of an entry of the history.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Call {
        pub(crate) bytes: u64,
        pub(crate) descriptor: u64,
    }

    impl Call {
        pub(crate) const WORDS: usize = 2;

        pub(crate) fn from_words([bytes, descriptor]: [u64; 2]) -> Self {
            Self { bytes, descriptor }
        }

        pub(crate) fn words(&self) -> [u64; 2] {
            [self.bytes, self.descriptor]
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
