//! The trait of all bootstraps.

use std::time::Instant;

use crate::error::Result;

/// An ordered all-gather of bytes between all ranks, with deadlines.
///
/// Every rank makes the same sequence of calls. A call blocks until every rank has made it or `deadline` has passed. A
/// call that fails takes up to one second more, in which the ranks exchange the cause. After an error every further
/// call fails.
pub trait Bootstrap: Send {
    /// This rank, in `0..world_size()`.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn world_size(&self) -> usize;

    /// Sends `bytes` to every rank and returns the bytes of every rank, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) or [`Error::PeerLost`](crate::Error::PeerLost)
    /// when a rank does not answer, [`Error::Bootstrap`](crate::Error::Bootstrap) when its answer cannot be read.
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `bytes` is longer than 64 MiB;
    /// then nothing was sent.
    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>>;

    /// Names the call for which the next all-gathers are. A bootstrap may compare the names of all ranks.
    #[doc(hidden)]
    fn announce(&mut self, _call: &str) {}

    /// Blocks until every rank has called it.
    ///
    /// # Errors
    /// The errors of [`all_gather`](Self::all_gather).
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

    fn announce(&mut self, call: &str) {
        (**self).announce(call);
    }

    fn barrier(&mut self, deadline: Instant) -> Result<()> {
        (**self).barrier(deadline)
    }
}
