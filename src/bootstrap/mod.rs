//! How ranks find each other: *who* we are, before there is a group.
//!
//! A [`Bootstrap`] moves a few bytes between all ranks while a group opens; after that the
//! group speaks over its own sockets.

mod channel;
pub(crate) mod directory;
mod endpoint;
pub(crate) mod foreign;
mod frame;
mod handshake;
pub(crate) mod hello;
mod hub;
mod lobby;
mod local;
pub(crate) mod mesh;
pub(crate) mod monitor;
mod notice;
mod spoke;
mod star;
pub(crate) mod tcp;
mod threads;
mod unique_id;
pub(crate) mod wait;

use std::time::Instant;

pub use local::Local;
pub use tcp::{Tcp, TcpConfig};
pub use threads::Threads;
pub use unique_id::UniqueId;
pub(crate) use wait::{LONGEST, until};

use crate::error::Result;

/// An ordered all-gather of bytes between all ranks, with deadlines.
///
/// Every rank makes the same sequence of calls. A call blocks until every rank made it, or
/// fails by `deadline` (and what it takes the ranks to tell each other why, at most a second);
/// after an error the object is of no further use.
pub trait Bootstrap: Send {
    /// This rank, in `0..world_size()`.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn world_size(&self) -> usize;

    /// Gives `bytes` to every rank and returns those of every rank, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) or [`Error::PeerLost`](crate::Error::PeerLost)
    /// when a rank does not answer, [`Error::Bootstrap`](crate::Error::Bootstrap) when it answers nonsense.
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `bytes` is longer than 64 MiB;
    /// then nothing was sent.
    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>>;

    /// Blocks until every rank called it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&mut self, deadline: Instant) -> Result<()> {
        self.all_gather(&[], deadline).map(drop)
    }
}

impl<B: Bootstrap + ?Sized> Bootstrap for Box<B> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn world_size(&self) -> usize {
        (**self).world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        (**self).all_gather(bytes, deadline)
    }

    fn barrier(&mut self, deadline: Instant) -> Result<()> {
        (**self).barrier(deadline)
    }
}
