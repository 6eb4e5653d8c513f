//! Engines that move and reduce bytes between hosts, as one trait.

#[cfg(feature = "gloo")]
mod gloo;
#[cfg(not(feature = "gloo"))]
mod words;

use std::time::Instant;

#[cfg(feature = "gloo")]
pub(crate) use gloo::Engines;
#[cfg(not(feature = "gloo"))]
pub(crate) use words::Engines;

use crate::backend::hosts::Hosts;
use crate::error::Error;
use crate::memory::View;
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// One rank's end of an engine between ranks on different hosts. All ranks make the same calls in the same order, one
/// at a time. After an error the end is unusable, and the other ranks fail too, at the latest when it is dropped.
pub(crate) trait Across: Send {
    /// Reduces `memory` in place over the ranks, in rank order, rounded once, in stream order. May block until done.
    fn all_reduce(
        &mut self,
        dtype: Dtype,
        reduction: Reduction,
        memory: &View<'_>,
        stream: &Stream,
        deadline: Instant,
    ) -> crate::Result<()>;

    /// From now on waits for these ranks before others: a timeout names the first rank whose bytes have not arrived.
    fn wait_first(&mut self, ranks: &[usize]) -> crate::Result<()>;

    /// Stores `own` of rank r in block r of `all`. Blocks are equally long on every rank. Blocks.
    fn all_gather(&mut self, own: &[u8], all: &mut [u8], deadline: Instant) -> crate::Result<()>;

    /// Sends block r of `send` to rank r, and receives block r of `receive` from it. Blocks.
    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8], deadline: Instant) -> crate::Result<()>;

    /// Reduces `blocks`, one from each rank in order and each as long as `result`, on this rank. Rounded once.
    fn reduce(&self, dtype: Dtype, reduction: Reduction, blocks: &[u8], result: &mut [u8]) -> crate::Result<()>;
}

fn unsupported(hosts: &Hosts, reason: &str) -> Error {
    Error::unsupported(format!("an environment of {} hosts, {hosts},", hosts.count()), reason)
}

fn interface_unknown(hosts: &Hosts) -> Error {
    unsupported(hosts, "the interface between the hosts is not known: set EnvConfig::interface or SYMMETRA_INTERFACE")
}
