//! Makes pointers of all ranks known to all ranks. Each is classified before anything is
//! exported, and exported by the base of its allocation, with the offset beside it.
#![allow(unsafe_code)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arena::Arena;
use crate::bootstrap::hello::tell;
use crate::device::{DeviceKind, IpcHandle, Memory, POINTER_DEVICE, PointerInfo};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;

/// A pointer of every rank, in a peer table. Dropped, table and mappings go back when no kernel
/// can use them any more.
pub(crate) struct Registration {
    arena: Arc<Arena>,
    slot: u32,
}

impl Registration {
    /// A table to be filled later.
    pub(crate) fn reserve(arena: &Arc<Arena>) -> Result<Self> {
        Ok(Self { arena: arena.clone(), slot: arena.take_slot()? })
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn group_id(&self) -> u64 {
        self.arena.group().id()
    }

    /// Where this rank's device finds a rank's memory.
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
        self.arena.retire_slot(self.slot);
    }
}

/// What a rank tells of one pointer.
#[derive(Serialize, Deserialize)]
struct Export {
    bytes: u64,
    /// For ranks of the same process.
    address: u64,
    /// Whether peers of this process may follow `address`.
    in_process: bool,
    device: i32,
    /// For other processes: the allocation's legacy handle, its size, and our offset in it.
    handle: Option<(Vec<u8>, u64, u64)>,
}

/// A pointer of this rank, and the table that will hold it and its peers.
pub(crate) struct Pointer<'a> {
    pub(crate) registration: &'a Registration,
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
}

/// Fills the tables of the same number of pointers on every rank, in order. Says of each whether
/// it can be shared, the same on every rank. Collective.
pub(crate) fn register(arena: &Arc<Arena>, pointers: &[Pointer<'_>]) -> Result<Vec<bool>> {
    let group = arena.group();
    let exports: Result<Vec<Export>> = pointers.iter().map(|pointer| export(arena, pointer)).collect();
    let exports = group.exchange(|mesh, deadline| mesh.agree("export memory", exports, deadline))?;
    let all = group.exchange(|mesh, deadline| tell(mesh, &exports, deadline))?;
    check_sizes(&all)?;
    let mapped: Result<Vec<_>> =
        pointers.iter().enumerate().map(|(item, pointer)| map(arena, &all, item, pointer)).collect();
    group.exchange(|mesh, deadline| mesh.agree("map the memory of peers", mapped, deadline))
}

fn export(arena: &Arena, pointer: &Pointer<'_>) -> Result<Export> {
    let (address, bytes) = (pointer.address, pointer.bytes);
    let device = arena.group().device();
    // SAFETY: only looked up in the runtime's tables.
    let info = unsafe { device.raw().classify(address.cast_const()) }?;
    let handle = match info.kind == POINTER_DEVICE && device.exports_plain_memory() && bytes > 0 {
        true => Some(ipc(arena, &info, address as u64)?),
        false => None,
    };
    // Threads share an address space; GPUs only what plain allocation gave them.
    let in_process = device.kind() == DeviceKind::Host || info.kind == POINTER_DEVICE;
    Ok(Export { bytes: bytes as u64, address: address as u64, in_process, device: device.ordinal(), handle })
}

fn ipc(arena: &Arena, info: &PointerInfo, address: u64) -> Result<(Vec<u8>, u64, u64)> {
    // SAFETY: `base` starts an allocation of the runtime, says `classify`.
    let handle = unsafe { arena.group().device().raw().export_ipc(info.base as *const u8) }?;
    Ok((handle.bytes.to_vec(), info.bytes, address - info.base))
}

/// Refuses exports that are not equal in number and sizes on every rank.
fn check_sizes(all: &[Vec<Export>]) -> Result<()> {
    let sizes = |exports: &[Export]| exports.iter().map(|export| export.bytes).collect::<Vec<_>>();
    let mut all = all.iter().map(|exports| sizes(exports)).enumerate();
    let Some((_, first)) = all.next() else { return Ok(()) };
    match all.find(|(_, theirs)| *theirs != first) {
        None => Ok(()),
        Some((rank, theirs)) => {
            let what = "the sizes of what is registered".to_owned();
            let words = |sizes: &[u64]| format!("{} pointers of {sizes:?} bytes", sizes.len());
            Err(Error::Mismatch { what, against: 0, ours: words(&first), rank, theirs: words(&theirs) })
        }
    }
}

/// Maps one pointer of every rank and fills its table.
fn map(arena: &Arc<Arena>, all: &[Vec<Export>], item: usize, pointer: &Pointer<'_>) -> Result<bool> {
    let group = arena.group();
    // The pairs differ, the answer must not: each rank looks at all pairs.
    let processes = group.processes();
    let reachable = |from: usize, to: usize| {
        let export = &all[to][item];
        if processes[from] == processes[to] { export.in_process } else { export.handle.is_some() }
    };
    let ranks = 0..group.world_size();
    let shared = ranks.clone().all(|from| ranks.clone().all(|to| from == to || reachable(from, to)));
    if !shared {
        return Ok(false);
    }
    let mut addresses = [std::ptr::null_mut(); MAX_WORLD_SIZE];
    let mut mappings = Vec::new();
    for (rank, exports) in all.iter().enumerate() {
        let export = &exports[item];
        addresses[rank] = match &export.handle {
            _ if rank == group.rank() => export.address as *mut u8,
            _ if processes[rank] == processes[group.rank()] => {
                group.device().raw().enable_peer(export.device)?;
                export.address as *mut u8
            }
            Some((handle, bytes, offset)) => {
                let bytes_of = |_| Error::bootstrap(format!("rank {rank} sent a handle of {} bytes", handle.len()));
                let handle = IpcHandle { bytes: handle.as_slice().try_into().map_err(bytes_of)? };
                let mapping = Memory::import_ipc(group.device(), &handle, *bytes as usize)?;
                let address = mapping.address().wrapping_add(*offset as usize);
                mappings.push(mapping);
                address
            }
            None => return Err(Error::Internal { message: format!("rank {rank}'s memory is not reachable") }),
        };
    }
    let slot = pointer.registration.slot;
    arena.attach(slot, mappings);
    arena.write_table(slot, &addresses)?;
    Ok(true)
}
