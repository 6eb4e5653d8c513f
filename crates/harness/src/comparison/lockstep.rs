//! Ranks that do the same work at the same time.

use symmetra::{Communicator, Stream};

use super::nccl::Nccl;

/// All ranks that take turns together.
pub trait Lockstep {
    /// Blocks until every rank has called it.
    fn barrier(&self) -> symmetra::Result<()>;
    /// Blocks until all work of the stream is done, and returns the error of a library whose work failed.
    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Brings ranks together before a trial if they cannot meet on their devices.
    fn meet(&self) -> symmetra::Result<()> {
        Ok(())
    }
}

impl Lockstep for Communicator {
    fn barrier(&self) -> symmetra::Result<()> {
        self.group().barrier()
    }

    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()> {
        self.synchronize(stream)
    }
}

/// The ranks of a communicator, each with a rank of NCCL if there is any.
pub struct WithNccl<'a> {
    pub communicator: &'a Communicator,
    pub nccl: Option<&'a Nccl>,
}

impl Lockstep for WithNccl<'_> {
    fn barrier(&self) -> symmetra::Result<()> {
        self.communicator.group().barrier()
    }

    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()> {
        self.communicator.synchronize(stream)?;
        self.nccl.map_or(Ok(()), Nccl::check)
    }
}
