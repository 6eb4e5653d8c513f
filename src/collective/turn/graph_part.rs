//! A communicator's part of a graph: the graph keeps the memory, pointers are registered once, and every launch takes
//! its place in the order of calls.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Turn;
use crate::collective::Inner;
use crate::collective::aside::Aside;
use crate::error::{Error, Result};
use crate::group::EnqueuedCall;
use crate::memory::{Pointer, Pooled, Registration, Use, Used, View, register};
use crate::stream::{GraphPart, Recording, Stream, Target};

/// The name of a launch of a graph in errors.
const LAUNCH: &str = "a launch of a graph";

/// The operations of one communicator in one graph.
pub(in crate::collective) struct Recorded {
    inner: Arc<Inner>,
    /// Locked while all ranks register. Launches do not take the lock.
    pointers: Mutex<Vec<CapturedPointer>>,
    /// Length of `pointers`.
    captured: AtomicUsize,
    /// The uses of `pointers` and of adopted memory given by address, in the order of calls.
    uses: Mutex<Vec<Use>>,
    /// The registrations of adopted memory in which operands were found.
    adopted: Mutex<Vec<Arc<Registration>>>,
    calls: Mutex<Vec<EnqueuedCall>>,
    /// Calls of pairs, which are not among `calls`.
    pairs: AtomicU64,
    registered: AtomicBool,
    /// Auxiliary streams and workspaces of the capture's low-contention collectives.
    pub(in crate::collective) aside: Mutex<Aside>,
}

/// A pointer captured before its peers' pointers were known. `register` fills its table.
struct CapturedPointer {
    registration: Registration,
    address: usize,
    bytes: usize,
    /// The owner of the memory, if known. Before registration, the graph borrows the memory or keeps its owner.
    owner: Option<Weak<dyn Any + Send + Sync>>,
}

impl Recorded {
    /// The part of the graph that records a queue; `None` for a stream. Requested before the turn of a call, because closing the
    /// group ends every graph that has a part of the group.
    pub(in crate::collective) fn of(inner: &Arc<Inner>, queue: Target<'_>) -> Option<Arc<Self>> {
        queue.recording().map(|recording| recording.part(inner.group.id(), || Self::new(inner)))
    }

    fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: inner.clone(),
            pointers: Mutex::default(),
            captured: AtomicUsize::new(0),
            uses: Mutex::default(),
            adopted: Mutex::default(),
            calls: Mutex::default(),
            pairs: AtomicU64::new(0),
            registered: AtomicBool::new(false),
            aside: Mutex::default(),
        }
    }

    /// A table for plain memory, for operand number `operand` of the next call. Equal memory shares a table.
    pub(in crate::collective) fn table(&self, memory: &View<'_>, bytes: usize, operand: usize) -> Result<u32> {
        let mut pointers = self.pointers.lock();
        let same = |captured: &CapturedPointer| captured.address == memory.address as usize && captured.bytes == bytes;
        let number = match pointers.iter().position(same) {
            Some(number) => number,
            None => {
                let registration = Registration::reserve(&self.inner.arena)?;
                let (address, owner) = (memory.address as usize, memory.owner.map(Arc::downgrade));
                pointers.push(CapturedPointer { registration, address, bytes, owner });
                self.captured.fetch_add(1, Ordering::Relaxed)
            }
        };
        self.used(operand, Used::Pointer(number));
        Ok(pointers[number].registration.slot())
    }

    /// Notes that operand number `operand` of the next call lies in adopted memory, whose registration the graph keeps.
    pub(in crate::collective) fn found(&self, pooled: &Pooled, operand: usize) {
        self.used(operand, Used::Adopted(pooled.number, pooled.offset_bytes));
        self.keep_adopted(pooled.registration.as_ref());
    }

    /// Makes the graph an owner of a registration.
    pub(in crate::collective) fn keep_adopted(&self, registration: Option<&Arc<Registration>>) {
        let mut adopted = self.adopted.lock();
        if let Some(registration) = registration.filter(|new| !adopted.iter().any(|kept| Arc::ptr_eq(kept, new))) {
            adopted.push(registration.clone());
        }
    }

    fn used(&self, operand: usize, of: Used) {
        let call = self.calls.lock().len();
        self.uses.lock().push(Use { call, operand, of });
    }

    pub(in crate::collective) fn note(&self, call: EnqueuedCall) {
        self.calls.lock().push(call);
    }

    /// Counts a call of pairs.
    pub(in crate::collective) fn note_pairs(&self) {
        self.pairs.fetch_add(1, Ordering::Relaxed);
    }
}

impl GraphPart for Recorded {
    fn admit(&self) -> Result<()> {
        self.inner.lane.refuse_within(LAUNCH)
    }

    fn end(&self, recording: &Recording) -> Result<()> {
        self.aside.lock().end(recording)
    }

    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let _entered = self.inner.group.enter()?;
        let pointers = self.captured.load(Ordering::Relaxed);
        if pointers > 0 && !self.registered.load(Ordering::Acquire) {
            return Err(Error::NotRegistered { pointers });
        }
        launch()
    }

    fn before_launch(&self, stream: &Stream) -> Result<()> {
        let mut turn = Turn::begin(&self.inner, LAUNCH, Target::Eager(stream))?;
        let calls = self.calls.lock();
        turn.order()?;
        if let Some(first) = calls.first() {
            turn.arrive_together(first.op())?;
        }
        if self.aside.lock().is_used() {
            self.inner.side.lock().lane.order(stream)?;
        }
        self.inner.group.note_launch(&calls);
        self.inner.group.note_pairs(self.pairs.load(Ordering::Relaxed));
        Ok(())
    }

    fn after_launch(&self, stream: &Stream) -> Result<()> {
        self.inner.lane.take(LAUNCH)?.end(stream)
    }

    fn register(&self) -> Result<()> {
        self.inner.group.check()?;
        let pointers = self.pointers.lock();
        // Another thread may have registered meanwhile. Each rank registers once.
        if self.registered.load(Ordering::Acquire) {
            return Ok(());
        }
        // The graph has only messages between pairs. Ranks without a message have recorded nothing and do not take part.
        if pointers.is_empty() && self.calls.lock().is_empty() {
            return Ok(());
        }
        let asked: Vec<Pointer<'_>> = pointers
            .iter()
            .map(|captured| Pointer {
                registration: &captured.registration,
                address: captured.address as *mut u8,
                bytes: captured.bytes,
                owner: captured.owner.as_ref().and_then(Weak::upgrade),
                by_pieces: false,
            })
            .collect();
        let shared = register(&self.inner.arena, &asked, &self.uses.lock())?;
        if let Some(item) = shared.iter().position(|shared| !shared) {
            return Err(Error::unsupported(
                format!("pointer {item} of {} in a captured collective", shared.len()),
                "some rank's memory there cannot be shared: adopt it before the capture, and it is pushed, or capture symmetric memory",
            ));
        }
        self.registered.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/turn/graph_part.rs"]
mod tests;
