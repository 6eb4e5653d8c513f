//! Groups of one rank.

use symmetra::bootstrap::Threads;
use symmetra::{Communicator, Config};

use crate::failure::CommandFailure;

/// A group of only this rank. Its norms run the kernel that norms, without a sum.
pub fn alone(communicator: &Communicator) -> Result<Communicator, CommandFailure> {
    alone_with(communicator, Config::default())
}

/// A group of only this rank, with these settings.
pub fn alone_with(communicator: &Communicator, config: Config) -> Result<Communicator, CommandFailure> {
    let bootstrap = Threads::new(1)?.pop().ok_or_else(|| CommandFailure::failed("a group of one rank has no rank"))?;
    Ok(Communicator::open(bootstrap, communicator.device(), config)?)
}
