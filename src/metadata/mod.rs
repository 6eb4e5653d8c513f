//! Metadata broadcast: one rank tells the others what to do next.
//!
//! [`BroadcastRing::create`] gives one rank the [`Writer`] and every other a [`Reader`]. A message is
//! bytes, or any serde value as JSON. Readers on the writer's host read it from shared memory.
//!
//! ```
//! use symmetra::bootstrap::Threads;
//! use symmetra::metadata::{BroadcastRing, RingConfig};
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

mod bell;
mod config;
mod create;
mod door;
mod invitation;
mod mailbox;
mod mapping;
mod post;
mod protocol;
mod reader;
mod seat;
mod spin;
mod wire;
mod writer;
mod zeromq;

use std::time::{Duration, Instant};

pub use config::{Overflow, RingConfig};
pub use invitation::Invitation;
pub use reader::Reader;
pub use writer::Writer;

use crate::error::{Error, Result};

/// A rank's end of a ring.
#[derive(Debug)]
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

/// When a wait that begins now and may take this long ends.
fn until(limit: Duration) -> Instant {
    Instant::now() + limit.min(config::LONGEST)
}
