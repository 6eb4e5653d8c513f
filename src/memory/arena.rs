//! The symmetric memory of a group: allocated once, with one layout, mapped by every rank.
//!
//! Invariants that the SAFETY comments of `memory` and `collective` cite:
//! * *Liveness*: this rank's memory and every peer's mapping live until the arena is dropped or closed. Closing waits
//!   for calls that have entered the group, then for the device; no call enters afterwards ([`Group::enter`]). While
//!   graphs of streams' owners hold the arena, closing unmaps nothing.
//! * *Exclusion*: regions are disjoint. A heap block is reused only after every rank has dropped it and all devices are
//!   idle.
//! * *Bounds*: every address that is returned is an offset inside the layout, checked when it is computed.
#![allow(unsafe_code)]

mod ending;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::block::BlockShare;
use super::guard::{Guards, PATTERN};
use super::heap::{BlockId, Heap};
use super::layout::{ArenaLayout, Region};
use super::mapping::{Mapping, exchange};
use super::multicast::{self, Bound, Opened};
use super::owner::{KeptMemory, Owner};
use super::slots::{Bases, Retired, Slots};
use crate::bootstrap::hello::tell;
use crate::device::{Allocation, DeviceKind};
use crate::error::{Error, Result};
use crate::group::{Announced, Group, LastCall, MAX_WORLD_SIZE};
use crate::kernel::args;
use crate::stream::Stream;

pub(crate) struct Arena {
    group: Group,
    layout: ArenaLayout,
    guards: Guards,
    memory: Arc<Allocation>,
    /// The multicast object over the arenas, or the reason why there is none.
    multicast: Opened<Bound>,
    /// Peers' mappings; emptied when the group closes.
    peers: Mutex<Vec<Mapping>>,
    /// Base address of every rank's arena, as this device addresses it.
    bases: Bases,
    /// For rare copies; the program has no work on it.
    stream: Stream,
    /// Shared with the blocks of the heap.
    heap: Arc<Mutex<Heap>>,
    slots: Mutex<Slots>,
    /// Plain memory of this rank that other processes have mapped, by token. It must not be freed before they unmap it.
    lent: Mutex<Vec<(u64, Owner)>>,
    /// The graphs of streams' owners that may use the memory of the group.
    graphs: AtomicUsize,
}

/// A rank's request in the next collective allocation.
#[derive(Serialize, Deserialize)]
struct ArenaRequest {
    bytes: u64,
    dropped: BTreeSet<BlockId>,
}

impl Arena {
    /// Allocates and maps the arena of every rank. Collective; blocks.
    pub(crate) fn open(group: &Group) -> Result<Arc<Self>> {
        let (layout, between) = ArenaLayout::guarded(group.world_size(), group.config())?;
        let guards = Guards::new(&layout, between);
        let bytes = usize::try_from(layout.bytes).map_err(|_| too_large(layout.bytes))?;
        let prepared = multicast::prepare(group)?;
        let bytes = prepared.as_ref().map_or(bytes, |unit| bytes.next_multiple_of(*unit));
        let own = allocate(group, (&layout, &guards), bytes);
        let (memory, stream) = group.exchange(|mesh, deadline| mesh.agree("allocate the arena", own, deadline))?;
        let memory = Arc::new(memory);
        let mapped = exchange(group, &memory)?;
        let opened = multicast::open(group, &memory, prepared)?;
        let mut bases = [std::ptr::null_mut(); MAX_WORLD_SIZE];
        for (base, mapping) in bases.iter_mut().zip(&mapped) {
            *base = mapping.as_ref().map_or(memory.address(), |mapping| mapping.mapped.address());
        }
        let arena = Self {
            group: group.clone(),
            layout,
            guards,
            memory,
            multicast: opened,
            peers: Mutex::new(mapped.into_iter().flatten().collect()),
            bases: Bases(bases),
            stream,
            heap: Arc::new(Mutex::new(Heap::new(layout.heap))),
            slots: Mutex::new(Slots::new(group.config().registrations)),
            lent: Mutex::default(),
            graphs: AtomicUsize::new(0),
        };
        let filled = arena.write_table(0, &arena.bases.0).and_then(|()| arena.place_records());
        group.exchange(|mesh, deadline| mesh.agree("fill the peer table", filled, deadline))?;
        Ok(Arc::new(arena))
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn layout(&self) -> &ArenaLayout {
        &self.layout
    }

    /// This rank's arena as a whole allocation: the layout, and the padding to a multiple of the device's unit.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn allocation(&self) -> (*mut u8, usize) {
        (self.memory.address(), self.memory.bytes())
    }

    /// The address of `offset`, of a region of the layout or of a heap block.
    pub(crate) fn own(&self, offset: u64) -> *mut u8 {
        self.bases.0[self.group.rank()].wrapping_add(offset as usize)
    }

    /// The address of `bytes` bytes from `offset` on in a rank's arena, as this device addresses them.
    ///
    /// # Errors
    /// [`Error::Internal`] for bytes outside the arena.
    pub(crate) fn at(&self, rank: usize, (offset, bytes): (u64, u64)) -> Result<*mut u8> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.layout.bytes => Ok(self.bases.0[rank].wrapping_add(offset as usize)),
            _ => Err(Error::internal(format!(
                "{bytes} bytes from {offset} on are outside an arena of {}",
                self.layout.bytes
            ))),
        }
    }

    /// The addresses of `offset`, as in [`own`](Self::own), in every rank's arena; null beyond the world size.
    pub(crate) fn everywhere(&self, offset: u64) -> [*mut u8; MAX_WORLD_SIZE] {
        self.bases.0.map(|base| if base.is_null() { base } else { base.wrapping_add(offset as usize) })
    }

    /// The multicast object over the arenas, or the reason why there is none. Equal on all ranks.
    pub(crate) fn multicast(&self) -> std::result::Result<&Bound, &str> {
        self.multicast.as_ref().map_err(String::as_str)
    }

    /// Wait parameters of the kernels of a call: the deadline is `first_use` if the call is the first on the device, else
    /// `steady`.
    pub(crate) fn wait(&self, call: impl Into<Announced>) -> args::Wait {
        let (deadlines, call) = (self.group.config().deadlines, call.into());
        let wait = self.wait_for(if call.is_first { deadlines.first_use } else { deadlines.steady });
        args::Wait { timeout_ns: wait.timeout_ns | u64::from(call.label) << args::kTimeoutBits, ..wait }
    }

    /// Wait parameters of a kernel that may wait for `timeout`.
    pub(crate) fn wait_for(&self, timeout: Duration) -> args::Wait {
        args::Wait {
            status: self.group.status_address().cast(),
            progress: self.own(self.layout.progress.offset).cast(),
            // Settings are at most 24 h, which leaves the bits of the label free.
            timeout_ns: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).min((1 << args::kTimeoutBits) - 1),
        }
    }

    /// Allocates a zeroed block of `content_bytes`, plus padding and `pad_bytes`, at one offset on all ranks. An error
    /// in `content_bytes` is reported to all ranks. Collective. Frees the blocks that every rank has dropped, after a
    /// wait for the device.
    pub(super) fn allocate(&self, content_bytes: Result<u64>, pad_bytes: u64) -> Result<(Arc<BlockShare>, Region)> {
        self.allocate_with(content_bytes, pad_bytes, || self.drain(), |region| self.zero(region))
    }

    fn allocate_with(
        &self,
        content_bytes: Result<u64>,
        pad_bytes: u64,
        drain: impl FnOnce() -> Result<()>,
        zero: impl FnOnce(Region) -> Result<()>,
    ) -> Result<(Arc<BlockShare>, Region)> {
        let wished = content_bytes.as_ref().copied().unwrap_or(u64::MAX);
        let wish = ArenaRequest { bytes: wished, dropped: self.heap.lock().dropped().clone() };
        let wishes = self.group.exchange(|mesh, deadline| tell(mesh, "to make symmetric memory", &wish, deadline))?;
        let content_bytes = content_bytes?;
        let bytes = self.guards.block_bytes(content_bytes, pad_bytes);
        let everywhere = dropped_everywhere(wishes).map_err(|error| self.group.placed(error))?;
        let drained = match everywhere.is_empty() && self.slots.lock().retired.is_empty() {
            true => Ok(()),
            false => drain(),
        };
        self.drop_idle();
        if !everywhere.is_empty() {
            // All devices must be idle: only then have peers' writes to the dropped blocks arrived.
            self.group.exchange(|mesh, deadline| mesh.agree("wait for the device", drained.clone(), deadline))?;
        }
        let intact = self.guards.release(&everywhere, |region| self.copy_out(region));
        let mut heap = self.heap.lock();
        heap.reclaim(&everywhere);
        let block = heap.allocate(bytes).map_err(|largest| Error::OutOfMemory {
            message: format!(
                "a symmetric buffer needs {bytes} bytes, the largest gap of the heap has {largest} (heap_bytes is {})",
                self.group.config().heap_bytes
            ),
        });
        drop(heap);
        let block = block.map(|(id, region)| (Arc::new(BlockShare::new(&self.heap, id, &self.memory)), (id, region)));
        let zeroed = drained.and(intact).and(block).and_then(|(block, (id, region))| {
            let content = self.guards.divide(id, region, content_bytes, pad_bytes);
            zero(region)?;
            self.guards.fill_block(id, |guard| self.set(guard, PATTERN))?;
            Ok((block, content))
        });
        // The agreement is the barrier after which peers may write here. If it fails, every rank drops its block.
        self.group.exchange(|mesh, deadline| mesh.agree("allocate a symmetric buffer", zeroed, deadline))
    }

    /// Reserves a peer table of this rank. Waits for the device only if every table is in use or retired.
    pub(crate) fn take_slot(&self) -> Result<u32> {
        let mut slots = self.slots.lock();
        if slots.free.is_empty() && !slots.retired.is_empty() {
            drop(slots);
            self.drain()?;
            slots = self.slots.lock();
        }
        let slot = slots.free.pop().ok_or_else(|| {
            let (most, way_out) = (self.group.config().registrations, "adopt a pool as a whole, or raise the setting");
            Error::OutOfMemory { message: format!("Config::registrations is {most}, and all are in use: {way_out}") }
        })?;
        slots.used.insert(slot, Vec::new());
        Ok(slot)
    }

    /// Keeps the owners and mappings of the memory that a table addresses.
    pub(super) fn attach(&self, slot: u32, keep: Vec<KeptMemory>) {
        self.slots.lock().used.entry(slot).or_default().extend(keep);
    }

    /// Keeps memory of this rank that other processes are about to map.
    pub(super) fn lend(&self, token: u64, owner: &Owner) {
        self.lent.lock().push((token, owner.clone()));
    }

    /// Rank and token of all memory of other ranks that this rank has mapped.
    pub(super) fn borrowed(&self) -> Vec<(usize, u64)> {
        let slots = self.slots.lock();
        let retired = slots.retired.iter().flat_map(|retired| &retired.keep);
        slots.used.values().flatten().chain(retired).chain(&slots.idle).map(|kept| kept.from).collect()
    }

    /// Drops lent memory that no rank lists in [`borrowed`](Self::borrowed) any more.
    pub(super) fn reclaim_lent(&self, borrowed: &[Vec<(usize, u64)>]) {
        let own = self.group.rank();
        let mut lent = self.lent.lock();
        let (kept, free): (Vec<_>, Vec<_>) =
            lent.drain(..).partition(|(token, _)| borrowed.iter().flatten().any(|from| *from == (own, *token)));
        *lent = kept;
        drop(lent);
        drop(free);
    }

    /// Drops memory of other ranks that no kernel of this rank uses any more. Called only inside collective calls.
    pub(super) fn reclaim(&self) -> Result<()> {
        let retired = !self.slots.lock().retired.is_empty();
        if retired {
            self.drain()?;
        }
        self.drop_idle();
        Ok(())
    }

    fn drop_idle(&self) {
        let idle = std::mem::take(&mut self.slots.lock().idle);
        // Dropped without the lock, since it may wait for devices.
        drop(idle);
    }

    /// Returns a table after no kernel can read it any more.
    pub(crate) fn retire_slot(&self, slot: u32) {
        let mut slots = self.slots.lock();
        slots.addresses.remove(&slot);
        if let Some(keep) = slots.used.remove(&slot) {
            let number = slots.retirements;
            slots.retired.push(Retired { number, slot, keep });
            slots.retirements += 1;
        }
    }

    pub(crate) fn table(&self, slot: u32) -> *const args::PeerTable {
        let offset = self.layout.tables.offset + u64::from(slot) * size_of::<args::PeerTable>() as u64;
        self.own(offset).cast_const().cast()
    }

    /// The arena's stream, for work that precedes all work of the program.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Fills a table with addresses. Blocks until the device holds them.
    pub(crate) fn write_table(&self, slot: u32, addresses: &[*mut u8; MAX_WORLD_SIZE]) -> Result<()> {
        let table = addresses.map(|address| address as u64);
        let bytes: &[u8] = bytemuck::cast_slice(&table);
        self.copy_in(self.table(slot).cast_mut().cast(), bytes)?;
        self.slots.lock().addresses.insert(slot, Bases(*addresses));
        Ok(())
    }

    /// The address of a rank in a table; `None` before the table is filled.
    pub(crate) fn registered(&self, slot: u32, rank: usize) -> Option<*mut u8> {
        self.slots.lock().addresses.get(&slot).map(|addresses| addresses.0[rank])
    }

    /// Waits for the device, whose waits are bounded, and frees the tables that were retired before.
    fn drain(&self) -> Result<()> {
        let before = self.slots.lock().retirements;
        self.group.device().synchronize()?;
        let mut slots = self.slots.lock();
        let Slots { free, retired, idle, .. } = &mut *slots;
        let done = retired.partition_point(|retired| retired.number < before);
        for Retired { slot, keep, .. } in retired.drain(..done) {
            free.push(slot);
            idle.extend(keep);
        }
        Ok(())
    }

    /// Uses `address` as the arena of `rank`, to simulate a wrong mapping.
    #[cfg(test)]
    pub(crate) fn misdirect(self: &mut Arc<Self>, rank: usize, address: *mut u8) {
        Arc::get_mut(self).unwrap().bases.0[rank] = address;
    }

    fn zero(&self, region: Region) -> Result<()> {
        self.set(region, 0)
    }

    fn set(&self, region: Region, value: u8) -> Result<()> {
        fill(&self.stream, self.own(region.offset), value, region.bytes)?;
        self.stream.synchronize()
    }

    /// Compares this rank's guards. Blocks. The work of all ranks must be done.
    pub(crate) fn check_guards(&self) -> Result<()> {
        self.guards.check(|region| self.copy_out(region))
    }

    fn copy_out(&self, region: Region) -> Result<Vec<u8>> {
        let mut bytes = vec![0; region.bytes as usize];
        let from = self.own(region.offset).cast_const();
        // SAFETY: the region is inside the own arena (bounds, liveness); `bytes` outlives the copy.
        self.stream.run("copy", |raw| unsafe { raw.copy(bytes.as_mut_ptr(), from, bytes.len()) })?;
        Ok(bytes)
    }

    /// Writes the address of the ring of the times of calls, if calls are timed.
    fn place_records(&self) -> Result<()> {
        if !self.group.is_timed() {
            return Ok(());
        }
        let place = std::mem::offset_of!(args::Progress, times) + std::mem::offset_of!(args::Times, records);
        let address = self.group.records_address() as u64;
        self.copy_in(self.own(self.layout.progress.offset + place as u64), &address.to_ne_bytes())
    }

    /// Records the times of the last call, if calls are timed. The device has no call of the group in progress. Blocks for two
    /// copies. They differ if a graph that a stream's owner launches makes a call meanwhile, which then writes the record. If the
    /// device refuses a copy, observers miss the call.
    pub(crate) fn complete_times(&self) {
        if !self.group.is_timed() {
            return;
        }
        let copy = || self.copy_out(self.layout.progress).ok();
        if let (Some(first), Some(last)) = (copy(), copy())
            && first == last
            && let Ok(progress) = bytemuck::try_pod_read_unaligned(&first)
        {
            self.group.complete_times(&LastCall::of(progress));
        }
    }

    fn copy_in(&self, to: *mut u8, bytes: &[u8]) -> Result<()> {
        // SAFETY: `to` is inside the own arena (bounds, liveness); `bytes` outlives the copy.
        let copy = |raw: &crate::sys::device::Stream| unsafe { raw.copy(to, bytes.as_ptr(), bytes.len()) };
        self.stream.run("copy", copy)
    }
}

/// The blocks that every rank has dropped. If the requests differ, an error that is equal on all ranks.
fn dropped_everywhere(wishes: Vec<ArenaRequest>) -> Result<BTreeSet<BlockId>> {
    let mut wishes = wishes.into_iter().enumerate();
    let Some((_, ArenaRequest { bytes, dropped: mut everywhere })) = wishes.next() else { return Ok(BTreeSet::new()) };
    for (rank, wish) in wishes {
        if wish.bytes != bytes {
            let what = "the bytes of a symmetric buffer".to_owned();
            let (ours, theirs) = (bytes.to_string(), wish.bytes.to_string());
            return Err(Error::Mismatch { what, against: 0, ours, rank, theirs });
        }
        everywhere.retain(|id| wish.dropped.contains(id));
    }
    Ok(everywhere)
}

fn too_large(bytes: u64) -> Error {
    Error::invalid("the arena", format!("{bytes} bytes"), "it must fit the address space")
}

/// Allocates this rank's arena and marks every packet as absent.
fn allocate(group: &Group, (layout, guards): (&ArenaLayout, &Guards), bytes: usize) -> Result<(Allocation, Stream)> {
    let memory = Allocation::shared(group.device(), bytes)?;
    let stream = Stream::new(group.device())?;
    let set = |region: Region, value| {
        fill(&stream, memory.address().wrapping_add(region.offset as usize), value, region.bytes)
    };
    guards.fill(|guard| set(guard, PATTERN))?;
    // Fresh memory of the host device contains no packet.
    if group.device().kind() != DeviceKind::Host {
        layout.sentinel_regions().into_iter().try_for_each(|region| set(region, 0xFF))?;
    }
    stream.synchronize()?;
    Ok((memory, stream))
}

/// Fills device memory of the caller, on `stream`. Does not block.
fn fill(stream: &Stream, to: *mut u8, value: u8, bytes: u64) -> Result<()> {
    // SAFETY: callers pass a region of their own arena (bounds, liveness).
    stream.enqueue("fill", |raw| unsafe { raw.fill(to, value, bytes as usize) })
}

#[cfg(test)]
#[path = "../../tests/unit/memory/arena.rs"]
mod tests;
