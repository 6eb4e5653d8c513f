//! Streams, events, and the capture of work into graphs.

mod call_order;
mod capture;
mod chains;
mod ending;
mod event;
mod graph;
mod keepalive;
mod launch_host;
mod mixed_order;
mod native;
mod order;
mod queue;
mod reaper;
mod recording;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use cxx::UniquePtr;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

pub use capture::Capture;
pub use event::Event;
pub use graph::Graph;
pub use launch_host::launch_host;
pub use native::{NativeCapture, NativeGraph};
pub use queue::{AnyQueue, Queue};

pub(crate) use call_order::CallOrder;
pub(crate) use ending::{Ending, drop_at_end};
pub(crate) use launch_host::HostLaunch;
pub(crate) use order::StreamOrder;
pub(crate) use queue::Target;
pub(crate) use recording::{GraphPart, Kept, Recording};

/// A queue of work that runs in order on a device. Cheap to clone; clones are the same stream.
///
/// Enqueueing returns at once; [`synchronize`](Self::synchronize) blocks. Dropping the last clone waits for work in
/// flight on the host device but not on a GPU, as the runtime does. A stream works in the process that created it: in a
/// child of `fork()` every use fails with [`Error::Unsupported`].
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    /// A forked child has no thread that could end the stream's work.
    raw: OfMaker<UniquePtr<sys::Stream>>,
    /// The owner of a handle that is shared with another crate; released after `raw`.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    device: Device,
    id: u64,
    /// The handle of the runtime.
    handle: u64,
    /// Whether other code has the handle, and so may capture the stream natively.
    exposed: AtomicBool,
    /// Whether the program owns the handle, and so may destroy the stream.
    borrowed: bool,
    /// Whether the handle is another stream on each thread.
    of_each_thread: bool,
    /// Whether the stream is being captured. Read-locked while work is enqueued, so that a capture starts between
    /// calls; enqueueing never waits for it.
    capturing: RwLock<bool>,
}

/// The handle of CUDA and HIP that is another stream on each thread.
const PER_THREAD: u64 = 2;

/// Source of numbers of streams and recordings, unique in the process, so that a dropped one is never mistaken for a
/// new one.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    /// Creates a stream of `device`.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::System`] when the runtime refuses.
    pub fn new(device: &Device) -> Result<Self> {
        Self::wrap(device, device.raw()?.create_stream(false).caught()?)
    }

    /// Creates a stream of high priority: its kernels get the next free multiprocessor.
    pub(crate) fn urgent(device: &Device) -> Result<Self> {
        Self::wrap(device, device.raw()?.create_stream(true).caught()?)
    }

    /// Wraps a stream of the program: a `cudaStream_t` or `hipStream_t` as an integer, 0 for the default stream.
    ///
    /// On the host device, a stream of this library takes the place of the program's: the handle is the result of
    /// [`as_raw`](Self::as_raw) of a stream of the same [`Device`]. So an engine that passes its streams runs on a CPU
    /// unchanged. There is no default stream. After that stream is dropped, enqueueing on the result fails with
    /// [`Error::Device`].
    /// ```
    /// # #![allow(unsafe_code)]
    /// # use symmetra::*;
    /// # fn main() -> Result<()> {
    /// let device = Device::host()?;
    /// let engines = Stream::new(&device)?;
    /// // SAFETY: the engine's stream outlives the result.
    /// let borrowed = unsafe { Stream::borrow_raw(&device, engines.as_raw()) }?;
    /// let buffer = DeviceBuffer::from_slice(&[1.0_f32; 8], &borrowed)?;
    /// # assert_eq!(buffer.read(&engines)?, [1.0; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// On the host device, [`Error::InvalidArgument`] for a handle that no stream of the device has.
    ///
    /// # Safety
    /// The handle belongs to `device`. It stays valid until every clone of the result is dropped. For each communicator
    /// and coordinator that used the stream, the handle also stays valid until that object is closed, was used with
    /// another stream, or has left the stream ([`Communicator::leave`](crate::Communicator::leave),
    /// [`Coordinator::leave`](crate::environment::Coordinator::leave)). The same holds for each layer of
    /// [`Experts`](crate::experts::Experts) and each grid of [`Mixed`](crate::mixed::Mixed) that used the stream, until that
    /// object is dropped or was used with another stream. A multiplier needs the handle only during its calls. While one
    /// `Stream` of a handle is being captured, no other `Stream` of the handle is used. A handle that
    /// means another stream on each thread is used from one thread, because objects order their work by streams. On the
    /// number 2, `cudaStreamPerThread` and `hipStreamPerThread`, a communicator, a layer of experts and a grid each order their
    /// own calls also across threads, except low-contention collectives. Each thread orders the rest of its work itself.
    #[allow(unsafe_code)]
    pub unsafe fn borrow_raw(device: &Device, raw: u64) -> Result<Self> {
        // SAFETY: the caller's promise covers the life of the result.
        let stream = unsafe { device.raw()?.borrow_stream(raw) }.caught()?;
        Self::own(device, stream, None, true).inspect(Self::expose)
    }

    /// Wraps a stream of the program with a handle that is valid as long as `owner`, which the result keeps.
    ///
    /// # Errors
    /// The errors of [`borrow_raw`](Self::borrow_raw).
    ///
    /// # Safety
    /// The requirements of [`borrow_raw`](Self::borrow_raw), except for the handle's life.
    #[cfg(feature = "cudarc")]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn borrow_kept(device: &Device, raw: u64, owner: Arc<dyn Any + Send + Sync>) -> Result<Self> {
        // SAFETY: the caller's promise, and `owner` outlives the handle's last use.
        let stream = unsafe { device.raw()?.borrow_stream(raw) }.caught()?;
        Self::own(device, stream, Some(owner), false).inspect(Self::expose)
    }

    fn wrap(device: &Device, raw: UniquePtr<sys::Stream>) -> Result<Self> {
        Self::own(device, raw, None, false)
    }

    /// Wraps a stream with the owner of its handle, and whether the handle is borrowed without an owner.
    fn own(
        device: &Device,
        raw: UniquePtr<sys::Stream>,
        owner: Option<Arc<dyn Any + Send + Sync>>,
        borrowed: bool,
    ) -> Result<Self> {
        let raw = OfMaker::new(made(raw, "stream")?);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let handle = raw.raw();
        let (capturing, exposed) = (RwLock::new(false), AtomicBool::new(false));
        let of_each_thread = handle == PER_THREAD && device.kind() != DeviceKind::Host;
        let device = device.clone();
        Ok(Self(Arc::new(Inner {
            raw,
            _owner: owner,
            device,
            id,
            handle,
            exposed,
            borrowed,
            of_each_thread,
            capturing,
        })))
    }

    fn expose(&self) {
        self.0.exposed.store(true, Ordering::Relaxed);
    }

    /// A new stream that returns this handle, like a borrowed stream.
    #[cfg(test)]
    pub(crate) fn with_handle(device: &Device, handle: u64) -> Result<Self> {
        let mut stream = Self::new(device)?;
        if let Some(inner) = Arc::get_mut(&mut stream.0) {
            (inner.handle, inner.borrowed) = (handle, true);
        }
        Ok(stream)
    }

    /// A new stream that passes for the stream of one thread under the handle that is another stream on each thread.
    #[cfg(test)]
    pub(crate) fn for_each_thread(device: &Device) -> Result<Self> {
        let mut stream = Self::new(device)?;
        if let Some(inner) = Arc::get_mut(&mut stream.0) {
            (inner.handle, inner.of_each_thread) = (PER_THREAD, true);
        }
        Ok(stream)
    }

    #[cfg(test)]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }

    /// The stream's device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The runtime's handle as an integer. On the host device, a number for [`borrow_raw`](Self::borrow_raw), which is
    /// unique among all streams of the process, including dropped ones.
    pub fn as_raw(&self) -> u64 {
        self.expose();
        self.0.raw.raw()
    }

    /// Whether all work enqueued so far is done. Does not block.
    ///
    /// A stream does not belong to a group: a collective that gave up counts as done, and its output contains old
    /// values. Call [`Communicator::synchronize`](crate::Communicator::synchronize) before you use the output.
    ///
    /// # Errors
    /// [`Error::Device`] when some of that work failed.
    pub fn is_done(&self) -> Result<bool> {
        self.raw()?.done().caught()
    }

    /// Blocks until all work enqueued so far is done.
    ///
    /// A stream does not belong to a group: a collective that gave up counts as done, and its output contains old
    /// values. If the stream has collectives, call [`Communicator::synchronize`](crate::Communicator::synchronize)
    /// instead.
    ///
    /// # Errors
    /// [`Error::Device`] when some of that work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.raw()?.synchronize().caught()
    }

    /// Records this point of the stream in `event`. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an event of another device, [`Error::Device`] if the runtime refuses,
    /// [`Error::Unsupported`] while the stream is being captured.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.0.device.check_same("event", &event.device)?;
        event.recorded(self.is_exposed());
        self.enqueue("record an event", |raw| raw.record(&event.raw))
    }

    /// Makes work enqueued from now on wait for `event`'s last recorded point, also of another device of this kind. Does not
    /// block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an event of another kind of device, [`Error::Device`] if the runtime refuses,
    /// [`Error::Unsupported`] while the stream is being captured.
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.check_kind(&self.0.device)?;
        if event.exposes() {
            self.expose();
        }
        self.enqueue("wait for an event", |raw| raw.wait(&event.raw))
    }

    /// Drops this clone without waiting. If it is the last, another thread waits for the work in flight.
    pub(crate) fn let_go(self) {
        if let Some(last) = Arc::into_inner(self.0) {
            reaper::hand_over(Arc::new(last));
        }
    }

    /// Whether the program may destroy the stream while the library has a clone.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.0.borrowed
    }

    /// The calling thread, if the handle is another stream on each thread: then the stream is identified by both.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        self.0.of_each_thread.then(|| thread::current().id())
    }

    /// Whether both are clones, or have the same handle of the runtime. A destroyed handle may be reused for another
    /// stream: objects that keep a borrowed stream must have left it before, as [`borrow_raw`](Self::borrow_raw)
    /// requires.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.id == other.0.id || self.0.handle == other.0.handle && self.0.device.same(&other.0.device)
    }

    /// Whether the stream is being captured, by this library or natively by the program.
    pub(crate) fn is_capturing(&self) -> Result<bool> {
        self.raw()?.capturing().caught()
    }

    /// Whether the stream is being captured natively by the program. Asks the runtime only if other code has the
    /// handle, because this check is on the path of launches.
    #[inline]
    pub(crate) fn is_captured_natively(&self) -> Result<bool> {
        if self.is_exposed() { self.is_capturing() } else { Ok(false) }
    }

    /// Whether other code has the handle.
    #[inline]
    fn is_exposed(&self) -> bool {
        self.0.exposed.load(Ordering::Relaxed)
    }

    /// Enqueues eager work. Refused while the stream is being captured, because the capture's lifetime must cover the
    /// recorded work.
    pub(crate) fn enqueue(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        let _eager = self.eager(call)?;
        self.0.device.check(call, work(&self.0.raw))
    }

    /// Enqueues eager work and blocks until it is done: see [`settled`](Self::settled).
    pub(crate) fn run(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        self.settled(call, || self.0.device.check(call, work(&self.0.raw)))
    }

    /// Runs `work`, which enqueues on this stream, and blocks until all work of the stream is done, also after an error or
    /// a panic, because the caller lends the memory of the work only for that long. A capture that another thread starts
    /// meanwhile waits. If the stream is one of the host device and has no other work, the calling thread runs what `work`
    /// enqueues: a hand-over to the stream's thread and back takes longer than a small call.
    pub(crate) fn settled(&self, call: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        /// Waits for the stream if `work` panics.
        struct Settle<'a>(&'a Stream);
        impl Drop for Settle<'_> {
            fn drop(&mut self) {
                let _ = self.0.synchronize();
            }
        }
        /// Hands the stream back to its thread.
        struct TakenOver<'a>(&'a sys::Stream);
        impl Drop for TakenOver<'_> {
            fn drop(&mut self) {
                self.0.hand_back();
            }
        }
        let _eager = self.eager(call)?;
        if self.is_captured_natively()? {
            let what = format!("to {call} on a stream whose owner captures it");
            return Err(Error::unsupported(what, "it would block until a launch of the graph"));
        }
        let _taken_over = self.0.raw.take_over().then(|| TakenOver(&self.0.raw));
        let settle = Settle(self);
        let enqueued = work();
        std::mem::forget(settle);
        self.synchronize()?;
        enqueued
    }

    /// Runs `work` in a capture that is unknown to the library, like one that a stream's owner begins, and drops the
    /// recording.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub(crate) fn capture_natively<R>(&self, work: impl FnOnce() -> R) -> Result<R> {
        // SAFETY: the recording is dropped.
        let native = unsafe { self.begin_capture() }?;
        let result = work();
        drop(native);
        Ok(result)
    }

    /// The number of clones.
    #[cfg(all(test, feature = "nccl"))]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Makes the checks of `enqueue`, before any side effect.
    pub(crate) fn refuse_captured(&self, call: &'static str) -> Result<()> {
        self.eager(call).map(drop)
    }

    /// The runtime's stream, in the process that made it.
    fn raw(&self) -> Result<&sys::Stream> {
        self.0.device.check_process("a stream")?;
        Ok(&self.0.raw)
    }

    /// Prevents captures from starting while the result lives.
    #[inline]
    fn eager(&self, call: &'static str) -> Result<RwLockReadGuard<'_, bool>> {
        self.0.device.check_process("a stream")?;
        // The write lock is held when a capture is about to start or has just ended.
        self.0.capturing.try_read().filter(|capturing| !**capturing).ok_or_else(|| {
            Error::unsupported(
                format!("to {call} on a stream that is being captured"),
                "inside the closure enqueue on the capture instead",
            )
        })
    }

    /// Enqueues work for the capture that holds the stream.
    fn enqueue_captured(&self, call: &'static str, work: impl FnOnce(&sys::Stream) -> i32) -> Result<()> {
        self.0.device.check(call, work(&self.0.raw))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stream({} of {:?})", self.0.id, self.0.device)
    }
}
