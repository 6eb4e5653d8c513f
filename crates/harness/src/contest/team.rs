//! The ranks of a contest.

use symmetra::{Communicator, Stream};

/// All ranks that take turns together.
pub trait Team {
    /// Blocks until every rank has called it.
    fn barrier(&self) -> symmetra::Result<()>;
    /// Blocks until all work of the stream is done, and returns its error if it failed.
    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Brings ranks together before a trial if they cannot meet on their devices.
    fn meet(&self) -> symmetra::Result<()> {
        Ok(())
    }
}

impl Team for Communicator {
    fn barrier(&self) -> symmetra::Result<()> {
        self.group().barrier()
    }

    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()> {
        self.synchronize(stream)
    }
}
