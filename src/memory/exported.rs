//! How a rank exports the allocation of a pointer, and how ranks of other processes map the allocation.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::device::{Allocation, Assembly, Device, IpcHandle, MappedPiece};
use crate::error::{Error, Result};
use crate::group::Group;

/// The most pieces of an allocation that is mapped by address ranges.
const MOST_PIECES: usize = 1024;

/// How another process maps the allocation, and the pointer's offset in it.
#[derive(Serialize, Deserialize)]
pub(super) struct ExportHandle {
    pub(super) way: ExportWay,
    pub(super) allocation_bytes: u64,
    pub(super) offset: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) enum ExportWay {
    Ipc(Vec<u8>),
    /// Offset of the allocation in a file; the file's descriptor is sent later.
    File(u64),
    /// Bytes of the pieces of physical memory, in the order of their addresses. Their descriptors are sent later, one after
    /// the other, because a process has room for few descriptors.
    Pieces(Vec<u64>),
}

impl ExportHandle {
    /// The handle of memory that is mapped by address ranges. `None` if a part has no physical memory, or if the program made
    /// a piece for this process alone.
    pub(super) fn of_pieces(device: &Device, address: u64, bytes: usize) -> Option<Self> {
        let end = address.checked_add(bytes as u64)?;
        let first = MappedPiece::at(device, address).ok()?.base();
        let (mut next, mut pieces) = (first, Vec::new());
        while next < end {
            let piece = MappedPiece::at(device, next).ok()?;
            if pieces.len() == MOST_PIECES || piece.base() != next || piece.bytes() == 0 {
                return None;
            }
            MappedPiece::export(device, next).ok()?;
            pieces.push(piece.bytes());
            next = next.checked_add(piece.bytes())?;
        }
        let (allocation_bytes, offset) = (next - first, address - first);
        (!pieces.is_empty()).then_some(Self { way: ExportWay::Pieces(pieces), allocation_bytes, offset })
    }

    /// The number of descriptors that other processes need.
    fn descriptors(&self) -> usize {
        match &self.way {
            ExportWay::Ipc(_) => 0,
            ExportWay::File(_) => 1,
            ExportWay::Pieces(pieces) => pieces.len(),
        }
    }

    /// The allocation of a rank of this process for this rank's device, if the device needs addresses of its own.
    pub(super) fn alias(&self, device: &Device, address: u64) -> Result<Option<Assembly>> {
        let ExportWay::Pieces(pieces) = &self.way else { return Ok(None) };
        let mut assembly = Assembly::new(device, self.allocation_bytes as usize)?;
        let mut base = address.wrapping_sub(self.offset);
        for bytes in pieces {
            assembly.alias(base, *bytes as usize)?;
            base += bytes;
        }
        Ok(Some(assembly))
    }
}

/// The pointer of this rank, and the file that contains the pointer's allocation.
#[derive(Clone, Copy)]
pub(super) struct OwnMemory<'a> {
    pub(super) address: u64,
    pub(super) file: Option<&'a OwnedFd>,
}

impl OwnMemory<'_> {
    /// The descriptor with a number. A rank that has no more sends an empty one, so that all ranks take part.
    fn descriptor(self, device: &Device, handle: Option<&ExportHandle>, number: usize) -> Result<OwnedFd> {
        let failed = |error| Error::system("duplicate a file descriptor", &error);
        match handle.filter(|handle| number < handle.descriptors()).map(|handle| (&handle.way, handle.offset)) {
            Some((ExportWay::File(_), _)) if self.file.is_some() => {
                self.file.map_or_else(nothing, |file| file.as_fd().try_clone_to_owned().map_err(failed))
            }
            Some((ExportWay::Pieces(pieces), offset)) => {
                let before: u64 = pieces.iter().take(number).sum();
                MappedPiece::export(device, self.address.wrapping_sub(offset).wrapping_add(before))
            }
            _ => nothing(),
        }
    }
}

/// A descriptor without memory.
fn nothing() -> Result<OwnedFd> {
    let path = "/dev/null";
    File::open(path).map(OwnedFd::from).map_err(|error| Error::system(format!("open {path}"), &error))
}

/// The memory of a rank as the exchange of descriptors brought it.
pub(super) enum Brought {
    /// No descriptor is needed.
    Nothing,
    File(OwnedFd),
    Pieces(Result<Assembly>),
}

/// Exchanges the descriptors of one pointer of every rank, if some rank is another process. Collective. Either all ranks take
/// part or none does: the decision depends only on exchanged data. A rank that fails takes part to the end.
pub(super) fn bring(group: &Group, handles: &[Option<&ExportHandle>], own: OwnMemory<'_>) -> Result<Vec<Brought>> {
    let mut brought: Vec<_> = handles.iter().map(|_| Brought::Nothing).collect();
    let rounds = handles.iter().flatten().map(|handle| handle.descriptors()).max().unwrap_or(0);
    if group.is_one_process() {
        return Ok(brought);
    }
    let own_handle = handles.get(group.rank()).copied().flatten();
    let mut failure = None;
    for round in 0..rounds {
        let own = own.descriptor(group.device(), own_handle, round).or_else(|error| {
            failure.get_or_insert(error);
            nothing()
        })?;
        let descriptors = group.exchange(|mesh, deadline| mesh.all_gather_fds(own.as_fd(), deadline))?;
        for ((brought, handle), descriptor) in brought.iter_mut().zip(handles).zip(descriptors) {
            let (Some(handle), Some(descriptor)) = (handle, descriptor) else { continue };
            take(group.device(), brought, handle, descriptor, round);
        }
    }
    match failure {
        None => Ok(brought),
        Some(error) => Err(error),
    }
}

/// Takes the descriptor of a round from a rank.
fn take(device: &Device, brought: &mut Brought, handle: &ExportHandle, descriptor: OwnedFd, round: usize) {
    match &handle.way {
        ExportWay::File(_) if round == 0 => *brought = Brought::File(descriptor),
        ExportWay::Pieces(pieces) => {
            let Some(bytes) = pieces.get(round) else { return };
            if round == 0 {
                *brought = Brought::Pieces(Assembly::new(device, handle.allocation_bytes as usize));
            }
            if let Brought::Pieces(Ok(assembly)) = brought
                && let Err(error) = assembly.add(descriptor, *bytes as usize)
            {
                *brought = Brought::Pieces(Err(error));
            }
        }
        ExportWay::File(_) | ExportWay::Ipc(_) => {}
    }
}

/// The mapped allocation of a rank of another process.
pub(super) enum MappedExport {
    Whole(Allocation),
    Pieces(Assembly),
}

impl MappedExport {
    pub(super) fn new(group: &Group, rank: usize, handle: &ExportHandle, brought: Brought) -> Result<Self> {
        let (device, bytes) = (group.device(), handle.allocation_bytes as usize);
        match (&handle.way, brought) {
            (ExportWay::Ipc(native), _) => {
                let bytes_of = |_| Error::bootstrap(format!("rank {rank} sent a handle of {} bytes", native.len()));
                let native = IpcHandle { bytes: native.as_slice().try_into().map_err(bytes_of)? };
                Allocation::import_ipc(device, &native, bytes).map(Self::Whole)
            }
            (ExportWay::File(start), Brought::File(file)) => {
                Allocation::import_file(device, file, *start, bytes).map(Self::Whole)
            }
            (ExportWay::Pieces(_), Brought::Pieces(assembly)) => assembly.map(Self::Pieces),
            (ExportWay::File(_) | ExportWay::Pieces(_), _) => {
                Err(Error::bootstrap(format!("rank {rank} sent no descriptor of its memory")))
            }
        }
    }

    pub(super) fn address(&self) -> *mut u8 {
        match self {
            Self::Whole(memory) => memory.address(),
            Self::Pieces(assembly) => assembly.address(),
        }
    }
}
