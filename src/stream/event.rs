//! Events: points in the work of streams.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use cxx::UniquePtr;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

/// A point in a stream's work, with its time.
pub struct Event {
    pub(super) raw: OfMaker<UniquePtr<sys::Event>>,
    pub(super) device: Device,
    /// Whether the last record is on a stream whose handle other code has: a stream that waits for the event may become a part
    /// of a native capture.
    exposes: AtomicBool,
}

impl Event {
    /// Creates an event of `device` with no recorded point.
    ///
    /// # Errors
    /// [`Error::Device`] when the runtime refuses.
    pub fn new(device: &Device) -> Result<Self> {
        Self::made(device, true)
    }

    /// Creates an event without times, which is cheaper to record.
    pub(super) fn untimed(device: &Device) -> Result<Self> {
        Self::made(device, false)
    }

    fn made(device: &Device, timed: bool) -> Result<Self> {
        let raw = device.raw()?.create_event(timed).caught()?;
        Ok(Self { raw: OfMaker::new(made(raw, "event")?), device: device.clone(), exposes: AtomicBool::new(false) })
    }

    /// Notes a record on a stream.
    pub(super) fn recorded(&self, on_exposed: bool) {
        self.exposes.store(on_exposed, Ordering::Relaxed);
    }

    /// Whether a stream that waits for the event may become a part of a native capture.
    pub(super) fn exposes(&self) -> bool {
        self.exposes.load(Ordering::Relaxed)
    }

    /// Whether the last recorded point was reached; true when none was recorded. Does not block.
    ///
    /// An event does not belong to a group: a collective that gave up counts as done, and its output contains old
    /// values. Call [`Communicator::synchronize`](crate::Communicator::synchronize) before you use the output.
    ///
    /// # Errors
    /// [`Error::Device`] when work before it failed.
    pub fn is_done(&self) -> Result<bool> {
        self.device.check_process("an event")?;
        self.raw.done().caught()
    }

    /// Blocks until the last recorded point is reached.
    ///
    /// An event does not belong to a group: a collective that gave up counts as done, and its output contains old
    /// values. Call [`Communicator::synchronize`](crate::Communicator::synchronize) before you use the output.
    ///
    /// # Errors
    /// [`Error::Device`] when work before it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.check_process("an event")?;
        self.raw.synchronize().caught()
    }

    /// Time in microseconds from `start` to this event. Both must have been reached.
    ///
    /// # Errors
    /// [`Error::Device`] when one of the two was not reached, [`Error::InvalidArgument`] for events of two kinds of devices.
    pub fn elapsed_us(&self, start: &Self) -> Result<f64> {
        start.check_kind(&self.device)?;
        self.device.check_process("an event")?;
        self.raw.elapsed_us(&start.raw).caught()
    }

    /// Refuses an event of another runtime, whose events have another layout.
    pub(super) fn check_kind(&self, device: &Device) -> Result<()> {
        match self.device.kind() == device.kind() {
            true => Ok(()),
            false => {
                Err(Error::invalid("the kind of the event's device", self.device.kind(), format!("this is {device:?}")))
            }
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Event(of {:?})", self.device)
    }
}
