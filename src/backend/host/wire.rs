//! What moves and reduces between hosts: engines of others, behind one face.

#[cfg(feature = "gloo")]
mod gloo;

use std::time::Instant;

#[cfg(feature = "gloo")]
pub(crate) use gloo::Engines;

use crate::backend::hosts::Hosts;
use crate::error::Error;
use crate::memory::View;
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// One rank's end of an engine between some ranks, each of another host. All make the same calls
/// in the same order, one at a time. After an error it is of no further use, and the others fail
/// as well, at the latest when it is dropped.
pub(crate) trait Across: Send {
    /// Reduces `memory` in place over the ranks, in their order, rounded once, after what `stream`
    /// does so far and before what it does later. May block until then.
    fn all_reduce(
        &mut self,
        dtype: Dtype,
        reduction: Reduction,
        memory: &View<'_>,
        stream: &Stream,
        deadline: Instant,
    ) -> crate::Result<()>;

    /// `own` of rank r becomes block r of `all`, equally long on every rank. Blocks.
    fn all_gather(&mut self, own: &[u8], all: &mut [u8], deadline: Instant) -> crate::Result<()>;

    /// Block r of `send` goes to rank r, block r of `receive` comes from it. Blocks.
    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8], deadline: Instant) -> crate::Result<()>;

    /// Reduces `blocks`, one of each rank in order and as long as `result`, here. Rounded once.
    fn reduce(&self, dtype: Dtype, reduction: Reduction, blocks: &[u8], result: &mut [u8]);
}

/// The engines of this build: none.
#[cfg(not(feature = "gloo"))]
pub(crate) enum Engines {}

#[cfg(not(feature = "gloo"))]
impl Engines {
    /// # Errors
    /// [`Error::Unsupported`], which names the hosts and what to build.
    pub(crate) fn open(_interface: Option<&str>, hosts: &Hosts) -> crate::Result<Self> {
        Err(unsupported(
            hosts,
            "no engine between hosts was built: build with the feature `gloo` (Debian: libgloo-dev)",
        ))
    }

    pub(crate) fn connect(
        &self,
        _bootstrap: &mut dyn crate::bootstrap::Bootstrap,
        _members: Option<&[usize]>,
        _deadline: Instant,
    ) -> crate::Result<Option<Box<dyn Across>>> {
        match *self {}
    }
}

fn unsupported(hosts: &Hosts, reason: &str) -> Error {
    Error::unsupported(format!("an environment of {} hosts, {hosts},", hosts.count()), reason)
}
