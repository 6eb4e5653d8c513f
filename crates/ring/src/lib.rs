//! Metadata broadcast: one rank sends the others what to do next.
//!
//! [`BroadcastRing::create`] gives one rank the [`Writer`] and every other a [`Reader`]. A message is
//! bytes, or any value of serde. Readers on the writer's host read it from shared memory, without
//! a system call while they are awake; readers on other hosts get it by ZeroMQ. Every wait has a
//! deadline. Its error names the awaited rank, and whether that rank never joined, is alive but
//! late, left or died. The death of a process is noticed within milliseconds.
//!
//! A reader that waits spins for a while ([`RingConfig::spin`]), then sleeps: an idle ring uses no
//! processor time. A slow reader makes the writer wait once all slots hold chunks that the reader has not read;
//! no message is dropped.
//!
//! # Protocol on one host
//!
//! The memory is a sealed memfd, handed to readers by SCM_RIGHTS: per party a line that records whether
//! the party lives and, for readers, a cursor on a line of its own; per slot a head on a line of its own and
//! a chunk. Chunks are numbered by a u32 that wraps; chunk n is in slot n mod slots.
//!
//! *Arrival.* The writer fills the chunk and the head, then stores n + 1 into the slot's stamp with
//! release. A reader loads the stamp with acquire until it is at least n + 1 (by difference, so the
//! wrap is a number like any other): all of chunk n happens before the reads of it.
//!
//! *Reuse.* A reader that has copied chunk n stores n + 1 into its cursor with release. The writer
//! fills that slot again, for chunk n + slots, after it loaded at least n + 1 from every cursor with
//! acquire: all reads of chunk n happen before it is overwritten. So no slot is ever both read and written,
//! and messages need no check sum or second look.
//!
//! *Sleep.* There are two event counts, `news` for new chunks and `room` for free slots. A party that is about to sleep
//! counts itself, passes a sequentially consistent fence, and polls once more. A party that changes something passes
//! such a fence and looks for sleepers. One of the two sees the other, and the futex sleeps only while the epoch is
//! that of before the last poll.
//!
//! *Death.* Every party watches the sockets that it shares with the others. When a socket hangs up, the party marks the
//! party at its other end as dead and notifies both events. A reader that finds no chunk reads the writer's state, then
//! looks once more for a chunk: what was sent before the end is received.
//!
//! loom explores the interleavings of arrival, reuse and sleep with one and two readers (`tests/loom`).
//!
//! # ZeroMQ
//!
//! libzmq is loaded when it is first needed ([`Overflow::ZeroMq`], ranks whose host differs): symmetra
//! builds and runs without it, and returns [`Error::Unsupported`] where it is missing. The writer binds one
//! interface, uses CURVE, and admits only keys that the ranks drew for this ring and sent to the writer through the
//! bootstrap; only public keys are sent. Other connections are refused and logged. A program that is not a rank reads a
//! ring by [`BroadcastRing::invite`]; `docs/protocols.md` specifies the messages.
//!
//! ```
//! use symmetra::bootstrap::Threads;
//! use symmetra_ring::{BroadcastRing, RingConfig};
//!
//! let ranks = Threads::new(3)?.into_iter().map(|mut rank| {
//!     std::thread::spawn(move || -> symmetra::Result<()> {
//!         match BroadcastRing::create(&mut rank, RingConfig::default())? {
//!             BroadcastRing::Writer(mut writer) => {
//!                 writer.send(b"prefill")?;
//!                 writer.send_value(&("decode", vec![7, 8, 9]))
//!             }
//!             BroadcastRing::Reader(mut reader) => {
//!                 assert_eq!(reader.receive()?, b"prefill");
//!                 assert_eq!(reader.receive_value::<(String, Vec<u32>)>()?, ("decode".into(), vec![7, 8, 9]));
//!                 Ok(())
//!             }
//!         }
//!     })
//! });
//! ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().unwrap())?;
//! # Ok::<(), symmetra::Error>(())
//! ```

mod backoff;
mod config;
mod create;
mod futex_event;
mod invitation;
mod mapping;
mod member;
mod protocol;
mod reader;
mod wire;
mod writer;
mod zeromq;
mod zmq_auth;
mod zmq_reader;
mod zmq_writer;

pub use config::{Overflow, RingConfig};
pub use invitation::Invitation;
pub use reader::Reader;
pub use writer::Writer;

use symmetra::{Error, Result};

/// A rank's end of a ring.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // made once and taken apart
pub enum BroadcastRing {
    /// The end of the rank that [`RingConfig::writer`] names.
    Writer(Writer),
    /// The end of every other rank.
    Reader(Reader),
}

impl BroadcastRing {
    /// The writer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] on a rank that reads.
    pub fn into_writer(self) -> Result<Writer> {
        match self {
            Self::Writer(writer) => Ok(writer),
            Self::Reader(_) => Err(Error::invalid("this rank's end of the ring", "a reader", "a writer was asked for")),
        }
    }

    /// The reader.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] on the rank that writes.
    pub fn into_reader(self) -> Result<Reader> {
        match self {
            Self::Reader(reader) => Ok(reader),
            Self::Writer(_) => Err(Error::invalid("this rank's end of the ring", "a writer", "a reader was asked for")),
        }
    }
}
