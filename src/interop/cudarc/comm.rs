//! Communicators with the class of cudarc's `nccl::safe`, so that an engine written for it changes one line:
//!
//! ```
//! use symmetra::interop::cudarc::comm::{Comm, Id, ReduceOp}; // was: cudarc::nccl::safe::{Comm, Id, ReduceOp}
//! ```
//!
//! * *Safety*: the calls are safe. A call takes cudarc's guards of its operands on the communicator's stream, enqueues, and
//!   then drops the guards. So cudarc orders the stream after earlier users of the memory, and later users and the free after
//!   the call. Operands are types of cudarc alone ([`Input`], [`Output`]), because any safe code can implement `DevicePtr`.
//! * *Memory*: peers never address an operand. The data pass through scratch of the communicator.
//! * *Lengths*: the count of a call is that of its input; of a reduce-scatter or a broadcast, that of its output. Of a longer
//!   operand at the other end the call uses the first part. A shorter operand is [`Error::InvalidArgument`].
//! * *Stream*: all calls go to the stream of the communicator, enqueue and return. Errors of the device come from a later
//!   call, [`Comm::check`] or [`Comm::synchronize`].
//! * *Capture*: the engine may capture the stream by functions of CUDA or cudarc, in mode `THREAD_LOCAL` or `RELAXED`, after
//!   one eager call on every rank. A `CudaGraph` does not keep the memory that it uses.
//! * *Ranks*: threads or processes of one host, one GPU each. Opening is collective and blocks.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use symmetra::interop::cudarc::comm::{Comm, ReduceOp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let streams = vec![CudaContext::new(0)?.new_stream()?, CudaContext::new(1)?.new_stream()?];
//! let comms = Comm::from_devices(streams)?;
//! for comm in &comms {
//!     let mut hidden = comm.stream().clone_htod(&[1.0f32; 4096])?;
//!     comm.all_reduce_in_place(&mut hidden, &ReduceOp::Sum)?;
//! }
//! for comm in &comms {
//!     comm.synchronize()?;
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod group;
mod id;
mod lengths;

use std::fmt;
use std::sync::Arc;
use std::thread;

use ::cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut};

use super::{Borrowed, borrow, device, input, stream};
use crate::api::How;
use crate::bootstrap::{Bootstrap, Tcp, Threads, until};
use crate::collective::Communicator;
use crate::error::Error;
use crate::group::Config;
use crate::memory::{Ref, copy};
use crate::op::{ALL_GATHER, ALL_REDUCE, BROADCAST, Op, REDUCE, REDUCE_SCATTER};
use crate::stream::Stream;
use crate::types::{Element, Reduction};

pub use error::{CommError, Result};
pub use group::{Group, group_end, group_start};
pub use id::Id;

use lengths::used;

/// How values of the ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of NCCL")]
pub enum ReduceOp {
    Sum,
    Prod,
    Max,
    Min,
    Avg,
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Self {
        match op {
            ReduceOp::Sum => Self::Sum,
            ReduceOp::Prod => Self::Product,
            ReduceOp::Max => Self::Max,
            ReduceOp::Min => Self::Min,
            ReduceOp::Avg => Self::Average,
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Memory that a call reads: a `CudaSlice`, a `CudaView` or a `CudaViewMut`. Sealed.
pub trait Input<T>: DevicePtr<T> + sealed::Sealed {}

/// Memory that a call writes: a `CudaSlice` or a `CudaViewMut`. Sealed.
pub trait Output<T>: Input<T> + DevicePtrMut<T> {}

impl<T> sealed::Sealed for CudaSlice<T> {}
impl<T> sealed::Sealed for CudaView<'_, T> {}
impl<T> sealed::Sealed for CudaViewMut<'_, T> {}
impl<T> Input<T> for CudaSlice<T> {}
impl<T> Input<T> for CudaView<'_, T> {}
impl<T> Input<T> for CudaViewMut<'_, T> {}
impl<T> Output<T> for CudaSlice<T> {}
impl<T> Output<T> for CudaViewMut<'_, T> {}

/// A rank of a group, and the stream of its calls.
///
/// Dropping a `Comm` leaves the group as [`Communicator::depart`] does, also for all clones of
/// [`communicator`](Self::communicator). The drop waits for this rank's device. The group does not fail on the peers.
///
/// The graph of a capture has the addresses of the operands. `CudaGraph::launch` of cudarc is a safe function, but neither
/// cudarc's own calls nor these keep the operands for the graph: the program drops the graph first.
pub struct Comm {
    communicator: Communicator,
    stream: Stream,
    native: Arc<CudaStream>,
}

impl Comm {
    /// Opens a group whose ranks pass the same `id`: rank 0 in the process that made the id, the other ranks in any
    /// process of the host. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] on rank 0 if this process did not make the id, or if another rank 0 has taken the id; the
    /// errors of [`Tcp::from_id`] and of [`open`](Self::open).
    pub fn from_rank(stream: Arc<CudaStream>, rank: usize, world_size: usize, id: Id) -> Result<Self> {
        let config = Config::default();
        let bootstrap = Tcp::from_id(id.take(rank)?, rank, world_size, until(config.deadlines.open))?;
        Self::open(bootstrap, stream, config)
    }

    /// Opens a group of one rank for each stream, in the order of the streams, within this process. Blocks.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_devices(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Self>> {
        let ranks = Threads::new(streams.len())?;
        thread::scope(|scope| {
            let open = |bootstrap, stream| move || Self::open(bootstrap, stream, Config::default());
            let ranks: Vec<_> =
                ranks.into_iter().zip(streams).map(|(rank, stream)| scope.spawn(open(rank, stream))).collect();
            let opened: Vec<_> = ranks.into_iter().map(thread::ScopedJoinHandle::join).collect();
            let lost = |rank| CommError(Error::PeerLost { rank, detail: ": its opening thread panicked".into() });
            opened.into_iter().enumerate().map(|(rank, made)| made.unwrap_or_else(|_| Err(lost(rank)))).collect()
        })
    }

    /// Opens a group of all ranks of `bootstrap` on the device of the stream. Collective; blocks. `config` has the
    /// deadlines: an engine whose ranks wait inside a collective for longer than `deadlines.steady` sets them here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stream of another context than the device's primary context, and the errors of
    /// [`Communicator::open`].
    pub fn open(bootstrap: impl Bootstrap, native: Arc<CudaStream>, config: Config) -> Result<Self> {
        let device = device(native.context())?;
        // SAFETY: calls take cudarc's guards of their operands, which order the free of the memory after the calls. cudarc
        // requires of its own calls, too, that the memory of a captured call outlives the graph. A per-thread stream is used as its
        // documentation requires.
        let stream = unsafe { stream(&device, &native) }?;
        let communicator = Communicator::open(bootstrap, &device, config)?;
        Ok(Self { communicator, stream, native })
    }

    /// The stream of all calls.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.native.clone()
    }

    /// The context of the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.native.context()
    }

    /// The number of the device.
    pub fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.communicator.world_size()
    }

    /// The communicator, for norms, codecs, symmetric memory and other operations. It is the same group: calls of both
    /// have one order.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The stream of all calls, for calls of [`communicator`](Self::communicator).
    pub fn queue(&self) -> &Stream {
        &self.stream
    }

    /// The group's error if the group has failed. Does not block. An engine that synchronises its own stream calls this
    /// afterwards, before it uses results: a collective that gave up leaves old values in its output.
    ///
    /// # Errors
    /// The group's error.
    pub fn check(&self) -> Result<()> {
        Ok(self.communicator.check()?)
    }

    /// Blocks until all calls are done.
    ///
    /// # Errors
    /// The errors of [`Communicator::synchronize`].
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.communicator.synchronize(&self.stream)?)
    }

    /// Reduces `sendbuff` of all ranks into `recvbuff` of every rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a `recvbuff` that is too short, and for memory of another device; the errors of
    /// [`ProcessGroup::all_reduce`](crate::ProcessGroup::all_reduce).
    pub fn all_reduce<S: Input<T>, R: Output<T>, T: Element>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.run(&ALL_REDUCE, &reducing(op), Some(sendbuff), Some(recvbuff))
    }

    /// Reduces `buff` of all ranks in place.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_in_place<R: Output<T>, T: Element>(&self, buff: &mut R, op: &ReduceOp) -> Result<()> {
        self.run_in_place(&ALL_REDUCE, &reducing(op), buff)
    }

    /// Puts `sendbuff` of all ranks into `recvbuff` of every rank, in rank order.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_gather<S: Input<T>, R: Output<T>, T: Element>(&self, sendbuff: &S, recvbuff: &mut R) -> Result<()> {
        self.run(&ALL_GATHER, &How::default(), Some(sendbuff), Some(recvbuff))
    }

    /// Reduces `sendbuff` of all ranks, and puts this rank's part into `recvbuff`. `recvbuff` has n elements, equal
    /// on all ranks, and `sendbuff` has a part of n elements for every rank, in rank order. Enqueues and returns.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce), where `sendbuff` may be too short.
    pub fn reduce_scatter<S: Input<T>, R: Output<T>, T: Element>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.run(&REDUCE_SCATTER, &reducing(op), Some(sendbuff), Some(recvbuff))
    }

    /// Copies `sendbuff` of rank `root` into `recvbuff` of every rank. Other ranks may pass `None`.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce); [`Error::InvalidArgument`] for a root outside the group, and on the
    /// root without `sendbuff`.
    pub fn broadcast<S: Input<T>, R: Output<T>, T: Element>(
        &self,
        sendbuff: Option<&S>,
        recvbuff: &mut R,
        root: i32,
    ) -> Result<()> {
        let root = self.rank_of("root", root)?;
        if root != self.rank() {
            return self.broadcast_in_place(recvbuff, root as i32);
        }
        let sendbuff =
            sendbuff.ok_or_else(|| Error::invalid("sendbuff", "None", format!("rank {root} is the root")))?;
        let [count, elems] = used(&BROADCAST, sendbuff.len(), recvbuff.len(), self.world_size())?;
        let input = self.shared(sendbuff)?;
        let output = self.exclusive(recvbuff)?;
        copy(input.slice(..count)?, output.slice(..elems)?, &self.stream)?;
        Ok(self.communicator.broadcast(&*output, root, &self.stream)?)
    }

    /// Copies `buff` of rank `root` into `buff` of every rank.
    ///
    /// # Errors
    /// The errors of [`broadcast`](Self::broadcast).
    pub fn broadcast_in_place<R: Output<T>, T: Element>(&self, buff: &mut R, root: i32) -> Result<()> {
        self.run_in_place(&BROADCAST, &self.at_root(How::default(), root)?, buff)
    }

    /// Reduces `sendbuff` of all ranks into `recvbuff` of rank `root`. Other ranks may pass `None`.
    ///
    /// # Errors
    /// The errors of [`broadcast`](Self::broadcast), where `recvbuff` may be missing on the root.
    pub fn reduce<S: Input<T>, R: Output<T>, T: Element>(
        &self,
        sendbuff: &S,
        recvbuff: Option<&mut R>,
        op: &ReduceOp,
        root: i32,
    ) -> Result<()> {
        let how = self.at_root(reducing(op), root)?;
        self.run(&REDUCE, &how, Some(sendbuff), recvbuff.filter(|_| how.parameter == self.rank()))
    }

    /// Reduces `buff` of all ranks into `buff` of rank `root`. On other ranks it is unchanged.
    ///
    /// # Errors
    /// The errors of [`reduce`](Self::reduce).
    pub fn reduce_in_place<R: Output<T>, T: Element>(&self, buff: &mut R, op: &ReduceOp, root: i32) -> Result<()> {
        self.run_in_place(&REDUCE, &self.at_root(reducing(op), root)?, buff)
    }

    /// Sends `data` to rank `peer`, as a whole call. Two ranks that both send first may wait for each other if the data
    /// exceed [`Config::pair_bytes`]: use [`group`](Self::group).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer outside the group, this rank, or memory of another device;
    /// [`Error::Unsupported`] between [`group_start`] and [`group_end`]; the errors of
    /// [`ProcessGroup::pairs`](crate::ProcessGroup::pairs).
    pub fn send<S: Input<T>, T: Element>(&self, data: &S, peer: i32) -> Result<()> {
        group::refuse_within("a send")?;
        let (peer, input) = (self.rank_of("peer", peer)?, self.shared(data)?);
        Ok(self.communicator.pairs(&self.stream, |messages| messages.send(&*input, peer))?)
    }

    /// Receives the next data of rank `peer` into `buff`, which has as many bytes, as a whole call.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn recv<R: Output<T>, T: Element>(&self, buff: &mut R, peer: i32) -> Result<()> {
        group::refuse_within("a receive")?;
        let (peer, output) = (self.rank_of("peer", peer)?, self.exclusive(buff)?);
        Ok(self.communicator.pairs(&self.stream, |messages| messages.receive(&*output, peer))?)
    }

    /// Enqueues an operation on the parts of the operands that it uses.
    fn run<S: Input<T>, R: Output<T>, T: Element>(
        &self,
        op: &'static Op,
        how: &How<'_>,
        input: Option<&S>,
        output: Option<&mut R>,
    ) -> Result<()> {
        let input = input.map(|memory| self.shared(memory)).transpose()?;
        let output = output.map(|memory| self.exclusive(memory)).transpose()?;
        let elems = |memory: &Option<Borrowed<'_, T>>| memory.as_ref().map(|memory| memory.len());
        let used = match (elems(&input), elems(&output)) {
            (Some(input), Some(output)) => used(op, input, output, self.world_size())?,
            (input, output) => [input, output].map(Option::unwrap_or_default),
        };
        let operands = [first(input.as_ref(), used[0])?, first(output.as_ref(), used[1])?];
        Ok(self.communicator.perform(op, how, operands, &self.stream)?)
    }

    /// Enqueues an operation whose input is its output.
    fn run_in_place<R: Output<T>, T: Element>(&self, op: &'static Op, how: &How<'_>, memory: &mut R) -> Result<()> {
        let memory = self.exclusive(memory)?;
        let operand: Ref<'_, T> = memory.clone();
        Ok(self.communicator.perform(op, how, [Some(operand.clone()), Some(operand)], &self.stream)?)
    }

    /// Memory that a call reads, with cudarc's guard.
    fn shared<'a, T: Element>(&'a self, memory: &'a impl Input<T>) -> Result<Borrowed<'a, T>> {
        // SAFETY: memory of cudarc's, used on the stream of the guard, which is dropped after the work is enqueued.
        Ok(unsafe { input(self.communicator.device(), memory, &self.native) }?)
    }

    /// Memory that a call writes, with cudarc's guard.
    fn exclusive<'a, T: Element>(&'a self, memory: &'a mut impl Output<T>) -> Result<Borrowed<'a, T>> {
        // SAFETY: as for `shared`.
        Ok(unsafe { borrow(self.communicator.device(), memory, &self.native) }?)
    }

    /// `how`, with the root.
    fn at_root<'a>(&self, how: How<'a>, root: i32) -> Result<How<'a>> {
        Ok(How { parameter: self.rank_of("root", root)?, ..how })
    }

    /// The rank with this number.
    fn rank_of(&self, what: &str, number: i32) -> Result<usize> {
        let world = self.world_size();
        let rank = usize::try_from(number).ok().filter(|rank| *rank < world);
        Ok(rank.ok_or_else(|| Error::invalid(what, number, format!("the world size is {world}")))?)
    }
}

/// The first elements of an operand.
fn first<'a, T: Element>(memory: Option<&Borrowed<'a, T>>, elems: usize) -> Result<Option<Ref<'a, T>>> {
    Ok(memory.map(|memory| memory.slice(..elems)).transpose()?)
}

/// The settings of a call that reduces.
fn reducing(op: &ReduceOp) -> How<'static> {
    How { options: Reduction::from(*op).into(), ..How::default() }
}

impl Drop for Comm {
    fn drop(&mut self) {
        // A forked child is not a rank.
        if !self.communicator.device().is_here() {
            return;
        }
        match self.communicator.clone().depart() {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => {
                crate::log!(WARN, "{:?} does not leave in good order: {error}", self.communicator);
            }
        }
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Comm({:?})", self.communicator)
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/interop/comm.rs"]
mod tests;
