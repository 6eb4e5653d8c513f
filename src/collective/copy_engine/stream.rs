//! The side stream, on which low-contention collectives run, with its own workspace and order. These collectives use no
//! scratch of other calls, so they run concurrently with other calls.
#![allow(unsafe_code)]

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::pending::Pending;
use crate::collective::aside::Branch;
use crate::collective::heap::{launch_signal, own_signal};
use crate::collective::turn::{Lane, Recorded, Turn};
use crate::collective::{Inner, limits_of};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::kernel::geometry;
use crate::memory::SymmetricBuffer;
use crate::stream::{Event, Stream, Target};
use crate::sys::device as sys;

/// Channels of the communicator's own signals: for barriers of the side streams, and for barriers of the queues of plans.
/// `first_call.rs` uses channel 1.
const SIDES: usize = 0;
const QUEUES: usize = 2;

/// The side stream, workspace and order of a communicator.
pub(in crate::collective) struct SideStream {
    /// Declared before the fields that wait for work in flight: waits give up when the arena's last owner is gone.
    workspace: Option<Arc<SymmetricBuffer<u8>>>,
    pub(in crate::collective) lane: Lane,
    stream: Option<Stream>,
    branch: Option<Arc<Branch>>,
    /// Whether the stream has work for which no queue of a plan has waited.
    loose: bool,
}

/// Events that are free for reuse. Separate from [`SideStream`], so that work within a call, which holds that lock, may drop a
/// [`Pending`] of an earlier call.
#[derive(Default)]
pub(in crate::collective) struct Events(Mutex<Vec<Event>>);

impl Events {
    pub(super) fn take(&self, device: &Device, number: usize) -> Result<SmallVec<[Event; MAX_WORLD_SIZE]>> {
        (0..number).map(|_| self.take_one(device)).collect()
    }

    fn take_one(&self, device: &Device) -> Result<Event> {
        self.0.lock().pop().map_or_else(|| Event::new(device), Ok)
    }

    pub(super) fn give_back(&self, events: impl IntoIterator<Item = Event>) {
        self.0.lock().extend(events);
    }
}

impl SideStream {
    pub(in crate::collective) fn new(device: &Device) -> Result<Self> {
        Ok(Self { workspace: None, lane: Lane::new(device, false)?, stream: None, branch: None, loose: false })
    }

    /// Returns the stream if it has loose work. The caller makes a queue wait for the stream.
    fn take_loose(&mut self) -> Option<Stream> {
        self.stream.clone().filter(|_| std::mem::take(&mut self.loose))
    }

    /// The side stream of eager calls, ordered after the lane's last call.
    fn stream(&mut self, device: &Device) -> Result<Stream> {
        let stream = match &self.stream {
            Some(stream) => stream.clone(),
            None => self.stream.insert(Stream::urgent(device)?).clone(),
        };
        self.lane.order(&stream)?;
        Ok(stream)
    }

    fn workspace_bytes(&self) -> usize {
        self.workspace.as_ref().map_or(0, |workspace| workspace.len())
    }
}

/// The queue for the work of one call: the side stream, or the caller's queue.
pub(super) struct Beside<'a> {
    pub(super) inner: &'a Inner,
    /// The caller's queue.
    pub(super) queue: Target<'a>,
    stream: Option<Stream>,
    branch: Option<Arc<Branch>>,
}

impl Beside<'_> {
    pub(super) fn enqueue(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        match &self.stream {
            Some(stream) => stream.enqueue(call, work),
            None => self.queue.enqueue(call, work),
        }
    }

    /// # Safety
    /// Both addresses have room for `bytes` until the work is done.
    pub(super) unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        self.enqueue("copy", |raw| unsafe { raw.copy(to, from, bytes) })
    }

    /// Enqueues a copy for which only the end of the call waits.
    ///
    /// # Safety
    /// Both addresses have room for `bytes` until the work is done.
    pub(super) unsafe fn copy_apart(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        let (Some(stream), Some(branch)) = (&self.stream, &self.branch) else {
            // SAFETY: passed on.
            return unsafe { self.copy(to, from, bytes) };
        };
        stream.record(&branch.event)?;
        branch.stream.wait(&branch.event)?;
        // SAFETY: passed on.
        branch.stream.enqueue("copy", |raw| unsafe { raw.copy(to, from, bytes) })
    }

    /// Enqueues a copy after the earlier work of the caller's queue. Only the end of the call waits for the copy.
    ///
    /// # Safety
    /// Both addresses have room for `bytes` until the work is done.
    pub(super) unsafe fn copy_behind(&self, event: &Event, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        let Some(stream) = self.branch.as_ref().map(|branch| &branch.stream).or(self.stream.as_ref()) else {
            // SAFETY: passed on.
            return unsafe { self.copy(to, from, bytes) };
        };
        self.queue.record(event)?;
        stream.wait(event)?;
        // SAFETY: passed on.
        stream.enqueue("copy", |raw| unsafe { raw.copy(to, from, bytes) })
    }

    /// Records that a copy is enqueued, for [`await_arrival`](Self::await_arrival). Does nothing if the caller's queue itself
    /// does the work.
    pub(super) fn arrived(&self, event: &Event) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| stream.record(event))
    }

    /// Makes the caller's queue wait for a copy.
    pub(super) fn await_arrival(&self, event: &Event) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), |_| self.queue.wait(event))
    }

    /// Makes the side stream wait for the earlier work of the caller's queue.
    pub(super) fn produced(&self, event: &Event) -> Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        self.queue.record(event)?;
        stream.wait(event)
    }

    /// Makes the side stream wait for the branch.
    fn join(&self) -> Result<()> {
        let (Some(stream), Some(branch)) = (&self.stream, &self.branch) else { return Ok(()) };
        branch.stream.record(&branch.event)?;
        stream.wait(&branch.event)
    }

    /// Enqueues a barrier of all ranks on their side streams. `op` is the operation that a timeout names.
    pub(super) fn meet(&self, op: u32, fresh: bool) -> Result<()> {
        let barrier = own_signal(&self.inner.arena, args::kSignalBarrier, self.inner.group.rank(), SIDES, fresh)?;
        let args = args::SignalArgs { op, ..barrier };
        let mut launch = geometry::single(limits_of(&self.inner.group), args.world);
        // The barrier follows copies and, in a capture, work of another stream.
        launch.geometry.programmatic = 0;
        // SAFETY: the pads lie in arenas that live until the device is idle (liveness, bounds); the
        // side's lane orders their use (exclusion).
        self.enqueue("launch a signal", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }
}

/// Runs `work` on the side stream, after the queue's earlier work. `apart`: whether `work` uses the branch. If `on_queue`, `work`
/// makes the queue wait for all copies except those on the branch, and the next eager call on the side stream runs after the
/// work that `work` enqueues on the queue.
pub(super) fn beside<'op>(
    turn: &Turn<'_>,
    apart: bool,
    on_queue: bool,
    work: impl FnOnce(&Beside<'_>) -> Result<()>,
) -> Result<Pending<'op>> {
    let (inner, queue, recorded) = (turn.inner, turn.queue, turn.recorded());
    let device = inner.group.device();
    let mut side = inner.side.lock();
    let told = on_queue && !apart;
    // The host device copies on the processor and captures one stream.
    let apart = apart && device.kind() != DeviceKind::Host;
    let (stream, branch) = match recorded {
        None => {
            side.loose |= !on_queue;
            (Some(side.stream(device)?), apart.then(|| Branch::of(&mut side.branch, device)).transpose()?)
        }
        Some(recorded) => {
            let mut aside = recorded.aside.lock();
            aside.loose |= !on_queue;
            let stream = aside.begin(device)?;
            (stream, apart.then(|| aside.branch(device)).transpose()?)
        }
    };
    let event = stream.is_some().then(|| inner.events.take_one(device)).transpose()?;
    if let (Some(stream), Some(event)) = (&stream, &event) {
        queue.record(event)?;
        stream.wait(event)?;
    }
    let beside = Beside { inner, queue, stream, branch };
    let worked = work(&beside);
    let worked = worked.and(beside.join());
    if let (Some(stream), Some(event)) = (&beside.stream, &event) {
        stream.record(event)?;
    }
    if let (Some(stream), true, None) = (&beside.stream, on_queue, recorded) {
        order(inner, queue, Target::Eager(stream))?;
    }
    drop(side);
    // After an error the `Pending` is dropped, and the queue waits for copies in flight, because the operands are no longer
    // borrowed.
    let event = match event {
        Some(event) if told && worked.is_ok() => {
            inner.events.give_back([event]);
            None
        }
        event => event,
    };
    let pending = Pending::new(inner, event, queue);
    worked.map(|()| pending)
}

/// Enqueues a barrier of all ranks on their queues, after the earlier work of their side streams. `op` is the operation that
/// a timeout names.
pub(super) fn meet_on(turn: &Turn<'_>, op: u32, fresh: bool) -> Result<()> {
    let inner = turn.inner;
    let loose = match turn.recorded() {
        None => inner.side.lock().take_loose(),
        Some(recorded) => recorded.aside.lock().take_loose(),
    };
    if let Some(stream) = &loose {
        order(inner, Target::Eager(stream), turn.queue)?;
    }
    let barrier = own_signal(&inner.arena, args::kSignalBarrier, inner.group.rank(), QUEUES, fresh)?;
    launch_signal(&inner.group, &args::SignalArgs { op, ..barrier }, turn.queue)
}

/// Makes later work of `next` wait for the earlier work of `before`.
fn order(inner: &Inner, before: Target<'_>, next: Target<'_>) -> Result<()> {
    let event = inner.events.take_one(inner.group.device())?;
    before.record(&event)?;
    next.wait(&event)?;
    inner.events.give_back([event]);
    Ok(())
}

/// A workspace of at least this many bytes on every rank. Allocating a new workspace is collective and blocks.
pub(super) fn workspace(inner: &Inner, bytes: usize, recorded: Option<&Recorded>) -> Result<Arc<SymmetricBuffer<u8>>> {
    let (workspace, has) = {
        let side = inner.side.lock();
        (side.workspace.clone(), side.workspace_bytes())
    };
    if let Some(workspace) = workspace.filter(|_| bytes <= has) {
        if let Some(recorded) = recorded {
            recorded.aside.lock().keep(&workspace);
        }
        return Ok(workspace);
    }
    if recorded.is_some() {
        return Err(Error::unsupported(
            format!("a captured collective with a workspace of {bytes} bytes"),
            format!("there are {has}, and more are made by all ranks together: reserve them before the capture"),
        ));
    }
    // The old workspace is freed first, so that the new workspace may use its memory; graphs keep their workspaces. The
    // lock is released, because allocating waits for other ranks.
    inner.side.lock().workspace = None;
    let workspace = Arc::new(SymmetricBuffer::new(&inner.arena, bytes)?);
    inner.side.lock().workspace = Some(workspace.clone());
    Ok(workspace)
}
