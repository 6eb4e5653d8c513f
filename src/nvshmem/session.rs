//! The life of a session: NVSHMEM is initialised with the ranks of a communicator, and ended.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::buffer::Buffer;
use super::calls::CallThread;
use super::heap::Heap;
use super::library::{INIT_WITH_UNIQUE_ID, InitAttr, Library, ShmemUniqueId, succeed};
use super::mapped::Mapped;
use super::process::{self, Claim};
use crate::bootstrap::hello::tell;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::memory::{Adopted, Ref};
use crate::types::Element;
use crate::variables::{NVSHMEM_DISABLE_NVLS, optional};

/// NVSHMEM with the ranks of a communicator. Usable from any thread.
///
/// The session keeps the communicator alive. Close the session before the communicator. After an error that leaves the
/// ranks' heaps in different states, or a lost rank, NVSHMEM is given up: later calls of the process return an error
/// without calling it.
///
/// A session takes device memory that [`required_bytes`](crate::required_bytes) does not count: the buffers
/// ([`memory_bytes`](Self::memory_bytes)), and the memory that NVSHMEM reserves for its heap and its own use.
pub struct Session(Arc<Heap>);

impl Session {
    /// Initialises NVSHMEM with the ranks of `communicator`. Collective; blocks. `library` is this rank's result of
    /// loading; a rank without a library takes part too, to report the error.
    ///
    /// # Errors
    /// Before NVSHMEM is called: the error of `library`; [`Error::Unsupported`] if two ranks are threads of one
    /// process, if `NVSHMEM_DISABLE_NVLS` is not 1, if NVSHMEM is initialised already, and in a process whose NVSHMEM
    /// was given up or has an open session; [`Error::Mismatch`] for different versions. The other ranks get
    /// [`Error::Peer`].
    ///
    /// After that: [`Error::Device`] with the code of an NVSHMEM call; [`Error::Timeout`] past `deadlines.open`;
    /// [`Error::PeerLost`]. NVSHMEM is given up in this process in these cases.
    pub fn open(library: Result<Library>, communicator: &Communicator) -> Result<Self> {
        let group = communicator.group();
        let own = admitted(library, group).and_then(|library| {
            let claim = Claim::open()?;
            if library.is_initialised() {
                let reason = "it is initialised in this process already: a session joins it";
                return Err(Error::unsupported("to initialise NVSHMEM", reason));
            }
            Ok((CallThread::new(&library, communicator)?, claim))
        });
        let (calls, claim) = met(group, "open NVSHMEM", own)?;
        let id = exchange_id(&calls)?;
        let (rank, ranks) = (group.rank() as i32, group.world_size() as i32);
        calls.together("nvshmemx_hostlib_init_attr", move |symbols| {
            let mut attr = InitAttr::empty();
            let set = symbols.nvshmemx_set_attr_uniqueid_args;
            // SAFETY: writes the attribute, which keeps the address of the id; both outlive the initialisation.
            succeed("nvshmemx_set_attr_uniqueid_args", unsafe { set(rank, ranks, &raw const id, &raw mut attr) })?;
            // SAFETY: the attribute is complete; NVSHMEM is not initialised.
            let code = unsafe { (symbols.nvshmemx_hostlib_init_attr)(INIT_WITH_UNIQUE_ID, &raw mut attr) };
            succeed("nvshmemx_hostlib_init_attr", code)
        })?;
        Self::over(calls, claim)
    }

    /// A session over an NVSHMEM that the program, or another session, has initialised. Collective; blocks. The ranks
    /// of the communicator may be any of the processing elements, in any order. The session does not end NVSHMEM; close
    /// the session before NVSHMEM is ended. If the communicator does not have all processing elements, the session can
    /// only [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::Unsupported`] if NVSHMEM is not initialised, and if two ranks are
    /// the same processing element, which happens if they belong to two worlds of NVSHMEM.
    pub fn join(library: Result<Library>, communicator: &Communicator) -> Result<Self> {
        let group = communicator.group();
        let own = admitted(library, group).and_then(|library| {
            if !library.is_initialised() {
                let reason = "it is not initialised in this process: a session opens it";
                return Err(Error::unsupported("to join NVSHMEM", reason));
            }
            Ok((CallThread::new(&library, communicator)?, Claim::join()?))
        });
        let (calls, claim) = met(group, "join NVSHMEM", own)?;
        Self::over(calls, claim)
    }

    /// A session over an initialised NVSHMEM. Collective.
    fn over(calls: CallThread, claim: Claim) -> Result<Self> {
        let found = calls.run("nvshmem_my_pe", |symbols| {
            // SAFETY: NVSHMEM is initialised.
            let own = unsafe { (symbols.nvshmem_my_pe)() };
            // SAFETY: as above.
            let all = unsafe { (symbols.nvshmem_n_pes)() };
            Ok((own, all))
        });
        let group = calls.group();
        let found = group.exchange(|mesh, deadline| mesh.agree("count processing elements", found, deadline));
        let told = found.and_then(|found| {
            group.exchange(|mesh, deadline| tell(mesh, "to number processing elements", &found, deadline))
        });
        let told = told.map_err(|error| calls.give_up(error))?;
        let all = told.first().map_or(0, |(_, all)| *all);
        if let Some((rank, (_, theirs))) = told.iter().enumerate().find(|(_, (_, theirs))| *theirs != all) {
            let (ours, theirs) = (all.to_string(), theirs.to_string());
            let what = "the number of NVSHMEM's processing elements".to_owned();
            return Err(Error::Mismatch { what, against: 0, ours, rank, theirs });
        }
        let pes: Vec<i32> = told.into_iter().map(|(pe, _)| pe).collect();
        let twice = pes.iter().enumerate().find_map(|(rank, pe)| {
            let first = pes.iter().position(|other| other == pe).filter(|first| *first < rank)?;
            Some(format!("ranks {first} and {rank} are both processing element {pe}"))
        });
        if let Some(reason) = twice {
            return Err(Error::unsupported("a session over two worlds of NVSHMEM", reason));
        }
        Ok(Self(Arc::new(Heap::new(calls, claim, all as usize, pes))))
    }

    /// Allocates `len` elements of symmetric memory on every rank, contents undefined, and frees the blocks that every
    /// rank has dropped. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks request different sizes. [`Error::OutOfMemory`] if the allocation fails on every
    /// rank. [`Error::Unsupported`], equal on every rank, if a rank cannot address another rank's memory, and if
    /// NVSHMEM has other processing elements than these ranks. Nothing is allocated in these cases, and the session
    /// continues.
    ///
    /// [`Error::Timeout`], [`Error::PeerLost`], and an allocation that failed only on some ranks
    /// ([`Error::OutOfMemory`], [`Error::Peer`] on the others) end the session.
    pub fn symmetric<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(&self.0, len)
    }

    /// Registers memory that NVSHMEM allocated elsewhere, such as DeepEP's or PyTorch's, so that collectives access it
    /// directly. All ranks register memory of one length and type. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for memory that is not entirely in NVSHMEM's heap, with [`Error::Peer`] on the other
    /// ranks. [`Error::Unsupported`], equal on every rank, if a rank cannot address another rank's memory. The errors
    /// of [`Communicator::adopt_mapped`].
    ///
    /// # Safety
    /// The memory is the same symmetric object of NVSHMEM on every rank, from the same element on. It stays allocated
    /// until every rank has dropped the result, and until all devices are idle after that.
    pub unsafe fn adopt<'a, T: Element>(&self, memory: Ref<'a, T>) -> Result<Adopted<'a, T>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.adopt(memory) }
    }

    /// Maps the heap of `communicator`, whose ranks are those of the session, into NVSHMEM's, for kernels that call
    /// NVSHMEM's device functions on symmetric buffers. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a library without such a function, and for memory of the communicator that is not a
    /// multiple of `NVSHMEM_CUMEM_GRANULARITY` (512 MiB if unset; `symmetra launch --nvshmem` sets 2 MiB);
    /// [`Error::Mismatch`] for heaps of other sizes. NVSHMEM is not called in these cases. [`Error::Unsupported`] if
    /// NVSHMEM refuses the memory, which ends the session. The errors of [`symmetric`](Self::symmetric) for a call that
    /// fails on some ranks, or does not end.
    pub fn map(&self, communicator: &Communicator) -> Result<Mapped> {
        Mapped::new(&self.0, communicator)
    }

    /// Frees the memory that every rank has dropped. Collective; blocks.
    ///
    /// # Errors
    /// The error that ended the session; [`Error::Timeout`], [`Error::PeerLost`].
    pub fn reclaim(&self) -> Result<()> {
        self.0.reclaim()
    }

    /// The bytes of this rank's buffers that are not freed yet.
    pub fn memory_bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Frees all memory and ends NVSHMEM. Collective; blocks. After a failure of the group or the session, NVSHMEM is
    /// not called.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while a rank has buffers of the session, with [`Error::Peer`] on ranks without: the
    /// session continues, and can be closed later. [`Error::Closed`] if the session is closed. The error that ended the
    /// session or the group; [`Error::Timeout`], [`Error::PeerLost`].
    pub fn close(&self) -> Result<()> {
        let heap = &self.0;
        heap.calls.check()?;
        let free = match heap.in_use() {
            0 => heap.claim.check_alone(),
            some => Err(Error::unsupported(
                "to close a session of NVSHMEM",
                format!("buffers of it are still there: {some}"),
            )),
        };
        let group = heap.calls.group();
        group.exchange(|mesh, deadline| mesh.agree("close a session of NVSHMEM", free, deadline))?;
        heap.reclaim()?;
        if heap.claim.opened() {
            heap.calls.together("nvshmemx_hostlib_finalize", |symbols| {
                // SAFETY: NVSHMEM is initialised, all ranks end it, and none of its resources is in use.
                unsafe { (symbols.nvshmemx_hostlib_finalize)() };
                Ok(())
            })?;
        }
        heap.calls.close();
        heap.claim.give_back();
        Ok(())
    }
}

/// The conditions that this rank can check by itself.
fn admitted(library: Result<Library>, group: &Group) -> Result<Library> {
    group.device().check_process("NVSHMEM")?;
    let shared = group.processes().iter().enumerate().find(|(rank, first)| rank != *first);
    if let Some((rank, first)) = shared {
        let reason =
            format!("ranks {first} and {rank} are threads of one process, but NVSHMEM serves one rank a process");
        return Err(Error::unsupported("NVSHMEM", reason));
    }
    let set = optional(NVSHMEM_DISABLE_NVLS)?;
    if set.as_deref() != Some("1") {
        let set = set.map_or_else(|| "unset".to_owned(), |set| format!("`{set}`"));
        let reason = format!("{NVSHMEM_DISABLE_NVLS} is {set}, and must be 1: NVSHMEM would use NVLink multicast");
        return Err(Error::unsupported("NVSHMEM", reason));
    }
    process::check()?;
    library
}

/// Agrees that every rank is ready, with one version of the library.
fn met(group: &Group, what: &str, own: Result<(CallThread, Claim)>) -> Result<(CallThread, Claim)> {
    let (calls, claim) = group.exchange(|mesh, deadline| mesh.agree(what, own, deadline))?;
    let version = calls.library.version().to_string();
    let all = group.exchange(|mesh, deadline| tell(mesh, &format!("to {what}"), &version, deadline))?;
    match all.iter().enumerate().find(|(_, theirs)| **theirs != all[0]) {
        None => Ok((calls, claim)),
        Some((rank, theirs)) => {
            let (ours, theirs) = (all[0].clone(), theirs.clone());
            Err(Error::Mismatch { what: "the version of NVSHMEM".to_owned(), against: 0, ours, rank, theirs })
        }
    }
}

/// Returns on all ranks the id that rank 0 creates. Collective.
fn exchange_id(calls: &CallThread) -> Result<ShmemUniqueId> {
    let group = calls.group();
    let own = match group.rank() {
        0 => calls.run("nvshmemx_get_uniqueid", |symbols| {
            let mut id = ShmemUniqueId::empty();
            // SAFETY: writes one id.
            succeed("nvshmemx_get_uniqueid", unsafe { (symbols.nvshmemx_get_uniqueid)(&raw mut id) })?;
            id.check_version()?;
            Ok(id.to_bytes())
        }),
        _ => Ok(Vec::new()),
    };
    let all = group
        .exchange(|mesh, deadline| mesh.agree("make an id of NVSHMEM", own, deadline))
        .and_then(|own| group.all_gather_bytes(&own))
        .map_err(|error| calls.give_up(error))?;
    let id = all.first().and_then(|id| ShmemUniqueId::from_bytes(id));
    id.ok_or_else(|| Error::bootstrap("rank 0 sent no id of NVSHMEM"))
}

impl Drop for Session {
    fn drop(&mut self) {
        let heap = &self.0;
        if !heap.calls.group().device().is_here() || heap.calls.has_ended() {
            return;
        }
        if !heap.claim.opened() {
            if heap.bytes() > 0 {
                crate::log!(
                    WARN,
                    "{} bytes of NVSHMEM are leaked: a session was dropped without close()",
                    heap.bytes()
                );
            }
            return;
        }
        heap.calls.give_up(Error::unsupported("NVSHMEM", "its session was dropped without close()"));
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Session({:?})", self.0.calls)
    }
}
