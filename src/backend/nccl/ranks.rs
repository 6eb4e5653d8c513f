//! A group's NCCL communicator, which runs every operation by NCCL's own calls.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::backend::nccl_library;
use crate::bootstrap::hello::together;
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::{Deadlines, Group};
use crate::nccl::Communicator;
use crate::op::{Call, CheckedShape, NcclForm, RankMessage, Strips};
use crate::stream::{GraphPart, Stream, StreamOrder, Target};
use crate::types::Dtype;

/// This rank of a group's NCCL communicator. NCCL is aborted when the rank and its graphs are dropped.
pub(crate) struct Ranks(Arc<Inner>);

struct Inner {
    communicator: Communicator,
    /// Whether the rank was closed. Read-locked during a call, a wait or a launch.
    closed: RwLock<bool>,
    /// The order of calls and graph launches: NCCL runs one at a time.
    lane: Mutex<StreamOrder>,
    /// The last operation whose end has not been observed.
    pending: Mutex<Option<Operation>>,
    /// Read-locked by a launch, from before its turn in the call order until it is enqueued.
    launching: RwLock<()>,
    /// Whether an operation has completed. Before that, a peer may still be loading.
    proven: AtomicBool,
    /// Whether the program has natively captured an operation. The library knows neither that graph nor its launches.
    escaped: AtomicBool,
    /// The number of the group.
    id: u64,
}

impl Ranks {
    /// `Err`: why NCCL cannot be used on this rank. `Ok(Err)`: why it cannot reduce 8-bit floats.
    pub(crate) fn available(device: &Device) -> Result<Result<(), String>, String> {
        let library = nccl_library(device.kind()).map_err(|error| error.to_string())?;
        Ok(library.reduces(Dtype::F8E4M3, device).map_err(|error| error.to_string()))
    }

    /// Opens NCCL for a group whose ranks `exchange` bytes. Either all ranks succeed or all fail. Collective; blocks.
    pub(crate) fn open(
        group: &Group,
        rank: usize,
        world_size: usize,
        exchange: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Self> {
        let (device, limit) = (group.device(), group.config().deadlines.open);
        let lane = StreamOrder::new(device);
        let library = lane.as_ref().map_err(Clone::clone).and_then(|_| nccl_library(device.kind()));
        let communicator = Communicator::open(library, device, rank, world_size, limit, exchange)?;
        Ok(Self::over(communicator, lane?, group.id()))
    }

    fn over(communicator: Communicator, lane: StreamOrder, id: u64) -> Self {
        let (closed, lane, pending) = (RwLock::new(false), Mutex::new(lane), Mutex::new(None));
        let (launching, proven, escaped) = (RwLock::new(()), AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { communicator, closed, lane, pending, launching, proven, escaped, id }))
    }

    /// Enqueues a checked call.
    pub(crate) fn run(&self, call: &Call<'_>, shape: &CheckedShape, queue: Target<'_>) -> Result<()> {
        self.enqueue(call.op.operation, queue, |nccl| NcclCall { nccl, call, shape, stream: queue.stream() }.run())
    }

    /// Enqueues checked messages between pairs, as one NCCL group: NCCL matches the messages of a pair in order.
    pub(crate) fn run_pairs(&self, messages: &[RankMessage], queue: Target<'_>) -> Result<()> {
        let moved = messages.iter().filter(|message| message.strip().bytes > 0);
        self.enqueue(Operation::Pairs, queue, |nccl| {
            nccl.group(|| {
                moved.clone().try_for_each(|message| {
                    let (strip, peer, stream) = (message.strip(), message.peer, queue.stream());
                    match message.sends {
                        // SAFETY: the check found the operand on this device; the queue's borrow keeps the operand until
                        // its work is done; the caller's lock excludes other threads.
                        true => unsafe { nccl.send(strip.address, strip.bytes as usize, Dtype::U8, peer, stream) },
                        // SAFETY: as above.
                        false => unsafe { nccl.recv(strip.address, strip.bytes as usize, Dtype::U8, peer, stream) },
                    }
                })
            })
        })
    }

    /// Enqueues the calls of `work`, in the order of calls.
    fn enqueue(
        &self,
        operation: Operation,
        queue: Target<'_>,
        work: impl FnOnce(&Communicator) -> Result<()>,
    ) -> Result<()> {
        // First, because closing this rank ends any graph that contains a part of it.
        let recorded = queue.recording().map(|recording| {
            recording.part(self.0.id, || RecordedNccl { inner: self.0.clone(), last: Mutex::new(operation) })
        });
        let _entered = self.0.enter()?;
        let mut lane = self.0.lane.lock();
        match recorded {
            Some(recorded) => *recorded.last.lock() = operation,
            None => *self.0.pending.lock() = Some(operation),
        }
        let native = queue.recording().is_none() && queue.stream().is_capturing()?;
        lane.call(queue, || {
            let mut result = Ok(());
            let enqueued = queue.enqueue("call NCCL", |_| {
                self.0.escaped.fetch_or(native, Ordering::Relaxed);
                result = work(&self.0.communicator);
                0
            });
            enqueued.and(result)
        })
    }

    /// Blocks until all work of `stream` is done. If the work may include NCCL operations, waits until the deadline and
    /// aborts NCCL on the first error.
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
        // A launch that is still enqueueing has had its turn in the call order, but its work is not on the stream yet.
        let enqueued = self.0.launching.try_write();
        // The last operation ends after all others.
        if enqueued.is_some() && lane.is_last(stream) && stream.is_done()? {
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

    /// Detaches `stream`, which may end: calls stay ordered without it.
    pub(crate) fn leave(&self, stream: &Stream) -> Result<()> {
        self.0.lane.lock().leave(stream)
    }

    /// Aborts NCCL, so that peers stop waiting for this rank.
    pub(crate) fn abort(&self) {
        self.0.communicator.abort();
    }

    /// Leaves NCCL when the operations of all ranks are done; waits for this rank's operations for at most `limit`.
    /// NCCL's own end would wait for graphs that contain operations; here such graphs may remain. `exchange` sends
    /// bytes to every rank and returns the bytes of all. Collective; blocks.
    pub(crate) fn close(
        &self,
        limit: Duration,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Operation, Duration) -> Error,
        exchange: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<()> {
        // Waits for calls that have begun. Later calls fail.
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

    /// Whether graphs may contain operations of this rank. Graphs share `Inner`, except native graphs.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || self.0.escaped.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// Keeps the rank open while the guard lives. Does not block.
    fn enter(&self) -> Result<RwLockReadGuard<'_, bool>> {
        // If the lock is taken, the rank is closing.
        self.closed.try_read().filter(|closed| !**closed).ok_or(Error::Closed)
    }

    /// Waits until all enqueued work is done.
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

/// A graph's part of this rank.
struct RecordedNccl {
    inner: Arc<Inner>,
    /// The graph's last operation.
    last: Mutex<Operation>,
}

impl GraphPart for RecordedNccl {
    /// The call order is not locked here: launches of two groups in opposite orders would wait for each other.
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

    fn after_launch(&self, stream: &Stream) -> Result<()> {
        self.inner.lane.lock().end_on(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}

struct NcclCall<'a> {
    nccl: &'a Communicator,
    call: &'a Call<'a>,
    shape: &'a CheckedShape,
    stream: &'a Stream,
}

impl NcclCall<'_> {
    fn run(&self) -> Result<()> {
        let (call, nccl, stream, dtype) = (self.call, self.nccl, self.stream, self.shape.dtype);
        let CheckedShape { rank, parameter, cut, .. } = *self.shape;
        let elems = cut.part_elems().unwrap_or(0);
        if !matches!(call.op.nccl, NcclForm::Strips | NcclForm::ReducedStrips) && elems == 0 {
            return Ok(());
        }
        let has_output = !call.op.output.at_root || rank == parameter;
        let from = call.input.as_ref().map_or(std::ptr::null_mut(), |input| input.address);
        let output = call.output.as_ref().filter(|_| has_output);
        let to = output.map_or(std::ptr::null_mut(), |output| output.address);
        let reduction = call.options.reduction;
        // Each row is a separate operation, and all rows are one NCCL group.
        let (rows, row_elems) = (cut.rows(), elems / cut.rows().max(1));
        let row = |start: *mut u8, row: usize, elems: usize| start.wrapping_add(row * elems * dtype.bytes());
        match call.op.nccl {
            // SAFETY: the check found that both operands are on this device and have the lengths of the call; the
            // queue's borrow keeps them until its work is done; the caller's lock excludes other threads.
            NcclForm::AllReduce => unsafe { nccl.all_reduce(from, to, elems, dtype, reduction, stream) },
            // SAFETY: as above; only the root's output is written.
            NcclForm::Reduce => unsafe { nccl.reduce(from, to, elems, dtype, (reduction, parameter), stream) },
            // SAFETY: as above, in place.
            NcclForm::Broadcast => unsafe {
                nccl.broadcast(to, to, elems * dtype.bytes(), Dtype::U8, parameter, stream)
            },
            NcclForm::ReduceScatter => nccl.group(|| {
                (0..rows).try_for_each(|number| {
                    let from = row(from, number, row_elems * self.shape.world);
                    // SAFETY: as above; a row lies within the operands.
                    unsafe {
                        nccl.reduce_scatter(from, row(to, number, row_elems), row_elems, dtype, reduction, stream)
                    }
                })
            }),
            NcclForm::AllGather => nccl.group(|| {
                (0..rows).try_for_each(|number| {
                    let to = row(to, number, row_elems * self.shape.world);
                    // SAFETY: as above; a row lies within the operands.
                    unsafe {
                        nccl.all_gather(row(from, number, row_elems), to, row_elems * dtype.bytes(), Dtype::U8, stream)
                    }
                })
            }),
            NcclForm::Strips => self.strips(&call.op.strips(call, self.shape)),
            NcclForm::ReducedStrips => self.reduced_strips(&call.op.strips(call, self.shape)),
        }
    }

    /// Reduces the chunks of every rank to that rank, in one NCCL group.
    fn reduced_strips(&self, strips: &Strips) -> Result<()> {
        let CheckedShape { world, dtype, .. } = *self.shape;
        let reduction = self.call.options.reduction;
        self.nccl.group(|| {
            (0..world).filter(|root| strips.from[*root].bytes > 0).try_for_each(|root| {
                let (from, to) = (strips.from[root].address, strips.into[root].address);
                let elems = strips.from[root].bytes as usize / dtype.bytes();
                // SAFETY: as in `run`; only the root's output is written, and other ranks have none.
                unsafe { self.nccl.reduce(from, to, elems, dtype, (reduction, root), self.stream) }
            })
        })
    }

    /// Sends and receives all chunks in one NCCL group, except an in-place chunk of a rank to itself.
    fn strips(&self, strips: &Strips) -> Result<()> {
        let CheckedShape { rank, world, .. } = *self.shape;
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
