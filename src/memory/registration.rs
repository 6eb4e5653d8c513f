//! Registration: exchanges pointers of all ranks. Each pointer is classified before it is exported. The export contains
//! the base of the allocation and the pointer's offset.
#![allow(unsafe_code)]

use std::fmt::{self, Display, Formatter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::owner::{Borrowed, Offer, Owner, offered};
use crate::bootstrap::hello::tell;
use crate::device::{DeviceKind, IpcHandle, Memory, POINTER_DEVICE, POINTER_FILE, PointerInfo};
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
    handle: Option<Handle>,
}

/// How another process maps the allocation, and the pointer's offset in it.
#[derive(Serialize, Deserialize)]
struct Handle {
    way: Way,
    allocation_bytes: u64,
    offset: u64,
}

#[derive(Serialize, Deserialize)]
enum Way {
    Ipc(Vec<u8>),
    /// Offset of the allocation in a file; the file's descriptor is sent later.
    File(u64),
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
struct Told {
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
    let own = Told { exports, uses: uses.to_vec(), borrowed: arena.borrowed() };
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
    let mut files = Vec::new();
    for (item, own_file) in own_files.iter().enumerate() {
        files.push(match shared[item] {
            true => exchange_files(group, &all, item, own_file.as_ref())?,
            false => Vec::new(),
        });
    }
    let items = pointers.iter().zip(files).enumerate();
    let mapped: Result<()> = items
        .filter(|(item, _)| shared[*item])
        .try_for_each(|(item, (pointer, files))| map(arena, &all, item, pointer, files));
    group.exchange(|mesh, deadline| mesh.agree("map the memory of peers", mapped, deadline))?;
    Ok(shared)
}

fn export(arena: &Arena, pointer: &Pointer<'_>) -> Result<Exported> {
    let (address, bytes) = (pointer.address, pointer.bytes);
    let device = arena.group().device();
    // SAFETY: the runtime only looks the address up in its tables.
    let info = unsafe { device.raw()?.classify(address.cast_const()) }.caught()?;
    let (way, file) = match info.kind {
        POINTER_DEVICE if device.exports_plain_memory() && bytes > 0 => (Some(Way::Ipc(ipc(arena, &info)?)), None),
        POINTER_FILE if bytes > 0 => {
            let (file, start) = Memory::export_file(device, info.base)?;
            (Some(Way::File(start)), Some(file))
        }
        _ => (None, None),
    };
    let handle =
        way.map(|way| Handle { way, allocation_bytes: info.bytes, offset: (address as u64).wrapping_sub(info.base) });
    // Threads share an address space, but GPUs can access only memory of plain allocations.
    let in_process = device.kind() == DeviceKind::Host || info.kind == POINTER_DEVICE;
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

/// The files, by rank, that contain one pointer of every rank, if some rank is another process. Collective. Either all
/// ranks take part or none does: the decision depends only on exchanged data.
fn exchange_files(
    group: &Group,
    all: &[Vec<Export>],
    item: usize,
    own: Option<&OwnedFd>,
) -> Result<Vec<Option<OwnedFd>>> {
    let in_file = |exports: &Vec<Export>| matches!(&exports[item].handle, Some(Handle { way: Way::File(_), .. }));
    match own {
        Some(own) if all.iter().all(in_file) && !group.is_one_process() => {
            group.exchange(|mesh, deadline| mesh.all_gather_fds(own.as_fd(), deadline))
        }
        _ => Ok(Vec::new()),
    }
}

/// Maps one shared pointer of every rank and fills its table.
fn map(
    arena: &Arc<Arena>,
    all: &[Vec<Export>],
    item: usize,
    pointer: &Pointer<'_>,
    files: Vec<Option<OwnedFd>>,
) -> Result<()> {
    let group = arena.group();
    let processes = group.processes();
    let mut files: Vec<_> = files.into_iter().chain(std::iter::repeat_with(|| None)).take(all.len()).collect();
    let mut addresses = [std::ptr::null_mut(); MAX_WORLD_SIZE];
    let mut keep = Vec::new();
    for (rank, exports) in all.iter().enumerate() {
        let export = &exports[item];
        addresses[rank] = match &export.handle {
            _ if rank == group.rank() => export.address as *mut u8,
            _ if processes[rank] == processes[group.rank()] => {
                group.device().raw()?.enable_peer(export.device).caught()?;
                if export.token != 0 {
                    let gone = || Error::PeerLost { rank, detail: ": its memory is gone".to_owned() };
                    keep.push(Borrowed { from: (rank, export.token), _owner: offered(export.token).ok_or_else(gone)? });
                }
                export.address as *mut u8
            }
            Some(handle) => {
                let mapping = import(group, rank, handle, files[rank].take())?;
                let address = mapping.address().wrapping_add(handle.offset as usize);
                keep.push(Borrowed { from: (rank, export.token), _owner: Arc::new(mapping) });
                address
            }
            None => return Err(Error::internal(format!("rank {rank}'s memory is not reachable"))),
        };
    }
    let slot = pointer.registration.slot;
    arena.attach(slot, keep);
    arena.write_table(slot, &addresses)
}

fn import(group: &Group, rank: usize, handle: &Handle, file: Option<OwnedFd>) -> Result<Memory> {
    let bytes = handle.allocation_bytes as usize;
    match (&handle.way, file) {
        (Way::Ipc(native), _) => {
            let bytes_of = |_| Error::bootstrap(format!("rank {rank} sent a handle of {} bytes", native.len()));
            let native = IpcHandle { bytes: native.as_slice().try_into().map_err(bytes_of)? };
            Memory::import_ipc(group.device(), &native, bytes)
        }
        (Way::File(start), Some(file)) => Memory::import_file(group.device(), file, *start, bytes),
        (Way::File(_), None) => Err(Error::bootstrap(format!("rank {rank} sent no descriptor of its memory"))),
    }
}
