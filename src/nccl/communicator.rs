//! One rank of an NCCL communicator, and its operations.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use cudarc::driver::{CudaContext, DriverError};
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t};

use super::library::{Library, UniqueId};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// As the header numbers it.
fn operation(reduction: Reduction) -> i32 {
    (match reduction {
        Reduction::Sum => ncclRedOp_t::ncclSum,
        Reduction::Product => ncclRedOp_t::ncclProd,
        Reduction::Min => ncclRedOp_t::ncclMin,
        Reduction::Max => ncclRedOp_t::ncclMax,
        Reduction::Average => ncclRedOp_t::ncclAvg,
    }) as i32
}

fn number(dtype: Dtype) -> i32 {
    (match dtype {
        Dtype::F32 => ncclDataType_t::ncclFloat32,
        Dtype::F64 => ncclDataType_t::ncclFloat64,
        Dtype::F16 => ncclDataType_t::ncclFloat16,
        Dtype::BF16 => ncclDataType_t::ncclBfloat16,
        Dtype::I32 => ncclDataType_t::ncclInt32,
        Dtype::I64 => ncclDataType_t::ncclInt64,
        Dtype::I8 => ncclDataType_t::ncclInt8,
        Dtype::U8 => ncclDataType_t::ncclUint8,
        Dtype::U32 => ncclDataType_t::ncclUint32,
        Dtype::U64 => ncclDataType_t::ncclUint64,
    }) as i32
}

/// One rank of an NCCL communicator. Dropped, it is aborted; [`close`](Self::close) is the orderly way.
///
/// Operations enqueue on a stream of the rank's device, also while that is captured, and return.
/// Sums are rounded as NCCL pleases: neither bits nor order are promised.
pub struct Communicator(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) library: Library,
    comm: ncclComm_t,
    context: Arc<CudaContext>,
    ended: AtomicBool,
    rank: usize,
    world_size: usize,
}

// SAFETY: NCCL allows any thread to use a communicator, one at a time; operations take `&self` under
// the caller's promise of the unsafe functions, which name that duty.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A communicator on its way out of the thread that made it.
struct Made(ncclComm_t);
// SAFETY: as for `Inner`.
unsafe impl Send for Made {}

pub(super) fn driver_error(call: &str) -> impl FnOnce(DriverError) -> Error {
    move |error| Error::Device { code: error.0 as i64, message: format!("{call}: {error}") }
}

impl Communicator {
    /// Joins the other ranks with the same `id`. Collective; blocks.
    ///
    /// The calls that follow are blocking ones in NCCL's sense, which is what it can capture; so it is
    /// made in a thread of its own, which is left behind when `limit` passes first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the world, [`Error::Unsupported`] for a device that
    /// is no GPU, [`Error::Timeout`] when the others do not come, [`Error::Nccl`].
    pub fn init(
        library: &Library,
        device: &Device,
        rank: usize,
        world_size: usize,
        id: UniqueId,
        limit: Duration,
    ) -> Result<Self> {
        if device.kind() != DeviceKind::Cuda {
            return Err(Error::unsupported(format!("NCCL on {device:?}"), "it works on NVIDIA GPUs only"));
        }
        if rank >= world_size {
            return Err(Error::invalid("rank", rank, format!("the world size is {world_size}")));
        }
        let size = |what: &str, value: usize| {
            i32::try_from(value).map_err(|_| Error::invalid(what, value, "it must fit an i32"))
        };
        let (own, ranks) = (size("rank", rank)?, size("the world size", world_size)?);
        let context = CudaContext::new(device.ordinal().unsigned_abs() as usize);
        let context = context.map_err(driver_error("retain the primary context"))?;
        let (sender, made) = mpsc::channel();
        let (theirs, bound) = (library.clone(), context.clone());
        let join = move || {
            let made = bound.bind_to_thread().map_err(driver_error("make the context current")).and_then(|()| {
                let mut comm = std::ptr::null_mut();
                // SAFETY: writes the one handle; the context of the rank's device is current.
                let code = unsafe { (theirs.symbols().ncclCommInitRank)(&raw mut comm, ranks, id.0, own) };
                theirs.check("ncclCommInitRank", code, std::ptr::null_mut()).map(|()| Made(comm))
            });
            if let Err(mpsc::SendError(Ok(late))) = sender.send(made) {
                // SAFETY: made a moment ago and known to nobody else.
                unsafe { (theirs.symbols().ncclCommAbort)(late.0) };
            }
        };
        let thread = std::thread::Builder::new().name("symmetra-nccl".to_owned()).spawn(join);
        thread.map_err(|error| Error::system("start a thread", &error))?;
        let comm = match made.recv_timeout(limit) {
            Ok(made) => made?.0,
            Err(_) => return Err(Error::exchange_timeout(None, limit, "to open an NCCL communicator")),
        };
        let library = library.clone();
        Ok(Self(Arc::new(Inner { library, comm, context, ended: AtomicBool::new(false), rank, world_size })))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> usize {
        self.0.world_size
    }

    /// The library it is of.
    pub fn library(&self) -> &Library {
        &self.0.library
    }

    /// Whether all is well with what was enqueued so far.
    ///
    /// # Errors
    /// [`Error::Nccl`] with what went wrong.
    pub fn check(&self) -> Result<()> {
        let mut state = 0;
        // SAFETY: the communicator is live; writes the one number.
        let code = unsafe { (self.0.library.symbols().ncclCommGetAsyncError)(self.0.comm, &raw mut state) };
        self.0.check("ncclCommGetAsyncError", code)?;
        self.0.check("an operation", state)
    }

    /// Leaves in good order: waits for its operations. Collective; blocks. Windows must be gone.
    ///
    /// # Errors
    /// [`Error::Nccl`]; [`Error::Unsupported`] while a window is left, and then it is aborted by that.
    pub fn close(self) -> Result<()> {
        let inner = Arc::try_unwrap(self.0)
            .map_err(|_| Error::unsupported("to close an NCCL communicator", "a window of it is still there"))?;
        inner.bind()?;
        inner.ended.store(true, Ordering::Relaxed);
        // SAFETY: the last use; `ended` keeps `drop` from another.
        let code = unsafe { (inner.library.symbols().ncclCommDestroy)(inner.comm) };
        inner.library.check("ncclCommDestroy", code, std::ptr::null_mut())
    }

    /// Enqueues a reduction of `elems` elements of every rank into every rank.
    ///
    /// # Safety
    /// For this and the other operations: both addresses have room for what is named, in memory of this
    /// rank's device, until the stream, also of this device, has done the work; all ranks make the same
    /// calls in the same order; no other thread uses the communicator meanwhile.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub unsafe fn all_reduce(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclAllReduce;
        let (dtype, op) = (number(dtype), operation(reduction));
        // SAFETY: the caller's promise; the communicator is live.
        self.0.enqueue("ncclAllReduce", || unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, self.0.comm, raw(stream))
        })
    }

    /// Enqueues a reduction of which every rank receives its `elems` elements; `from` has so many for each.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub unsafe fn reduce_scatter(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclReduceScatter;
        let (dtype, op) = (number(dtype), operation(reduction));
        // SAFETY: as in `all_reduce`.
        self.0.enqueue("ncclReduceScatter", || unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, self.0.comm, raw(stream))
        })
    }

    /// Enqueues a gather of `elems` elements of every rank, in order, into `to` of every rank.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub unsafe fn all_gather(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclAllGather;
        let dtype = number(dtype);
        // SAFETY: as in `all_reduce`.
        self.0.enqueue("ncclAllGather", || unsafe {
            call(from.cast(), to.cast(), elems, dtype, self.0.comm, raw(stream))
        })
    }

    /// Enqueues a copy of `root`'s `elems` elements at `from` into `to` of every rank.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root there is not; [`Error::Nccl`].
    pub unsafe fn broadcast(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclBroadcast;
        let (dtype, root) = (number(dtype), self.0.peer("root", root)?);
        // SAFETY: as in `all_reduce`.
        self.0.enqueue("ncclBroadcast", || unsafe {
            call(from.cast(), to.cast(), elems, dtype, root, self.0.comm, raw(stream))
        })
    }

    /// Enqueues a message to `peer`, which receives it. Inside [`group`](Self::group) several of them run at once.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce), where the calls of a pair correspond.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer there is not; [`Error::Nccl`].
    pub unsafe fn send(&self, from: *const u8, elems: usize, dtype: Dtype, peer: usize, stream: &Stream) -> Result<()> {
        let call = self.0.library.symbols().ncclSend;
        let (dtype, peer) = (number(dtype), self.0.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.enqueue("ncclSend", || unsafe { call(from.cast(), elems, dtype, peer, self.0.comm, raw(stream)) })
    }

    /// Enqueues the receipt of a message that `peer` sends.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub unsafe fn recv(&self, to: *mut u8, elems: usize, dtype: Dtype, peer: usize, stream: &Stream) -> Result<()> {
        let call = self.0.library.symbols().ncclRecv;
        let (dtype, peer) = (number(dtype), self.0.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.enqueue("ncclRecv", || unsafe { call(to.cast(), elems, dtype, peer, self.0.comm, raw(stream)) })
    }

    /// Makes the operations that `calls` enqueues one; the group is closed also when it fails.
    ///
    /// # Errors
    /// That of `calls`, else [`Error::Nccl`].
    pub fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        let symbols = self.0.library.symbols();
        // SAFETY: opens a group of this thread, closed below.
        self.0.enqueue("ncclGroupStart", || unsafe { (symbols.ncclGroupStart)() })?;
        let called = calls();
        // SAFETY: one was opened.
        let ended = self.0.enqueue("ncclGroupEnd", || unsafe { (symbols.ncclGroupEnd)() });
        called.and(ended)
    }
}

/// The stream as NCCL takes it.
fn raw(stream: &Stream) -> *mut c_void {
    stream.as_raw() as *mut c_void
}

impl Inner {
    pub(super) fn comm(&self) -> ncclComm_t {
        self.comm
    }

    /// Makes the device the calling thread's own: NCCL works on the current one.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(driver_error("make the context current"))
    }

    pub(super) fn check(&self, call: &str, code: i32) -> Result<()> {
        self.library.check(call, code, self.comm)
    }

    fn enqueue(&self, name: &str, call: impl FnOnce() -> i32) -> Result<()> {
        self.bind()?;
        self.check(name, call())
    }

    fn peer(&self, what: &str, rank: usize) -> Result<i32> {
        match i32::try_from(rank) {
            Ok(peer) if rank < self.world_size => Ok(peer),
            _ => Err(Error::invalid(what, rank, format!("the world size is {}", self.world_size))),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        let aborted = self.bind().and_then(|()| {
            // SAFETY: the last use.
            let code = unsafe { (self.library.symbols().ncclCommAbort)(self.comm) };
            self.library.check("ncclCommAbort", code, std::ptr::null_mut())
        });
        if let Err(error) = aborted {
            tracing::warn!(rank = self.rank, %error, "an NCCL communicator does not end");
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Communicator(NCCL {}, rank {} of {})", self.library().version(), self.rank(), self.world_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!([Dtype::I32, Dtype::F16, Dtype::F32, Dtype::F64, Dtype::BF16].map(number), [2, 6, 7, 8, 9]);
        assert_eq!([Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Average].map(operation), [0, 2, 3, 4]);
    }
}
