//! The memory of experts, and the dispatches that hold its slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::Inner;
use super::form::ExpertForm;
use super::pending::{CallLine, PendingCalls};
use crate::backend::GroupCalls;
use crate::error::{Error, Operation, Result};
use crate::memory::{DeviceBuffer, SymmetricBuffer, WithView};
use crate::op::Held;
use crate::stream::{Event, GraphPart, Recording, Stream, Target};
use crate::types::Dtype;

/// The region through which ranks exchange rows.
pub(super) enum ExpertRegion {
    /// For symmetra kernels.
    Symmetric(SymmetricBuffer<u8>),
    /// For other backends.
    Plain(DeviceBuffer<u8>),
}

impl ExpertRegion {
    /// Collective; blocks.
    pub(super) fn new(over: &dyn GroupCalls, bytes: usize) -> Result<Self> {
        match over.own() {
            Some(communicator) => communicator.symmetric(bytes).map(Self::Symmetric),
            None => over.together("open experts", DeviceBuffer::new(over.device(), bytes)).map(Self::Plain),
        }
    }

    /// All bytes, as an operand.
    pub(super) fn bytes(&self) -> Held {
        match self {
            Self::Symmetric(buffer) => Held::new(Dtype::U8, &buffer.view_of()),
            Self::Plain(buffer) => Held::new(Dtype::U8, &buffer.view_of()),
        }
    }

    /// The region, if peers address it.
    pub(super) fn symmetric(&self) -> Option<&SymmetricBuffer<u8>> {
        match self {
            Self::Symmetric(buffer) => Some(buffer),
            Self::Plain(_) => None,
        }
    }

    /// The address of byte `start`.
    pub(super) fn at(&self, start: usize) -> *mut u8 {
        match self {
            Self::Symmetric(buffer) => buffer.as_raw().wrapping_add(start),
            Self::Plain(buffer) => buffer.as_raw().wrapping_add(start),
        }
    }
}

/// The data that a dispatch keeps for its combine, in this rank's device memory.
pub(super) struct ExpertSlot {
    pub(super) state: DeviceBuffer<u32>,
    pub(super) places: DeviceBuffer<u32>,
    /// Recorded after the counts of an eager call.
    pub(super) counted: Event,
}

impl ExpertSlot {
    pub(super) fn new(over: &dyn GroupCalls, form: &ExpertForm) -> Result<Self> {
        let device = over.device();
        let state = DeviceBuffer::new(device, form.state_words())?;
        Ok(Self { state, places: DeviceBuffer::new(device, form.place_words())?, counted: Event::new(device)? })
    }
}

/// The holders of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotHolder {
    /// Number of holders: the handle of a dispatch, and unfinished combines. 0 for a free slot.
    holds: u32,
    /// Whether the dispatch is being captured, and does not run on a stream.
    captured: bool,
}

/// A slot that a dispatch has taken, and the number of the dispatch.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) slot: usize,
    pub(super) number: u64,
}

/// The slots, which dispatches take in turn.
///
/// Ranks exchange through the memory of a slot, so a dispatch needs the same slot on all ranks. Ranks may drop handles at
/// different times, so the set of free slots may differ by rank. The slot is therefore derived from the number of the dispatch,
/// which is equal on all ranks.
pub(super) struct Ring {
    holders: Vec<SlotHolder>,
    /// The number of the next dispatch.
    next: u64,
}

impl Ring {
    /// Takes the slot of the next dispatch.
    fn take(&mut self, captured: bool) -> Result<Taken> {
        let (number, count) = (self.next, self.holders.len());
        let slot = (number % count as u64) as usize;
        if self.holders[slot].holds > 0 {
            let held = self.holders.iter().filter(|holder| holder.holds > 0).count();
            let reason = format!(
                "{held} of {count} slots (`in_flight`) are held, and slot {slot} is the next: \
                 drop the handles of dispatches in the order of the dispatches"
            );
            return Err(Error::unsupported("another dispatch", reason));
        }
        self.holders[slot] = SlotHolder { holds: 1, captured };
        self.next += 1;
        Ok(Taken { slot, number })
    }

    fn give_back(&mut self, slot: usize) {
        self.holders[slot].holds -= 1;
    }

    /// Returns the number of a dispatch that was not enqueued, for the next dispatch, unless a later dispatch was enqueued.
    fn give_back_number(&mut self, number: u64) {
        if self.next == number + 1 {
            self.next = number;
        }
    }

    /// The number of dispatches on streams that still have a handle, and so may still be combined.
    fn held_on_streams(&self) -> u64 {
        self.holders.iter().filter(|holder| holder.holds > 0 && !holder.captured).count() as u64
    }

    /// Refuses while a dispatch holds a slot.
    pub(super) fn refuse_held(&self, what: &str) -> Result<()> {
        match self.holders.iter().position(|holder| holder.holds > 0) {
            None => Ok(()),
            Some(slot) => Err(Error::unsupported(what, format!("the handle of a dispatch holds slot {slot}"))),
        }
    }
}

/// The holders of all slots, and the calls of streams that were begun and are not received.
///
/// Locks are taken in the order: ring, pending, lane. A handle may be dropped in a callback of a call, which holds the lane, while
/// another thread holds the ring and waits for the lane. So a drop takes none of these locks. It only adds a note, and the next
/// thread that takes the locks processes the notes.
pub(super) struct ExpertSlots {
    ring: Mutex<Ring>,
    pending: Mutex<PendingCalls>,
    notes: Mutex<DroppedHandles>,
    /// The number of dispatches enqueued on streams, by calls and by launches of graphs.
    made: AtomicU64,
    /// The number of dispatches that are known to have ended.
    ended: AtomicU64,
}

/// Handles that were dropped and are not processed yet.
#[derive(Default)]
struct DroppedHandles {
    /// Slots that the handles of dispatches held.
    slots: Vec<usize>,
    /// Calls of streams that were begun and whose handle was dropped.
    calls: Vec<(Operation, u64)>,
}

/// The slots, locked, with the pending calls of streams or of one capture.
pub(super) struct Books<'a> {
    ring: MutexGuard<'a, Ring>,
    pending: MutexGuard<'a, PendingCalls>,
    made: &'a AtomicU64,
}

impl Books<'_> {
    /// Takes the slot of the next dispatch.
    pub(super) fn take(&mut self, captured: bool) -> Result<Taken> {
        self.ring.take(captured)
    }

    /// Returns the slot and the number of a dispatch that was not enqueued.
    pub(super) fn undo(&mut self, taken: Taken) {
        self.ring.give_back(taken.slot);
        self.ring.give_back_number(taken.number);
    }

    /// Adds a holder to a slot.
    pub(super) fn share(&mut self, slot: usize) {
        self.ring.holders[slot].holds += 1;
    }

    pub(super) fn give_back(&mut self, slot: usize) {
        self.ring.give_back(slot);
    }

    pub(super) fn pending(&mut self, operation: Operation) -> &mut CallLine {
        self.pending.of(operation)
    }

    /// Notes that a dispatch was enqueued, or recorded.
    pub(super) fn note_dispatch(&mut self, recorded: Option<&RecordedExperts>, number: u64) {
        note_dispatch(self.made, recorded, number);
    }
}

fn note_dispatch(made: &AtomicU64, recorded: Option<&RecordedExperts>, number: u64) {
    match recorded {
        Some(recorded) => recorded.numbers.lock().push(number),
        None => {
            made.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ExpertSlots {
    pub(super) fn new(count: usize) -> Self {
        let ring = Mutex::new(Ring { holders: vec![SlotHolder::default(); count], next: 0 });
        // A slot has one handle, and at most `count` calls of each operation are pending, so notes never reallocate.
        let notes = DroppedHandles { slots: Vec::with_capacity(count), calls: Vec::with_capacity(2 * count) };
        let (pending, notes) = (Mutex::new(PendingCalls::new(count)), Mutex::new(notes));
        Self { ring, pending, notes, made: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Locks the ring, after releasing the slots of dropped handles. Dispatches wait until the caller drops the lock.
    pub(super) fn ring(&self) -> MutexGuard<'_, Ring> {
        let mut ring = self.ring.lock();
        self.notes.lock().slots.drain(..).for_each(|slot| ring.give_back(slot));
        ring
    }

    /// Locks the slots, with the pending calls of a capture, or else of streams.
    pub(super) fn books<'a>(&'a self, recorded: Option<&'a RecordedExperts>) -> Books<'a> {
        let ring = self.ring();
        let mut pending = recorded.map_or(&self.pending, |recorded| &recorded.pending).lock();
        if recorded.is_none() {
            for (operation, number) in self.notes.lock().calls.drain(..) {
                pending.of(operation).drop_handle(number);
            }
        }
        Books { ring, pending, made: &self.made }
    }

    /// Takes the slot of the next dispatch.
    pub(super) fn take(&self, captured: bool) -> Result<Taken> {
        self.ring().take(captured)
    }

    /// Returns the number of a dispatch that was not enqueued. The handle of the dispatch releases the slot.
    pub(super) fn give_back_number(&self, number: u64) {
        self.ring().give_back_number(number);
    }

    /// Notes that a dispatch was enqueued, or recorded.
    pub(super) fn note_dispatch(&self, recorded: Option<&RecordedExperts>, number: u64) {
        note_dispatch(&self.made, recorded, number);
    }

    /// The number of dispatches that will have ended when all enqueued work has run. `None` while another thread makes a call.
    pub(super) fn to_end(&self) -> Option<u64> {
        let mut ring = self.ring.try_lock()?;
        self.notes.lock().slots.drain(..).for_each(|slot| ring.give_back(slot));
        Some(self.made.load(Ordering::Relaxed).saturating_sub(ring.held_on_streams()))
    }

    /// Records that `dispatches` dispatches have ended without an error.
    pub(super) fn note_ended(&self, dispatches: u64) {
        self.ended.fetch_max(dispatches, Ordering::Relaxed);
    }

    /// The number of dispatches that are known to have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Notes that the handle of a dispatch no longer holds a slot.
    pub(super) fn note_slot(&self, slot: usize) {
        self.notes.lock().slots.push(slot);
    }

    /// Notes that the handle of a call on a stream was dropped.
    pub(super) fn note_call(&self, operation: Operation, number: u64) {
        self.notes.lock().calls.push((operation, number));
    }
}

/// The dispatches and combines of one graph.
pub(super) struct RecordedExperts {
    inner: Arc<Inner>,
    /// The slots that the graph writes.
    used: Mutex<Vec<usize>>,
    /// The numbers of the dispatches of the graph.
    numbers: Mutex<Vec<u64>>,
    /// The calls that were begun in the capture and are not received.
    pending: Mutex<PendingCalls>,
}

impl RecordedExperts {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        let pending = Mutex::new(PendingCalls::new(inner.config.in_flight));
        Self { inner: inner.clone(), used: Mutex::default(), numbers: Mutex::default(), pending }
    }

    /// Notes that the handle of a call of the capture was dropped.
    pub(super) fn note_call(&self, operation: Operation, number: u64) {
        self.pending.lock().of(operation).drop_handle(number);
    }

    pub(super) fn uses(&self, slot: usize) {
        let mut used = self.used.lock();
        if !used.contains(&slot) {
            used.push(slot);
        }
    }
}

impl GraphPart for RecordedExperts {
    /// Receives, and discards, calls that were begun in the capture and not received, so that a graph leaves ranks in step.
    fn end(&self, recording: &Recording) -> Result<()> {
        self.pending.lock().drop_handles();
        self.inner.settle(&mut self.inner.slots.books(Some(self)), Target::Captured(recording))
    }

    /// Releases the slots of calls that were begun and not received, and the numbers of dispatches if no later dispatch was
    /// enqueued. So a rank whose capture failed is in step with ranks that captured nothing.
    fn abandon(&self) {
        let ring = &mut *self.inner.slots.ring();
        self.pending.lock().abandon(|slot| ring.give_back(slot));
        self.numbers.lock().drain(..).rev().for_each(|number| ring.give_back_number(number));
    }

    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let slots = &self.inner.slots;
        let ring = slots.ring();
        if !slots.pending.lock().is_empty() {
            let reason = "a call that was begun on a stream is to be received first";
            return Err(Error::unsupported("a launch of this graph", reason));
        }
        let eager = |slot: &usize| ring.holders[*slot].holds > 0 && !ring.holders[*slot].captured;
        let held = self.used.lock().iter().copied().find(eager);
        match held {
            None => launch(),
            Some(slot) => {
                let reason =
                    format!("the handle of an eager dispatch holds slot {slot}, which the graph would overwrite");
                Err(Error::unsupported("a launch of this graph", reason))
            }
        }
    }

    fn before_launch(&self, stream: &Stream) -> Result<()> {
        self.inner.lane.lock().order(stream)?;
        self.inner.slots.made.fetch_add(self.numbers.lock().len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn after_launch(&self, stream: &Stream) -> Result<()> {
        self.inner.lane.lock().end_on(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}
