//! A group's NCCL communicator, and every operation in NCCL's own.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::backend::nccl_library;
use crate::bootstrap::hello::together;
use crate::collective::Lane;
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::{Deadlines, Group};
use crate::nccl::Communicator;
use crate::op::{Call, Nccl, Shape, Strips};
use crate::stream::{Enqueue, Part, Stream};
use crate::types::Dtype;

/// This rank of a group's NCCL communicator. Dropped, and its graphs with it, it is aborted.
pub(crate) struct Ranks(Arc<Inner>);

struct Inner {
    communicator: Communicator,
    /// Whether it was closed. Read for as long as a call, a wait or a launch goes on.
    closed: RwLock<bool>,
    /// The order of calls and graph launches: NCCL runs one at a time.
    lane: Mutex<Lane>,
    /// The last operation that nobody has seen the end of.
    pending: Mutex<Option<Operation>>,
    /// Read by a launch from before its turn in the lane until it is enqueued.
    launching: RwLock<()>,
    /// Whether some were: before that a peer may still be loading.
    proven: AtomicBool,
    /// Whether the caller has captured an operation natively: of that graph and its launches nothing here knows.
    escaped: AtomicBool,
    /// The group's.
    id: u64,
}

impl Ranks {
    /// Why NCCL cannot be used on this rank, if it cannot.
    pub(crate) fn available(device: &Device) -> Result<(), String> {
        nccl_library(device.kind()).map(drop).map_err(|error| error.to_string())
    }

    /// Opens NCCL for the rank of a group whose ranks `exchange` bytes. Collective; blocks. All ranks succeed or none.
    pub(crate) fn open(
        group: &Group,
        [rank, world_size]: [usize; 2],
        exchange: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Self> {
        let (device, limit) = (group.device(), group.config().deadlines.open);
        let lane = Lane::new(device);
        let library = lane.as_ref().map_err(Clone::clone).and_then(|_| nccl_library(device.kind()));
        let communicator = Communicator::open(library, device, rank, world_size, limit, exchange)?;
        Ok(Self::over(communicator, lane?, group.id()))
    }

    fn over(communicator: Communicator, lane: Lane, id: u64) -> Self {
        let (closed, lane, pending) = (RwLock::new(false), Mutex::new(lane), Mutex::new(None));
        let (launching, proven, escaped) = (RwLock::new(()), AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { communicator, closed, lane, pending, launching, proven, escaped, id }))
    }

    /// Enqueues a checked call.
    pub(crate) fn run(&self, call: &Call<'_>, shape: &Shape, queue: &impl Enqueue) -> Result<()> {
        // Before anything is recorded: whatever a graph holds of this, closing it ends the graph.
        let recorded = queue.recording().map(|recording| {
            recording.part(self.0.id, || Recorded { inner: self.0.clone(), last: Mutex::new(call.op.operation) })
        });
        let _entered = self.0.enter()?;
        let mut lane = self.0.lane.lock();
        match recorded {
            Some(recorded) => *recorded.last.lock() = call.op.operation,
            None => *self.0.pending.lock() = Some(call.op.operation),
        }
        let native = queue.recording().is_none() && queue.stream().is_capturing()?;
        lane.order_call(queue)?;
        let turn = Turn { nccl: &self.0.communicator, call, shape, stream: queue.stream() };
        let mut result = Ok(());
        let enqueued = queue.enqueue("call NCCL", |_| {
            self.0.escaped.fetch_or(native, Ordering::Relaxed);
            result = turn.run();
            0
        });
        enqueued.and(result)
    }

    /// Blocks until all work of `stream` is done. Where operations of NCCL's may be among it, that may take as
    /// long as the deadlines say, and the first error aborts them.
    pub(crate) fn synchronize(
        &self,
        stream: &Stream,
        deadlines: Deadlines,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Operation, Duration) -> Error,
    ) -> Result<()> {
        let Some(operation) = *self.0.pending.lock() else { return stream.synchronize() };
        let _entered = self.0.enter()?;
        let proven = self.0.proven.load(Ordering::Relaxed);
        let limit = if proven { deadlines.steady } else { deadlines.first_use };
        self.0.communicator.synchronize(stream, limit, well, |waited| late(operation, waited))?;
        let lane = self.0.lane.lock();
        // What a launch is about to enqueue has had its turn, and is not among what is done.
        let enqueued = self.0.launching.try_write();
        // The last operation comes after all others.
        if enqueued.is_some() && lane.last().is_some_and(|last| last.same(stream)) && stream.is_done()? {
            self.0.proven.store(true, Ordering::Relaxed);
            if !self.0.escaped.load(Ordering::Relaxed) {
                *self.0.pending.lock() = None;
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        let _entered = self.0.enter()?;
        self.0.communicator.check()
    }

    /// Keeps the order of calls without `stream`, which may end.
    pub(crate) fn leave(&self, stream: &Stream) -> Result<()> {
        self.0.lane.lock().leave(stream)
    }

    /// Lets nobody wait for this rank.
    pub(crate) fn abort(&self) {
        self.0.communicator.abort();
    }

    /// Leaves in good order, when the operations of all ranks are done; waits for those of this one as long as
    /// `limit`. Graphs with some may be left, for which NCCL's own end would wait. `exchange` gives bytes to every
    /// rank and returns those of all. Collective; blocks.
    pub(crate) fn close(
        &self,
        limit: Duration,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Operation, Duration) -> Error,
        exchange: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<()> {
        // Waits for calls that have begun; from here on every call fails.
        if std::mem::replace(&mut *self.0.closed.write(), true) {
            return Ok(());
        }
        let done = self.0.finish(limit, well, late);
        let held =
            together("end the work of NCCL", done, &exchange).and_then(|()| exchange(&[u8::from(self.is_held())]));
        match held {
            Err(error) => {
                self.abort();
                Err(error)
            }
            Ok(held) if held.iter().any(|held| *held == [u8::from(true)]) => self.0.communicator.leave(),
            Ok(_) => self.0.communicator.finish(),
        }
    }

    /// Whether graphs may hold operations of this rank. A part of each that this library knows of shares `Inner`.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || self.0.escaped.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// For as long as the result is there, it is not closed. Does not block.
    fn enter(&self) -> Result<RwLockReadGuard<'_, bool>> {
        // Not to be had: it is about to close.
        self.closed.try_read().filter(|closed| !**closed).ok_or(Error::Closed)
    }

    /// Waits until what was enqueued is done.
    fn finish(
        &self,
        limit: Duration,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Operation, Duration) -> Error,
    ) -> Result<()> {
        let (lane, pending) = (self.lane.lock(), *self.pending.lock());
        let Some(operation) = pending else { return Ok(()) };
        let Some(end) = lane.end(self.communicator.device())? else { return Ok(()) };
        let ended = self.communicator.synchronize(&end, limit, well, |waited| late(operation, waited));
        end.let_go();
        ended
    }
}

/// What a graph keeps of it.
struct Recorded {
    inner: Arc<Inner>,
    /// The last operation of the graph.
    last: Mutex<Operation>,
}

impl Part for Recorded {
    /// Not the lane is held: launches of two groups in unlike order would wait for each other.
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let _entered = self.inner.enter()?;
        self.inner.communicator.check()?;
        let _launching = self.inner.launching.read();
        launch()
    }

    fn before_launch(&self, stream: &Stream) -> Result<()> {
        let mut lane = self.inner.lane.lock();
        *self.inner.pending.lock() = Some(*self.last.lock());
        lane.order(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}

/// One call.
struct Turn<'a> {
    nccl: &'a Communicator,
    call: &'a Call<'a>,
    shape: &'a Shape,
    stream: &'a Stream,
}

impl Turn<'_> {
    fn run(&self) -> Result<()> {
        let (call, nccl, stream, dtype) = (self.call, self.nccl, self.stream, self.shape.dtype);
        let Shape { rank, parameter, cut, .. } = *self.shape;
        let elems = cut.part_elems().unwrap_or(0);
        if call.op.nccl != Nccl::Strips && elems == 0 {
            return Ok(());
        }
        let has_output = !call.op.output.at_root || rank == parameter;
        let from = call.input.as_ref().map_or(std::ptr::null_mut(), |input| input.address);
        let output = call.output.as_ref().filter(|_| has_output);
        let to = output.map_or(std::ptr::null_mut(), |output| output.address);
        let reduction = call.options.reduction;
        // Row by row: each row is an operation of its own, and all rows are one launch.
        let (rows, row_elems) = (cut.rows(), elems / cut.rows().max(1));
        let row = |start: *mut u8, row: usize, elems: usize| start.wrapping_add(row * elems * dtype.bytes());
        match call.op.nccl {
            // SAFETY: the check found both operands on this device and as long as the call says; the queue's borrow
            // keeps them until its work is done; the caller's lock keeps other threads away.
            Nccl::AllReduce => unsafe { nccl.all_reduce(from, to, elems, dtype, reduction, stream) },
            // SAFETY: as above; only the root's output is written.
            Nccl::Reduce => unsafe { nccl.reduce(from, to, elems, dtype, (reduction, parameter), stream) },
            // SAFETY: as above, in place.
            Nccl::Broadcast => unsafe { nccl.broadcast(to, to, elems * dtype.bytes(), Dtype::U8, parameter, stream) },
            Nccl::ReduceScatter => nccl.group(|| {
                (0..rows).try_for_each(|number| {
                    let from = row(from, number, row_elems * self.shape.world);
                    // SAFETY: as above; a row lies within the operands.
                    unsafe {
                        nccl.reduce_scatter(from, row(to, number, row_elems), row_elems, dtype, reduction, stream)
                    }
                })
            }),
            Nccl::AllGather => nccl.group(|| {
                (0..rows).try_for_each(|number| {
                    let to = row(to, number, row_elems * self.shape.world);
                    // SAFETY: as above; a row lies within the operands.
                    unsafe {
                        nccl.all_gather(row(from, number, row_elems), to, row_elems * dtype.bytes(), Dtype::U8, stream)
                    }
                })
            }),
            Nccl::Strips => self.strips(&call.op.strips(call, self.shape)),
        }
    }

    /// Strips to and from ranks, all at once. A strip that a rank would send itself in place stays.
    fn strips(&self, strips: &Strips) -> Result<()> {
        let Shape { rank, world, .. } = *self.shape;
        let stays = strips.from[rank].address == strips.into[rank].address;
        self.nccl.group(|| {
            for peer in (0..world).filter(|peer| *peer != rank || !stays) {
                let (from, into) = (strips.from[peer], strips.into[peer]);
                if from.bytes > 0 {
                    // SAFETY: as in `run`.
                    unsafe { self.nccl.send(from.address, from.bytes as usize, Dtype::U8, peer, self.stream) }?;
                }
                if into.bytes > 0 {
                    // SAFETY: as in `run`.
                    unsafe { self.nccl.recv(into.address, into.bytes as usize, Dtype::U8, peer, self.stream) }?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/nccl/ranks.rs"]
mod tests;
