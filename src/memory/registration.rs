//! Registration: exchanges pointers of all ranks. Each pointer is classified before it is exported. The export contains
//! the base of the allocation and the pointer's offset.
#![allow(unsafe_code)]

use std::fmt::{self, Display, Formatter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::exported::{Brought, ExportHandle, ExportWay, MappedExport, OwnMemory, bring};
use super::owner::{KeptMemory, Offer, Owner, offered};
use crate::bootstrap::hello::tell;
use crate::device::{Allocation, DeviceKind, POINTER_DEVICE, POINTER_FILE, POINTER_VMM, PointerInfo};
use crate::error::{Error, Result};
use crate::group::{Group, MAX_WORLD_SIZE};
use crate::sys::Caught;

/// A pointer of every rank, in a peer table. After it is dropped, table and mappings are freed when no kernel can use
/// them.
pub(crate) struct Registration {
    arena: Arc<Arena>,
    slot: u32,
}

impl Registration {
    pub(crate) fn reserve(arena: &Arc<Arena>) -> Result<Self> {
        Ok(Self { arena: arena.clone(), slot: arena.take_slot()? })
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn group_id(&self) -> u64 {
        self.arena.group().id()
    }

    /// The address of a rank's memory for this rank's device.
    pub(crate) fn address(&self, rank: usize) -> Result<*mut u8> {
        let world = self.arena.group().world_size();
        if rank >= world {
            return Err(Error::invalid("rank", rank, format!("the world size is {world}")));
        }
        self.arena.group().check()?;
        self.arena.registered(self.slot, rank).ok_or(Error::NotRegistered { pointers: 1 })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.arena.group().device().is_here() {
            return;
        }
        self.arena.retire_slot(self.slot);
    }
}

/// The data that a rank sends about one pointer.
#[derive(Serialize, Deserialize)]
struct Export {
    bytes: u64,
    address: u64,
    /// Whether ranks of this process may use `address`.
    in_process: bool,
    /// Token by which ranks of this process share the owner; 0 when the owner is unknown.
    token: u64,
    device: i32,
    handle: Option<ExportHandle>,
}

/// An export, the file to send, and the offer that keeps the owner until peers have it.
type Exported = (Export, (Option<OwnedFd>, Option<Offer>));

/// A pointer of this rank, and the table for it and its peers.
pub(crate) struct Pointer<'a> {
    pub(crate) registration: &'a Registration,
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
    /// The memory's owner if known; peers keep it too. Otherwise the program keeps the memory.
    pub(crate) owner: Option<Owner>,
    /// Whether memory that is mapped by address ranges is shared too. Every rank maps all its pieces, which takes longer than
    /// the other ways.
    pub(crate) by_pieces: bool,
}

/// A use of memory by address in a graph.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) call: usize,
    pub(crate) operand: usize,
    pub(crate) of: Used,
}

/// The memory that a graph uses.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Used {
    /// One of the pointers that are registered.
    Pointer(usize),
    /// A place in adopted memory: the number of the adoption, and the offset.
    Adopted(u64, u64),
}

impl Display for Used {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(number) => write!(out, "pointer {number}"),
            Self::Adopted(number, offset_bytes) => write!(out, "byte {offset_bytes} of adoption {number}"),
        }
    }
}

/// The data that a rank sends about all its pointers.
#[derive(Serialize, Deserialize)]
struct SentPointers {
    exports: Vec<Export>,
    uses: Vec<Use>,
    /// Memory of other ranks that the rank still has mapped.
    borrowed: Vec<(usize, u64)>,
}

/// Fills the tables for an equal number of pointers on every rank, in order. Returns whether each pointer can be
/// shared; the result is equal on every rank. Fails if `uses` differ. Collective; blocks.
pub(crate) fn register(arena: &Arc<Arena>, pointers: &[Pointer<'_>], uses: &[Use]) -> Result<Vec<bool>> {
    let group = arena.group();
    let exports = arena
        .reclaim()
        .and_then(|()| -> Result<Vec<Exported>> { pointers.iter().map(|pointer| export(arena, pointer)).collect() });
    let exports = group.exchange(|mesh, deadline| mesh.agree("export memory", exports, deadline))?;
    let (exports, own): (Vec<Export>, Vec<_>) = exports.into_iter().unzip();
    let (own_files, _offers): (Vec<_>, Vec<_>) = own.into_iter().unzip();
    let own = SentPointers { exports, uses: uses.to_vec(), borrowed: arena.borrowed() };
    let told = group.exchange(|mesh, deadline| tell(mesh, "to register memory", &own, deadline))?;
    let (mut all, mut uses, mut borrowed) = (Vec::new(), Vec::new(), Vec::new());
    for theirs in told {
        all.push(theirs.exports);
        uses.push(theirs.uses);
        borrowed.push(theirs.borrowed);
    }
    arena.reclaim_lent(&borrowed);
    check_sizes(&all).and_then(|()| check_uses(&uses)).map_err(|error| group.placed(error))?;
    let shared: Vec<bool> = (0..pointers.len()).map(|item| is_shared(group, &all, item)).collect();
    if !group.is_one_process() {
        for (item, pointer) in pointers.iter().enumerate().filter(|(item, _)| shared[*item]) {
            if let Some(owner) = &pointer.owner {
                arena.lend(all[group.rank()][item].token, owner);
            }
        }
    }
    let mut brought = Vec::new();
    for (item, (pointer, file)) in pointers.iter().zip(&own_files).enumerate().filter(|(item, _)| shared[*item]) {
        let handles: Vec<_> = all.iter().map(|exports| exports[item].handle.as_ref()).collect();
        brought
            .push((item, bring(group, &handles, OwnMemory { address: pointer.address as u64, file: file.as_ref() })));
    }
    let mapped: Result<()> =
        brought.into_iter().try_for_each(|(item, brought)| map(arena, &all, item, &pointers[item], brought?));
    group.exchange(|mesh, deadline| mesh.agree("map the memory of peers", mapped, deadline))?;
    Ok(shared)
}

fn export(arena: &Arena, pointer: &Pointer<'_>) -> Result<Exported> {
    let (address, bytes) = (pointer.address, pointer.bytes);
    let device = arena.group().device();
    // SAFETY: the runtime only looks the address up in its tables.
    let info = unsafe { device.raw()?.classify(address.cast_const()) }.caught()?;
    let (way, file) = match info.kind {
        POINTER_DEVICE if device.exports_plain_memory() && bytes > 0 => {
            (Some(ExportWay::Ipc(ipc(arena, &info)?)), None)
        }
        POINTER_FILE if bytes > 0 => {
            let (file, start) = Allocation::export_file(device, info.base)?;
            (Some(ExportWay::File(start)), Some(file))
        }
        _ => (None, None),
    };
    let offset = (address as u64).wrapping_sub(info.base);
    let handle = match way {
        Some(way) => Some(ExportHandle { way, allocation_bytes: info.bytes, offset }),
        None if info.kind == POINTER_VMM && pointer.by_pieces => ExportHandle::of_pieces(device, address as u64, bytes),
        None => None,
    };
    // Threads share an address space. GPUs can access memory of plain allocations, and can map pieces again.
    let in_process = device.kind() == DeviceKind::Host || info.kind == POINTER_DEVICE || handle.is_some();
    let offer = pointer.owner.clone().map(Offer::new);
    let token = offer.as_ref().map_or(0, Offer::token);
    let (bytes, address, device) = (bytes as u64, address as u64, device.ordinal());
    Ok((Export { bytes, address, in_process, token, device, handle }, (file, offer)))
}

fn ipc(arena: &Arena, info: &PointerInfo) -> Result<Vec<u8>> {
    // SAFETY: `classify` returned `base` as the start of an allocation of the runtime.
    let handle = unsafe { arena.group().device().raw()?.export_ipc(info.base as *const u8) }.caught()?;
    Ok(handle.bytes.to_vec())
}

/// Refuses exports whose number or sizes differ between ranks.
fn check_sizes(all: &[Vec<Export>]) -> Result<()> {
    let sizes = |exports: &[Export]| exports.iter().map(|export| export.bytes).collect::<Vec<_>>();
    let mut all = all.iter().map(|exports| sizes(exports)).enumerate();
    let Some((_, first)) = all.next() else { return Ok(()) };
    match all.find(|(_, theirs)| *theirs != first) {
        None => Ok(()),
        Some((rank, theirs)) => {
            let what = "the sizes of the registered memory".to_owned();
            let words = |sizes: &[u64]| format!("{} pointers of {sizes:?} bytes", sizes.len());
            Err(Error::Mismatch { what, against: 0, ours: words(&first), rank, theirs: words(&theirs) })
        }
    }
}

/// Refuses operands that are one pointer on one rank and two on another: a table holds the pointers with the same
/// number.
fn check_uses(all: &[Vec<Use>]) -> Result<()> {
    let Some((first, others)) = all.split_first() else { return Ok(()) };
    for (theirs, rank) in others.iter().zip(1..) {
        let uses = first.len().max(theirs.len());
        if let Some(differs) = (0..uses).find(|number| first.get(*number) != theirs.get(*number)) {
            let words = |uses: &[Use]| match uses.get(differs) {
                Some(Use { call, operand, of }) => format!("{of} as operand {operand} of call {call}"),
                None => "none".to_owned(),
            };
            let what = format!("use {differs} of pointers that a graph captured");
            return Err(Error::Mismatch { what, against: 0, ours: words(first), rank, theirs: words(theirs) });
        }
    }
    Ok(())
}

/// Whether every rank can address this pointer of every other rank. Each rank checks all pairs, so that all ranks get
/// the same result.
fn is_shared(group: &Group, all: &[Vec<Export>], item: usize) -> bool {
    let processes = group.processes();
    let reachable = |from: usize, to: usize| {
        let export = &all[to][item];
        if processes[from] == processes[to] { export.in_process } else { export.handle.is_some() }
    };
    let ranks = 0..group.world_size();
    ranks.clone().all(|from| ranks.clone().all(|to| from == to || reachable(from, to)))
}

/// Maps one shared pointer of every rank and fills its table.
fn map(
    arena: &Arc<Arena>,
    all: &[Vec<Export>],
    item: usize,
    pointer: &Pointer<'_>,
    brought: Vec<Brought>,
) -> Result<()> {
    let group = arena.group();
    let processes = group.processes();
    let mut addresses = [std::ptr::null_mut(); MAX_WORLD_SIZE];
    let mut keep = Vec::new();
    for ((rank, exports), brought) in all.iter().enumerate().zip(brought) {
        let export = &exports[item];
        addresses[rank] = match &export.handle {
            _ if rank == group.rank() => export.address as *mut u8,
            _ if processes[rank] == processes[group.rank()] => {
                let (address, kept) = in_process(group, rank, export)?;
                keep.extend(kept);
                address
            }
            Some(handle) => {
                let mapping = MappedExport::new(group, rank, handle, brought)?;
                let address = mapping.address().wrapping_add(handle.offset as usize);
                keep.push(KeptMemory { from: (rank, export.token), _owner: Arc::new(mapping) });
                address
            }
            None => {
                let what = format!("access to the memory of rank {rank}");
                return Err(Error::unsupported(what, "the rank cannot share the memory with other processes"));
            }
        };
    }
    let slot = pointer.registration.slot;
    arena.attach(slot, keep);
    arena.write_table(slot, &addresses)
}

/// The address of a pointer of another rank of this process for this rank's device, and the object that keeps the address.
fn in_process(group: &Group, rank: usize, export: &Export) -> Result<(*mut u8, Option<KeptMemory>)> {
    let device = group.device();
    let from = (rank, export.token);
    // One address serves all threads on the host.
    if device.kind() != DeviceKind::Host
        && let Some(handle) = &export.handle
        && let Some(alias) = handle.alias(device, export.address)?
    {
        let address = alias.address().wrapping_add(handle.offset as usize);
        return Ok((address, Some(KeptMemory { from, _owner: Arc::new(alias) })));
    }
    device.raw()?.enable_peer(export.device).caught()?;
    let gone = || Error::PeerLost { rank, detail: ": its memory is gone".to_owned() };
    let kept = match export.token {
        0 => None,
        token => Some(KeptMemory { from, _owner: offered(token).ok_or_else(gone)? }),
    };
    Ok((export.address as *mut u8, kept))
}
