//! Registration of memory that the library did not allocate.
#![allow(unsafe_code)]

use super::Communicator;
use crate::error::Result;
use crate::memory::{Adopted, Ref};
use crate::types::Element;

impl Communicator {
    /// Registers memory that the library did not allocate, so that peers can address it. All ranks register one buffer
    /// of the same length. Collective; blocks, and also waits for the devices if a registration was dropped before.
    ///
    /// Calls and graphs look up operands in the memory by their address, so a pool of an engine is adopted once, as a whole:
    /// see [`Adopted`]. [`adopt_bytes`](Self::adopt_bytes) takes a pool by its address.
    ///
    /// If ranks are threads of one process with a GPU each, the CUDA runtime may delay work for one GPU, such as
    /// instantiating a graph or allocating, until kernels of the other GPUs have ended. A collective that runs on one rank
    /// would then wait, up to its deadline, for the delayed rank. Let all ranks end a capture before any rank launches the
    /// graph: call [`Group::barrier`](crate::Group::barrier) between the two.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the lengths differ;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for memory of another device and
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if all registrations are in use, with
    /// [`Error::Peer`](crate::Error::Peer) on the other ranks.
    ///
    /// # Safety
    /// Operands in the memory lie at the same offset on every rank, or go [through scratch](Ref::through_scratch), because
    /// peers write at their own offset in the memory of this rank.
    ///
    /// The memory stays allocated until every rank has closed or dropped its communicator, even if the result was
    /// dropped long before: peers still map the memory, and may still write there after a call that failed. Ranks that
    /// are all threads of one process map nothing: the memory may then be freed when this rank's calls on it have ended
    /// without an error, because each call ends with a barrier after which no peer touches the memory.
    ///
    /// Safe code cannot promise this for memory of unknown origin:
    /// ```compile_fail,E0133
    /// # use symmetra::*;
    /// fn adopt<'a>(communicator: &Communicator, memory: Ref<'a, f32>) -> Result<Adopted<'a, f32>> {
    ///     communicator.adopt(memory)
    /// }
    /// ```
    /// A `DeviceBuffer` keeps the promise:
    /// ```
    /// # use symmetra::*;
    /// fn adopt<'a>(communicator: &Communicator, buffer: &'a DeviceBuffer<f32>) -> Result<Adopted<'a, f32>> {
    ///     // SAFETY: a `DeviceBuffer` that peers can reach stays allocated after it is dropped.
    ///     unsafe { communicator.adopt(buffer.borrow()) }
    /// }
    /// ```
    pub unsafe fn adopt<'a, T: Element>(&self, memory: Ref<'a, T>) -> Result<Adopted<'a, T>> {
        Adopted::new(&self.0.arena, &self.0.pools, Ok(memory))
    }

    /// Registers a pool of an engine: `bytes` bytes at `address`, whose elements have no type yet. As
    /// [`adopt`](Self::adopt) of a [`Ref`] to the bytes, but an invalid address is also reported to all ranks.
    /// [`Adopted::elements`] makes an operand from offset, count and type; an operand given by address is found
    /// automatically.
    /// ```
    /// # use half::bf16;
    /// # use symmetra::*;
    /// fn engine(communicator: &Communicator, pool: *mut u8, bytes: usize, stream: &Stream) -> Result<()> {
    ///     // SAFETY: the engine frees its pool when all ranks have closed.
    ///     let pool = unsafe { communicator.adopt_bytes(pool, bytes) }?;
    ///     communicator.all_reduce_in_place(pool.elements::<bf16>(256, 4096)?, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`adopt`](Self::adopt) and [`Ref::from_raw`].
    ///
    /// # Safety
    /// The requirements of [`adopt`](Self::adopt) and [`Ref::from_raw`], until every rank has closed or dropped its
    /// communicator.
    pub unsafe fn adopt_bytes(&self, address: *mut u8, bytes: usize) -> Result<Adopted<'static, u8>> {
        // SAFETY: passed on.
        let memory = unsafe { Ref::from_raw(self.device(), address, bytes) };
        Adopted::new(&self.0.arena, &self.0.pools, memory)
    }

    /// Registers memory, or takes part in the registration with an error.
    ///
    /// # Safety
    /// The requirements of [`adopt`](Self::adopt).
    pub(crate) unsafe fn adopt_made<'a, T: Element>(&self, memory: Result<Ref<'a, T>>) -> Result<Adopted<'a, T>> {
        Adopted::new(&self.0.arena, &self.0.pools, memory)
    }

    /// Registers memory that every rank has mapped already, as NVSHMEM, PyTorch's symmetric memory and FlashInfer do:
    /// `peers[r]` is the address by which this rank's device reaches the memory of rank `r`, and `peers` of this rank is
    /// the address of `memory`. Nothing is exported and nothing is mapped. All ranks register memory of one length and
    /// type. Collective; blocks, and also waits for the devices if a registration was dropped before.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if lengths or types differ;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for memory of another device, if the number of addresses is
    /// not the world size, for an address that is null or not aligned, and if this rank's address is not that of `memory`;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if all registrations are in use. The other ranks get
    /// [`Error::Peer`](crate::Error::Peer).
    ///
    /// # Safety
    /// Each address must reach the memory that its rank registers here: the same number of elements, readable and writable by
    /// this rank's device, until every rank has closed or dropped its communicator. `memory` itself must live as long.
    pub unsafe fn adopt_mapped<'a, T: Element>(&self, memory: Ref<'a, T>, peers: &[*mut T]) -> Result<Adopted<'a, T>> {
        Adopted::mapped(&self.0.arena, &self.0.pools, Ok(memory), peers)
    }

    /// Registers mapped memory, or takes part in the registration with an error.
    ///
    /// # Safety
    /// The requirements of [`adopt_mapped`](Self::adopt_mapped).
    pub(crate) unsafe fn adopt_mapped_made<'a, T: Element>(
        &self,
        memory: Result<Ref<'a, T>>,
        peers: &[*mut T],
    ) -> Result<Adopted<'a, T>> {
        Adopted::mapped(&self.0.arena, &self.0.pools, memory, peers)
    }
}
