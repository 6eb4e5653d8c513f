//! The memory of experts, and which dispatch holds which part of it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Inner;
use super::form::Form;
use super::over::Over;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, SymmetricBuffer, WithView};
use crate::op::Held;
use crate::stream::{Event, Part, Stream};
use crate::types::Dtype;

/// The region that ranks exchange through.
pub(super) enum Region {
    /// For own kernels.
    Symmetric(SymmetricBuffer<u8>),
    /// For other backends.
    Plain(DeviceBuffer<u8>),
}

impl Region {
    /// Collective; blocks.
    pub(super) fn new(over: &Over, bytes: usize) -> Result<Self> {
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

    /// The region, where peers address it.
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

/// What a dispatch leaves for its combine, in own device memory.
pub(super) struct Slot {
    pub(super) state: DeviceBuffer<u32>,
    pub(super) places: DeviceBuffer<u32>,
    /// Recorded behind the counts of an eager call.
    pub(super) counted: Event,
}

impl Slot {
    pub(super) fn new(over: &Over, form: &Form) -> Result<Self> {
        let device = over.device();
        let state = DeviceBuffer::new(device, form.state_words())?;
        Ok(Self { state, places: DeviceBuffer::new(device, form.place_words())?, counted: Event::new(device)? })
    }
}

/// Who holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A dispatch that a stream runs.
    Eager,
    /// A dispatch that is being captured.
    Captured,
}

/// The holders of all slots.
pub(super) struct Slots(Mutex<Vec<Holder>>);

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(vec![Holder::Nobody; count]))
    }

    /// Takes a slot that nobody holds.
    pub(super) fn take(&self, captured: bool) -> Result<usize> {
        let mut holders = self.0.lock();
        let free = holders.iter().position(|holder| *holder == Holder::Nobody);
        let Some(slot) = free else {
            let count = holders.len();
            let reason =
                format!("{count} of {count} slots (`in_flight`) are held: drop the handle of an earlier dispatch");
            return Err(Error::unsupported("another dispatch", reason));
        };
        holders[slot] = if captured { Holder::Captured } else { Holder::Eager };
        Ok(slot)
    }

    pub(super) fn give_back(&self, slot: usize) {
        self.0.lock()[slot] = Holder::Nobody;
    }

    /// Refuses while a dispatch holds a slot, and keeps dispatches away while `run` runs.
    pub(super) fn while_free<T>(&self, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let holders = self.0.lock();
        match holders.iter().position(|holder| *holder != Holder::Nobody) {
            None => run(),
            Some(slot) => Err(Error::unsupported(what, format!("the handle of a dispatch holds slot {slot}"))),
        }
    }
}

/// The dispatches and combines of one graph.
pub(super) struct Recorded {
    inner: Arc<Inner>,
    /// The slots that the graph writes.
    used: Mutex<Vec<usize>>,
}

impl Recorded {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: inner.clone(), used: Mutex::default() }
    }

    pub(super) fn uses(&self, slot: usize) {
        let mut used = self.used.lock();
        if !used.contains(&slot) {
            used.push(slot);
        }
    }
}

impl Part for Recorded {
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let holders = self.inner.slots.0.lock();
        let held = self.used.lock().iter().copied().find(|slot| holders[*slot] == Holder::Eager);
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
        self.inner.lane.lock().order(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}
