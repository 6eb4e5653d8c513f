//! One rank of an NCCL communicator, and its operations.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

use super::library::Library;
use super::session::Session;
use crate::device::Device;
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
/// Sums are rounded as NCCL pleases: neither bits nor order are promised. Minima and maxima of floating types lose
/// NaN, and averages of integers wrap as their sums do. Calls of several threads follow each other.
///
/// An error that says more than that a call was refused ends it: it is aborted, so that the ranks that wait
/// for this one learn it, and all later calls give the same error.
pub struct Communicator(pub(super) Arc<Session>);

impl Communicator {
    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.place.rank
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> usize {
        self.0.place.world_size
    }

    /// The library it is of.
    pub fn library(&self) -> &Library {
        &self.0.library
    }

    /// Whether all is well with what was enqueued so far, here and, where NCCL has noticed, elsewhere. Does
    /// not block; to be asked now and then while work is awaited, which may never end otherwise:
    /// [`synchronize`](Self::synchronize) does.
    ///
    /// # Errors
    /// [`Error::Nccl`] with what went wrong, or what ended it before.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Blocks until all work of `stream` is done, for at most `limit`: a kernel of NCCL's waits for lost ranks
    /// for good. Meanwhile it asks NCCL, and `well` for what else is known of the ranks.
    ///
    /// # Errors
    /// That of `well`; [`Error::Nccl`]; [`Error::Device`]; what `late` makes of the time that was waited. By
    /// any of them it has been aborted, so that the stream comes free.
    pub fn synchronize(
        &self,
        stream: &Stream,
        limit: Duration,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Duration) -> Error,
    ) -> Result<()> {
        self.0.watch(limit, || stream.is_done(), well, late)
    }

    /// Ends it at once: what it has enqueued ends with undefined results, and later calls fail with
    /// [`Error::Aborted`]. Does nothing after its end.
    pub fn abort(&self) {
        self.0.abort(Error::Aborted { detail: ": by this rank, in NCCL".to_owned() });
    }

    /// Leaves in good order: waits for its operations. Collective; blocks. Windows must be gone, and graphs that
    /// hold its operations: NCCL waits for the end of these too.
    ///
    /// # Errors
    /// [`Error::Nccl`], [`Error::Timeout`], or what ended it before; [`Error::Unsupported`] while a window is
    /// left. It is aborted by any of them.
    pub fn close(self) -> Result<()> {
        if Arc::strong_count(&self.0) > 1 {
            self.abort();
            return Err(Error::unsupported("to close an NCCL communicator", "a window of it is still there"));
        }
        self.finish()
    }

    /// As [`close`](Self::close), where no window was made.
    pub(crate) fn finish(&self) -> Result<()> {
        self.0.finish()
    }

    /// The same where graphs of any rank may hold its operations, when those of all ranks are done: ends it by abort,
    /// which goes on for as long as graphs do, and is waited for a moment.
    pub(crate) fn leave(&self) -> Result<()> {
        match self.0.abort(Error::Closed) {
            Error::Closed => Ok(()),
            error => Err(error),
        }
    }

    /// Enqueues a reduction of `elems` elements of every rank into every rank.
    ///
    /// # Safety
    /// For this and the other operations: both addresses have room for what is named, in memory of this
    /// rank's device, until the stream, also of this device, has done the work; all ranks make the same
    /// calls in the same order.
    ///
    /// # Errors
    /// [`Error::Nccl`], [`Error::Timeout`] when ranks that have to connect for it do not come, or what ended
    /// the communicator before.
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
        self.0
            .call("ncclAllReduce", |comm| unsafe { call(from.cast(), to.cast(), elems, dtype, op, comm, raw(stream)) })
    }

    /// Enqueues a reduction of which every rank receives its `elems` elements; `from` has so many for each.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
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
        self.0.call("ncclReduceScatter", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, comm, raw(stream))
        })
    }

    /// Enqueues a gather of `elems` elements of every rank, in order, into `to` of every rank.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
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
        self.0.call("ncclAllGather", |comm| unsafe { call(from.cast(), to.cast(), elems, dtype, comm, raw(stream)) })
    }

    /// Enqueues a reduction of `elems` elements of every rank into `to` of the rank that is named with it; the
    /// others' is not touched and may be null.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root there is not; as [`all_reduce`](Self::all_reduce).
    pub unsafe fn reduce(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        (reduction, root): (Reduction, usize),
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclReduce;
        let (dtype, op, root) = (number(dtype), operation(reduction), self.peer("root", root)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclReduce", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, root, comm, raw(stream))
        })
    }

    /// Enqueues a copy of `root`'s `elems` elements at `from` into `to` of every rank.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root there is not; as [`all_reduce`](Self::all_reduce).
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
        let (dtype, root) = (number(dtype), self.peer("root", root)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclBroadcast", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, root, comm, raw(stream))
        })
    }

    /// Enqueues a message to `peer`, which receives it. Inside [`group`](Self::group) several of them run at once.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce), where the calls of a pair correspond.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer there is not; as [`all_reduce`](Self::all_reduce).
    pub unsafe fn send(&self, from: *const u8, elems: usize, dtype: Dtype, peer: usize, stream: &Stream) -> Result<()> {
        let call = self.0.library.symbols().ncclSend;
        let (dtype, peer) = (number(dtype), self.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclSend", |comm| unsafe { call(from.cast(), elems, dtype, peer, comm, raw(stream)) })
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
        let (dtype, peer) = (number(dtype), self.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclRecv", |comm| unsafe { call(to.cast(), elems, dtype, peer, comm, raw(stream)) })
    }

    /// Makes the operations of this communicator that `calls` enqueues one; the group is closed also when it fails.
    /// Meanwhile calls of other threads wait, and so does an [`abort`](Self::abort).
    ///
    /// # Errors
    /// That of `calls`, else as [`all_reduce`](Self::all_reduce).
    pub fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        self.0.group(calls)
    }

    fn peer(&self, what: &str, rank: usize) -> Result<i32> {
        match i32::try_from(rank) {
            Ok(peer) if rank < self.world_size() => Ok(peer),
            _ => Err(Error::invalid(what, rank, format!("the world size is {}", self.world_size()))),
        }
    }
}

/// The stream as NCCL takes it.
fn raw(stream: &Stream) -> *mut c_void {
    stream.as_raw() as *mut c_void
}

impl fmt::Debug for Communicator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Communicator(rank {} of {}, {})", self.rank(), self.world_size(), self.library().name())
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
