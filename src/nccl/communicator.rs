//! One rank of an NCCL communicator, and its operations.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::library::Library;
use super::session::NcclSession;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// The number of `ncclRedOp_t` in NCCL's header.
fn operation(reduction: Reduction) -> i32 {
    match reduction {
        Reduction::Sum => 0,
        Reduction::Product => 1,
        Reduction::Max => 2,
        Reduction::Min => 3,
        Reduction::Average => 4,
    }
}

/// The number of `ncclDataType_t` in NCCL's header.
fn number(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::I8 => 0,
        Dtype::U8 => 1,
        Dtype::I32 => 2,
        Dtype::U32 => 3,
        Dtype::I64 => 4,
        Dtype::U64 => 5,
        Dtype::F16 => 6,
        Dtype::F32 => 7,
        Dtype::F64 => 8,
        Dtype::BF16 => 9,
        Dtype::F8E4M3 => 10,
        Dtype::F8E5M2 => 11,
    }
}

/// The number of a type whose values are only moved: 8-bit floats are sent as bytes, because not every version and GPU
/// supports them.
fn moved(dtype: Dtype) -> i32 {
    number(if dtype.is_f8() { Dtype::U8 } else { dtype })
}

/// One rank of an NCCL communicator. Dropping it aborts it; [`close`](Self::close) ends it in order.
///
/// Operations enqueue on a stream of the rank's device, also while the stream is captured, and return. NCCL decides how
/// sums are rounded: neither bits nor order are guaranteed. Minima and maxima of floating types lose NaN, and averages
/// of integers wrap as their sums do. Calls from several threads run one after the other.
///
/// An error other than a refused call ends the communicator. It is aborted, so that ranks that wait for this rank are
/// notified, and all later calls return that error.
pub struct Communicator(pub(super) Arc<NcclSession>);

impl Communicator {
    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.place.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.0.place.world_size
    }

    /// The library of this communicator.
    pub fn library(&self) -> &Library {
        &self.0.library
    }

    /// Whether everything enqueued so far is healthy, here and, as far as NCCL has detected, on other ranks. Does not
    /// block. Call it periodically while waiting for work, which otherwise may never end;
    /// [`synchronize`](Self::synchronize) does this.
    ///
    /// # Errors
    /// [`Error::Nccl`] with the failure, or the error that ended the communicator before.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Blocks until all work of `stream` is done, for at most `limit`, because an NCCL kernel waits for lost ranks
    /// forever. Meanwhile it polls NCCL, and polls `well` for other information on the ranks.
    ///
    /// # Errors
    /// The error of `well`; [`Error::Nccl`]; [`Error::Device`]; after `limit`, the error that `late` returns for the
    /// time waited. Each of them aborts the communicator, so that the stream becomes free.
    pub fn synchronize(
        &self,
        stream: &Stream,
        limit: Duration,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Duration) -> Error,
    ) -> Result<()> {
        self.0.watch(limit, || stream.is_done(), well, late)
    }

    /// Aborts the communicator. Its enqueued operations end with undefined results, and later calls fail with
    /// [`Error::Aborted`]. Does nothing after the communicator has ended.
    pub fn abort(&self) {
        self.0.abort(Error::Aborted { detail: ": by this rank, in NCCL".to_owned() });
    }

    /// Waits for the enqueued operations and closes the communicator. Collective; blocks. Windows, and graphs that
    /// contain its operations, must be dropped first: NCCL also waits for their end.
    ///
    /// # Errors
    /// [`Error::Nccl`], [`Error::Timeout`], or the error that ended the communicator before; [`Error::Unsupported`]
    /// while a window is left. Any of them aborts it.
    pub fn close(self) -> Result<()> {
        if Arc::strong_count(&self.0) > 1 {
            self.abort();
            return Err(Error::unsupported("to close an NCCL communicator", "a window of it is still there"));
        }
        self.finish()
    }

    /// Closes a communicator without windows: waits for its operations. Collective; blocks.
    pub(crate) fn finish(&self) -> Result<()> {
        self.0.finish()
    }

    /// Ends the communicator by abort, after the operations of all ranks are done, because graphs of any rank may still
    /// contain its operations. The abort continues as long as such graphs exist; this call waits for it briefly.
    pub(crate) fn leave(&self) -> Result<()> {
        match self.0.abort(Error::Closed) {
            Error::Closed => Ok(()),
            error => Err(error),
        }
    }

    /// Enqueues a reduction of `elems` elements of every rank; every rank receives the result. Does not block.
    ///
    /// # Safety
    /// For every operation here: both addresses are valid for the stated number of elements, in memory of this rank's
    /// device, until the stream, which is also of this device, has done the work. All ranks make equal calls in equal
    /// order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type that this version does not reduce here; [`Error::Nccl`]; [`Error::Timeout`] if
    /// ranks that must connect for the call do not connect; or the error that ended the communicator before.
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
        let (dtype, op) = (self.reduced(dtype)?, operation(reduction));
        // SAFETY: the caller's promise; the communicator is live.
        self.0
            .call("ncclAllReduce", |comm| unsafe { call(from.cast(), to.cast(), elems, dtype, op, comm, raw(stream)) })
    }

    /// Enqueues a reduction. Every rank receives its own part of `elems` elements; `from` holds one part for each rank.
    ///
    /// # Safety
    /// The conditions of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
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
        let (dtype, op) = (self.reduced(dtype)?, operation(reduction));
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclReduceScatter", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, comm, raw(stream))
        })
    }

    /// Enqueues a gather of `elems` elements of every rank, in rank order, into `to` of every rank.
    ///
    /// # Safety
    /// The conditions of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub unsafe fn all_gather(
        &self,
        from: *const u8,
        to: *mut u8,
        elems: usize,
        dtype: Dtype,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.0.library.symbols().ncclAllGather;
        let dtype = moved(dtype);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclAllGather", |comm| unsafe { call(from.cast(), to.cast(), elems, dtype, comm, raw(stream)) })
    }

    /// Enqueues a reduction of `elems` elements of every rank into `to` of the root. `to` of other ranks is not
    /// accessed and may be null.
    ///
    /// # Safety
    /// The conditions of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root outside the world size; the errors of [`all_reduce`](Self::all_reduce).
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
        let (dtype, op, root) = (self.reduced(dtype)?, operation(reduction), self.peer("root", root)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclReduce", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, op, root, comm, raw(stream))
        })
    }

    /// Enqueues a copy of `root`'s `elems` elements at `from` into `to` of every rank.
    ///
    /// # Safety
    /// The conditions of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root outside the world size; the errors of [`all_reduce`](Self::all_reduce).
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
        let (dtype, root) = (moved(dtype), self.peer("root", root)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclBroadcast", |comm| unsafe {
            call(from.cast(), to.cast(), elems, dtype, root, comm, raw(stream))
        })
    }

    /// Enqueues a message to `peer`, which receives it with `recv`. Messages inside one [`group`](Self::group) run
    /// concurrently.
    ///
    /// # Safety
    /// The conditions of [`all_reduce`](Self::all_reduce), except that the calls of a pair of ranks correspond.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer outside the world size; the errors of [`all_reduce`](Self::all_reduce).
    pub unsafe fn send(&self, from: *const u8, elems: usize, dtype: Dtype, peer: usize, stream: &Stream) -> Result<()> {
        let call = self.0.library.symbols().ncclSend;
        let (dtype, peer) = (moved(dtype), self.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclSend", |comm| unsafe { call(from.cast(), elems, dtype, peer, comm, raw(stream)) })
    }

    /// Enqueues the receipt of a message that `peer` sends with `send`.
    ///
    /// # Safety
    /// The conditions of [`send`](Self::send).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub unsafe fn recv(&self, to: *mut u8, elems: usize, dtype: Dtype, peer: usize, stream: &Stream) -> Result<()> {
        let call = self.0.library.symbols().ncclRecv;
        let (dtype, peer) = (moved(dtype), self.peer("peer", peer)?);
        // SAFETY: as in `all_reduce`.
        self.0.call("ncclRecv", |comm| unsafe { call(to.cast(), elems, dtype, peer, comm, raw(stream)) })
    }

    /// Joins the operations of this communicator that `calls` enqueues into one. The group is closed also when `calls`
    /// fails. Meanwhile calls of other threads wait, and so does an [`abort`](Self::abort).
    ///
    /// # Errors
    /// The error of `calls`, else the errors of [`all_reduce`](Self::all_reduce).
    pub fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        self.0.group(calls)
    }

    /// The number of a type whose values are reduced.
    fn reduced(&self, dtype: Dtype) -> Result<i32> {
        self.0.library.reduces(dtype, self.device()).map(|()| number(dtype))
    }

    fn peer(&self, what: &str, rank: usize) -> Result<i32> {
        match i32::try_from(rank) {
            Ok(peer) if rank < self.world_size() => Ok(peer),
            _ => Err(Error::invalid(what, rank, format!("the world size is {}", self.world_size()))),
        }
    }
}

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
        assert_eq!([Dtype::F8E4M3, Dtype::F8E5M2].map(number), [10, 11]);
        assert_eq!([Dtype::F8E4M3, Dtype::F8E5M2, Dtype::U8, Dtype::BF16].map(moved), [1, 1, 1, 9]);
        assert_eq!([Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Average].map(operation), [0, 2, 3, 4]);
    }
}
