//! Gloo over TCP. A wire connects one rank of each of several hosts.

use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use cxx::{SharedPtr, UniquePtr};

use super::reduce::reduce;
use crate::error::{Error, Result};
use crate::fork::OfMaker;
use crate::sys::Caught;
use crate::sys::gloo as sys;
use crate::types::{Element, Reduction};

/// A network interface of this host, and the thread that serves its sockets.
///
/// A forked child shares the descriptors by which this thread waits, but not the thread: in the child nothing of Gloo
/// is released.
pub(crate) struct Interface {
    raw: OfMaker<SharedPtr<sys::Interface>>,
}

impl Interface {
    /// Opens the interface `name`: an IP address of this host or an interface's name. Sockets are bound only to it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is neither.
    pub(crate) fn open(name: &str) -> Result<Self> {
        if name.trim().is_empty() {
            // Gloo would use the address of this host's name.
            return Err(Error::invalid("the interface", "empty", "it must be an IP address or interface of this host"));
        }
        Ok(Self { raw: OfMaker::new(sys::open_interface(name).caught()?) })
    }
}

/// Connections of a rank to the `world_size` - 1 others of a wire. Every rank makes equal calls in equal order. Each
/// call blocks until done or fails by its deadline. After an error the wire is closed, which the other ranks detect.
pub(crate) struct GlooWire {
    raw: OfMaker<UniquePtr<sys::Wire>>,
    rank: usize,
    world_size: usize,
}

impl GlooWire {
    /// Listens for every other rank at a port that the system chooses. A port is open only until that rank has
    /// connected in [`connect`](Self::connect).
    pub(crate) fn listen(interface: &Interface, rank: usize, world_size: usize, deadline: Instant) -> Result<Self> {
        let raw =
            sys::open_wire(&interface.raw, number(rank)?, number(world_size)?, remaining_ms(deadline)).caught()?;
        Ok(Self { raw: OfMaker::new(raw), rank, world_size })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn world_size(&self) -> usize {
        self.world_size
    }

    /// The addresses at which the other ranks connect to this rank; no bytes for this rank itself.
    pub(crate) fn addresses(&self) -> Result<Vec<Vec<u8>>> {
        (0..self.world_size).map(|peer| self.raw.address(number(peer)?).caught()).collect()
    }

    /// Connects to all other ranks. `addresses[rank]` is the address at which that rank listens for this rank.
    pub(crate) fn connect(&mut self, addresses: &[&[u8]]) -> Result<()> {
        for (peer, address) in addresses.iter().enumerate().filter(|(peer, _)| *peer != self.rank) {
            self.raw.pin_mut().connect(number(peer)?, address).caught()?;
        }
        Ok(())
    }

    /// From now on waits for these ranks before others.
    pub(crate) fn wait_first(&mut self, ranks: &[usize]) -> Result<()> {
        let ranks = ranks.iter().map(|rank| number(*rank)).collect::<Result<Vec<_>>>()?;
        self.raw.pin_mut().wait_first(&ranks).caught()
    }

    /// Sends block r of `send` to rank r, and receives block r of `receive` from it.
    pub(crate) fn all_to_all(&mut self, send: &[u8], receive: &mut [u8], deadline: Instant) -> Result<()> {
        self.check("all-to-all", send.len(), receive.len())?;
        self.raw.pin_mut().all_to_all(send, receive, remaining_ms(deadline)).caught()
    }

    /// Gathers `own` of rank r as block r of `all`. All ranks pass equal lengths.
    pub(crate) fn all_gather(&mut self, own: &[u8], all: &mut [u8], deadline: Instant) -> Result<()> {
        self.check("all-gather", own.len() * self.world_size, all.len())?;
        self.raw.pin_mut().all_gather(own, all, remaining_ms(deadline)).caught()
    }

    /// Reduces `values` over all ranks in place, in rank order, rounded once. Every rank reduces its share of the
    /// received data, then the results are gathered on all ranks. Gloo's own all-reduce rounds at every hop, in an
    /// order that depends on an element's position.
    pub(crate) fn all_reduce<T: Element>(
        &mut self,
        reduction: Reduction,
        values: &mut [T],
        deadline: Instant,
    ) -> Result<()> {
        if values.is_empty() || self.world_size == 1 {
            return Ok(());
        }
        let share = values.len().div_ceil(self.world_size);
        let mut padded = values.to_vec();
        padded.resize(share * self.world_size, T::zeroed());
        let mut arrived = vec![T::zeroed(); padded.len()];
        self.all_to_all(cast_slice(&padded), cast_slice_mut(&mut arrived), deadline)?;
        let mut own = vec![T::zeroed(); share];
        reduce(reduction, &arrived, &mut own);
        self.all_gather(cast_slice(&own), cast_slice_mut(&mut padded), deadline)?;
        values.copy_from_slice(&padded[..values.len()]);
        Ok(())
    }

    /// Checks a size, because Gloo does not.
    fn check(&self, what: &str, bytes: usize, room: usize) -> Result<()> {
        self.raw.maker().check("a connection between hosts")?;
        if bytes == room && bytes.is_multiple_of(self.world_size) {
            return Ok(());
        }
        Err(Error::internal(format!("{what} of {bytes} bytes into {room} over {} ranks", self.world_size)))
    }
}

fn number(rank: usize) -> Result<u32> {
    u32::try_from(rank).map_err(|_| Error::invalid("rank", rank, "it must fit 32 bits"))
}

fn remaining_ms(deadline: Instant) -> u64 {
    u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../../tests/unit/engine/gloo.rs"]
mod tests;
