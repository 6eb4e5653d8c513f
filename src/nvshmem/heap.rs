//! The blocks of a session in NVSHMEM's heap. They are freed collectively, after every rank has dropped its own.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::calls::CallThread;
use super::library::{Symbols, succeed};
use super::process::Claim;
use crate::bootstrap::hello::tell;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::memory::{Adopted, Ref};
use crate::types::Element;

/// The shared state of a session and its buffers.
pub(super) struct Heap {
    pub(super) calls: CallThread,
    pub(super) claim: Claim,
    /// The number of NVSHMEM's processing elements.
    pub(super) all_pes: usize,
    /// The processing element of each rank.
    pub(super) pes: Vec<i32>,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// The number of the next block. Equal on all ranks, which allocate in the same order.
    next: u64,
    live: BTreeMap<u64, (HeapBlock, Keep)>,
    dropped: BTreeSet<u64>,
}

/// The owner that keeps registered memory alive.
type Keep = Option<Communicator>;

/// Memory as NVSHMEM addresses it.
#[derive(Clone, Copy)]
pub(super) struct HeapBlock {
    pub(super) address: usize,
    pub(super) bytes: usize,
    /// Whether the memory belongs to a communicator, and was registered.
    pub(super) registered: bool,
}

/// A block of this rank. When dropped, the block is listed to be freed.
pub(super) struct HeldBlock {
    heap: Arc<Heap>,
    number: u64,
}

impl Drop for HeldBlock {
    fn drop(&mut self) {
        if !self.heap.calls.group().device().is_here() {
            return;
        }
        self.heap.blocks.lock().dropped.insert(self.number);
    }
}

/// The request of a rank.
#[derive(Serialize, Deserialize)]
struct Wish {
    /// `None` if only dropped blocks are to be freed.
    bytes: Option<u64>,
    dropped: BTreeSet<u64>,
}

/// The result of a rank's look-up of an address.
#[derive(Serialize, Deserialize)]
struct Reached {
    /// Whether the rank has no such memory.
    null: bool,
    /// The ranks whose memory the rank cannot address.
    unreachable: Vec<usize>,
}

impl Heap {
    pub(super) fn new(calls: CallThread, claim: Claim, all_pes: usize, pes: Vec<i32>) -> Self {
        Self { calls, claim, all_pes, pes, blocks: Mutex::default() }
    }

    /// Bytes that NVSHMEM allocated for this rank and that are not freed.
    pub(super) fn bytes(&self) -> usize {
        let blocks = self.blocks.lock();
        blocks.live.values().filter(|(block, _)| !block.registered).map(|(block, _)| block.bytes).sum()
    }

    /// The number of blocks in use.
    pub(super) fn in_use(&self) -> usize {
        let blocks = self.blocks.lock();
        blocks.live.len() - blocks.dropped.len()
    }

    /// Frees the blocks that every rank has dropped. Collective.
    pub(super) fn reclaim(&self) -> Result<()> {
        self.wish(None)
    }

    /// Refuses a call of all processing elements if the ranks are not all of them.
    pub(super) fn check_all(&self, call: &str) -> Result<()> {
        match (self.all_pes, self.pes.len()) {
            (all, world) if all == world => Ok(()),
            (all, world) => {
                let reason =
                    format!("it is a call of all {all} processing elements, and the communicator has {world} ranks");
                Err(Error::unsupported(call, reason))
            }
        }
    }

    /// Compares the requests of the ranks, and frees the blocks that every rank has dropped. Collective.
    pub(super) fn wish(&self, bytes: Option<u64>) -> Result<()> {
        self.calls.check()?;
        let own = Wish { bytes, dropped: self.blocks.lock().dropped.clone() };
        let group = self.calls.group();
        let wishes = group.exchange(|mesh, deadline| tell(mesh, "to use the heap of NVSHMEM", &own, deadline))?;
        let words = |wish: &Wish| wish.bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
        if let Some((first, others)) = wishes.split_first()
            && let Some((theirs, rank)) = others.iter().zip(1..).find(|(theirs, _)| theirs.bytes != first.bytes)
        {
            let what = "the bytes of memory of NVSHMEM".to_owned();
            return Err(Error::Mismatch { what, against: 0, ours: words(first), rank, theirs: words(theirs) });
        }
        let everywhere = |number: &u64| wishes.iter().all(|wish| wish.dropped.contains(number));
        self.free(own.dropped.into_iter().filter(everywhere).collect())
    }

    /// Frees blocks that every rank has dropped. Collective.
    fn free(&self, numbers: Vec<u64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        // All devices must be idle: only then does no kernel of a peer access the blocks.
        let group = self.calls.group();
        let idle = group.device().synchronize();
        group.exchange(|mesh, deadline| mesh.agree("wait for the device", idle, deadline))?;
        let blocks: Vec<HeapBlock> = {
            let blocks = self.blocks.lock();
            numbers.iter().filter_map(|number| blocks.live.get(number)).map(|(block, _)| *block).collect()
        };
        self.calls.together("nvshmem_free", move |symbols| {
            blocks.into_iter().try_for_each(|block| release(symbols, block))
        })?;
        let mut blocks = self.blocks.lock();
        let freed: Vec<_> = numbers.iter().filter_map(|number| blocks.live.remove(number)).collect();
        blocks.dropped.retain(|number| !numbers.contains(number));
        drop(blocks);
        // Without the lock: the last owner of a communicator waits for its work.
        drop(freed);
        Ok(())
    }

    /// Allocates `bytes` on every rank, and finds every rank's address. Nothing is allocated for 0 bytes. Collective.
    pub(super) fn allocate(self: &Arc<Self>, bytes: Result<usize>) -> Result<(Option<HeldBlock>, Vec<usize>)> {
        // An invalid size is an error on all ranks, because it differs from other sizes.
        self.wish(Some(bytes.as_ref().map_or(u64::MAX, |bytes| *bytes as u64)))?;
        let bytes = bytes?;
        self.check_all("nvshmem_malloc")?;
        if bytes == 0 {
            return Ok((None, vec![0; self.pes.len()]));
        }
        let address = self.calls.together("nvshmem_malloc", move |symbols| {
            // SAFETY: all processing elements request the same number of bytes, as `wish` compared.
            Ok(unsafe { (symbols.nvshmem_malloc)(bytes) } as usize)
        })?;
        let held = (address != 0).then(|| self.hold(HeapBlock { address, bytes, registered: false }, None));
        let (told, addresses) = self.reach(address, bytes)?;
        self.check_filled(&told, bytes)?;
        check_reached(&told)?;
        Ok((held, addresses))
    }

    /// Registers a block, to be freed when every rank has dropped its own.
    pub(super) fn hold(self: &Arc<Self>, block: HeapBlock, keep: Keep) -> HeldBlock {
        let mut blocks = self.blocks.lock();
        let number = blocks.next;
        blocks.next += 1;
        blocks.live.insert(number, (block, keep));
        HeldBlock { heap: self.clone(), number }
    }

    /// Refuses an allocation that failed on a rank.
    fn check_filled(&self, told: &[Reached], bytes: usize) -> Result<()> {
        let message = format!("{bytes} bytes in the heap of NVSHMEM (NVSHMEM_SYMMETRIC_SIZE is the size of the heap)");
        let failed = told.iter().position(|told| told.null);
        match failed {
            None => Ok(()),
            Some(_) if told.iter().all(|told| told.null) => Err(Error::OutOfMemory { message }),
            // The heaps of the ranks now differ.
            Some(rank) => {
                let own = told.get(self.calls.group().rank()).is_some_and(|told| told.null);
                let error = match own {
                    true => Error::OutOfMemory { message },
                    false => Error::Peer { rank, message: Error::OutOfMemory { message }.to_string() },
                };
                Err(self.calls.give_up(error))
            }
        }
    }

    /// Queries NVSHMEM for the address of every rank's memory that corresponds to this rank's, `bytes` from `address`,
    /// and compares the results of the ranks. Collective.
    fn reach(&self, address: usize, bytes: usize) -> Result<(Vec<Reached>, Vec<usize>)> {
        let (own, pes) = (self.calls.group().rank(), self.pes.clone());
        let found = self.calls.run("nvshmem_ptr", move |symbols| {
            // SAFETY: NVSHMEM compares the address with the bounds of its heap.
            let at = |address: usize, pe: i32| unsafe { (symbols.nvshmem_ptr)(address as *const c_void, pe) } as usize;
            let ends = |pe: i32| (at(address, pe), at(address.saturating_add(bytes.max(1) - 1), pe));
            Ok(pes.into_iter().map(ends).map(|(first, last)| if last == 0 { 0 } else { first }).collect::<Vec<_>>())
        });
        let group = self.calls.group();
        let found = group.exchange(|mesh, deadline| mesh.agree("find the memory of peers", found, deadline))?;
        // Without elements no address is missing.
        let missing = |rank: &usize| bytes > 0 && found.get(*rank).is_none_or(|address| *address == 0);
        let own = Reached { null: missing(&own), unreachable: (0..found.len()).filter(missing).collect() };
        let told = group.exchange(|mesh, deadline| tell(mesh, "to share memory of NVSHMEM", &own, deadline))?;
        Ok((told, found))
    }

    /// Registers memory that NVSHMEM allocated elsewhere. Collective.
    ///
    /// # Safety
    /// The requirements of [`Session::adopt`](super::Session::adopt).
    pub(super) unsafe fn adopt<'a, T: Element>(&self, memory: Ref<'a, T>) -> Result<Adopted<'a, T>> {
        self.calls.check()?;
        let (rank, address) = (self.calls.group().rank(), memory.as_raw());
        let (told, mut addresses) = self.reach(address as usize, memory.len() * size_of::<T>())?;
        if let Some(stranger) = told.iter().position(|told| told.null) {
            let limit = "NVSHMEM has no such elements in the heap of the rank";
            let error = Error::invalid("the memory", format!("{} {} at {address:p}", memory.len(), T::DTYPE), limit);
            return Err(match told.get(rank).is_some_and(|told| told.null) {
                true => error,
                false => Error::Peer { rank: stranger, message: "its memory is not in the heap of NVSHMEM".to_owned() },
            });
        }
        check_reached(&told)?;
        // Without elements NVSHMEM has no address.
        addresses[rank] = address as usize;
        // SAFETY: the caller's promise.
        unsafe { self.register(memory, &addresses) }
    }

    /// Registers this rank's memory; `addresses` are those of the corresponding memory of all ranks. Collective.
    ///
    /// # Safety
    /// The addresses are the result of [`reach`](Self::reach) for memory of the same number of elements, which stays
    /// allocated as [`Communicator::adopt_mapped`](crate::Communicator::adopt_mapped) requires.
    pub(super) unsafe fn register<'a, T: Element>(
        &self,
        memory: Ref<'a, T>,
        addresses: &[usize],
    ) -> Result<Adopted<'a, T>> {
        let peers: Vec<*mut T> = addresses.iter().map(|address| *address as *mut T).collect();
        // SAFETY: the caller's promise.
        unsafe { self.calls.communicator.adopt_mapped(memory, &peers) }
    }
}

/// Frees a block, or reverts its registration.
fn release(symbols: &Symbols, block: HeapBlock) -> Result<()> {
    let HeapBlock { address, bytes, registered } = block;
    let address = address as *mut c_void;
    match symbols.nvshmemx_buffer_unregister_symmetric.filter(|_| registered) {
        // SAFETY: registered by `map`, deregistered once; all ranks do so in the same order.
        Some(unregister) => succeed("nvshmemx_buffer_unregister_symmetric", unsafe { unregister(address, bytes) }),
        None => {
            // SAFETY: allocated by `allocate`, freed once; all ranks free in the same order (exclusion).
            unsafe { (symbols.nvshmem_free)(address) };
            Ok(())
        }
    }
}

/// Refuses memory that some rank cannot address on another rank. The error is equal on every rank.
fn check_reached(told: &[Reached]) -> Result<()> {
    let pair = told.iter().enumerate().find_map(|(rank, told)| Some((rank, *told.unreachable.first()?)));
    match pair {
        None => Ok(()),
        Some((rank, peer)) => {
            let reason = format!("NVSHMEM gives rank {rank} no address of rank {peer}'s memory");
            Err(Error::unsupported("memory of NVSHMEM that every rank reaches", reason))
        }
    }
}
