//! A bootstrap that the program implements in C++.

use std::pin::Pin;
use std::time::Instant;

use cxx::UniquePtr;

use super::all_gather::Bootstrap;
use super::frame::check_length;
use crate::error::{Error, Result};
use crate::sys::foreign as sys;

/// How the program's object is held: borrowed while a group opens, or kept.
pub(crate) trait Hold {
    fn object(&self) -> Result<&sys::Bootstrap>;
    fn object_mut(&mut self) -> Result<Pin<&mut sys::Bootstrap>>;
}

impl Hold for Pin<&mut sys::Bootstrap> {
    fn object(&self) -> Result<&sys::Bootstrap> {
        Ok(self)
    }

    fn object_mut(&mut self) -> Result<Pin<&mut sys::Bootstrap>> {
        Ok(self.as_mut())
    }
}

impl Hold for UniquePtr<sys::Bootstrap> {
    fn object(&self) -> Result<&sys::Bootstrap> {
        self.as_ref().ok_or_else(null)
    }

    fn object_mut(&mut self) -> Result<Pin<&mut sys::Bootstrap>> {
        self.as_mut().ok_or_else(null)
    }
}

fn null() -> Error {
    Error::invalid("the bootstrap object", "null", "an environment needs one")
}

/// A bootstrap over the program's object.
///
/// The object's all-gather takes only equal sizes. So lengths are gathered first, then payloads padded to the
/// longest.
pub(crate) struct Foreign<H> {
    raw: H,
    rank: usize,
    world_size: usize,
}

impl<H: Hold> Foreign<H> {
    /// # Errors
    /// [`Error::Bootstrap`] or [`Error::PeerLost`] when the object throws, [`Error::InvalidArgument`] for a null pointer.
    pub(crate) fn new(raw: H) -> Result<Self> {
        let rank = sys::rank(raw.object()?)?;
        let world_size = sys::world_size(raw.object()?)?;
        Ok(Self { raw, rank, world_size })
    }

    /// Gathers `own`, which has the same length on every rank.
    fn gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        let bytes = own.len().checked_mul(self.world_size);
        let bytes = bytes.ok_or_else(|| {
            Error::invalid("world size", self.world_size, "the gathered bytes must fit the address space")
        })?;
        let mut all = vec![0; bytes];
        sys::all_gather(self.raw.object_mut()?, own, &mut all, deadline)?;
        Ok(all)
    }
}

impl<H: Hold + Send> Bootstrap for Foreign<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        check_length(bytes.len())?;
        let lengths = self.gather(&(bytes.len() as u64).to_le_bytes(), deadline)?;
        let lengths: Vec<u64> = lengths.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let room = usize::try_from(longest).unwrap_or(usize::MAX);
        check_length(room).map_err(|_| nonsense(&lengths))?;
        if room == 0 {
            return Ok(vec![Vec::new(); self.world_size]);
        }
        let mut own = bytes.to_vec();
        own.resize(room, 0);
        let all = self.gather(&own, deadline)?;
        // Each length is at most `room`.
        Ok(all.chunks_exact(room).zip(lengths).map(|(chunk, length)| chunk[..length as usize].to_vec()).collect())
    }

    fn barrier(&mut self, deadline: Instant) -> Result<()> {
        sys::barrier(self.raw.object_mut()?, deadline)
    }
}

fn nonsense(lengths: &[u64]) -> Error {
    Error::bootstrap(format!("the caller's bootstrap gathered {lengths:?} where the ranks' lengths should be"))
}
