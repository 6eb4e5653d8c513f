//! The settings with which a ring is made.

use std::time::Duration;

use symmetra::internal::LONGEST;
use symmetra::{Error, Result};

/// How messages travel that are longer than a chunk, to readers on the writer's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// In pieces through the ring. Always available; the writer is done when the last piece is in
    /// the ring, so a message longer than the ring keeps it waiting for the readers.
    #[default]
    Ring,
    /// Over ZeroMQ ipc, outside the ring: the writer hands a copy to ZeroMQ and is done. Needs libzmq.
    ZeroMq,
}

/// The settings of a [`BroadcastRing`](super::BroadcastRing). Ranks agree on all but `host`, `bind`
/// and `spin`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingConfig {
    /// The rank that writes. Default 0.
    pub writer: usize,
    /// Most bytes of a message that takes one slot, 1 to 1 GiB. Default 1 MiB.
    pub chunk_bytes: usize,
    /// Messages that may be under way, 1 to 65536. Default 16.
    pub slots: usize,
    /// How longer messages travel. Default [`Overflow::Ring`].
    pub overflow: Overflow,
    /// How long making the ring may take. Default 120 s.
    pub open: Duration,
    /// How long a send or a receive without a deadline of its own may take. Default 30 s.
    pub steady: Duration,
    /// Most time a waiting party spins before it sleeps; it spins less while that does not pay off.
    /// Zero never spins, [`Duration::MAX`] always. Default 50 us.
    pub spin: Duration,
    /// Which host this rank is on: ranks of the writer's host share its memory, others reach it by
    /// ZeroMQ. `None`, the default, asks the system (boot id).
    pub host: Option<String>,
    /// The interface the writer listens at for readers of other hosts, by its address. `None`, the
    /// default, is loopback, where only ranks of this machine that name another `host` reach it: others fail at
    /// once, all ranks with them. Other ranks ignore it.
    pub bind: Option<std::net::IpAddr>,
    /// Number of the first chunk. Numbers wrap at 2^32; a test of the wrap starts close to it. Default 0.
    pub first_chunk: u32,
}

symmetra::setters! { RingConfig {
    writer: usize, chunk_bytes: usize, slots: usize, overflow: Overflow, open: Duration, steady: Duration,
    spin: Duration, host: Option<String>, bind: Option<std::net::IpAddr>, first_chunk: u32,
} }

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            writer: 0,
            chunk_bytes: 1 << 20,
            slots: 16,
            overflow: Overflow::Ring,
            open: Duration::from_secs(120),
            steady: Duration::from_secs(30),
            spin: Duration::from_micros(50),
            host: None,
            bind: None,
            first_chunk: 0,
        }
    }
}

/// Numbers what the ranks of a ring share: the memory, and the form of values.
const PROTOCOL: u32 = 2;

const TIMES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;

impl RingConfig {
    /// The settings that must be equal on every rank, by name.
    pub(super) fn agreed(&self) -> Vec<(String, String)> {
        [
            ("the version", env!("CARGO_PKG_VERSION").to_owned()),
            ("the ring's protocol", PROTOCOL.to_string()),
            ("the writer of the ring", self.writer.to_string()),
            ("chunk_bytes", self.chunk_bytes.to_string()),
            ("slots", self.slots.to_string()),
            ("overflow", format!("{:?}", self.overflow)),
            ("open", format!("{:?}", self.open)),
            ("steady", format!("{:?}", self.steady)),
            ("first_chunk", self.first_chunk.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// How long making the ring may take. A rank whose own `open` is refused uses the default, because it still has to
    /// report the refusal to the other ranks.
    pub(super) fn limit(&self) -> Duration {
        if TIMES.contains(&self.open) { self.open } else { Self::default().open }
    }

    /// Refuses values outside their limits.
    pub(super) fn validate(&self, world_size: usize) -> Result<()> {
        if self.writer >= world_size {
            return Err(Error::invalid(
                "the writer of the ring",
                self.writer,
                format!("it must be in 0..{world_size}"),
            ));
        }
        if !(1..=1 << 30).contains(&self.chunk_bytes) {
            return Err(Error::invalid("chunk_bytes", self.chunk_bytes, "it must be 1 to 1073741824"));
        }
        if !(1..=1 << 16).contains(&self.slots) {
            return Err(Error::invalid("slots", self.slots, "it must be 1 to 65536"));
        }
        for (name, limit) in [("open", self.open), ("steady", self.steady)] {
            if !TIMES.contains(&limit) {
                return Err(Error::invalid(name, format!("{limit:?}"), "it must be 1 ms to 24 h"));
            }
        }
        Ok(())
    }
}
