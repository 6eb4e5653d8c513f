//! Captured work that can be launched any number of times.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cxx::UniquePtr;

use super::{Capture, Stream, reaper};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::sys::device as sys;

/// What a communicator adds to a graph: it is asked before every launch and lives as long as
/// the graph or a launch of it.
pub(crate) trait Part: Any + Send + Sync {
    /// The capture ends: what was recorded on other streams is brought back to the captured one.
    fn end(&self, _capture: &Capture<'_, '_>) -> Result<()> {
        Ok(())
    }
    /// Runs `launch` while what the graph uses stays there; refuses where it may not be launched now.
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        launch()
    }
    /// Orders the launch on `stream` after other work. No part refuses any more: what is noted will run.
    fn before_launch(&self, stream: &Stream) -> Result<()>;
    /// Exchanges pointers captured for the first time. Collective.
    fn register(&self) -> Result<()>;
}

/// Captured work. Launching is asynchronous; a launch in flight outlives the graph.
///
/// `'env` is the life of the operands that are borrowed: the borrow checker keeps them until the graph is gone,
/// and a keepalive inside the graph keeps their memory until the last launch is done. A graph that owns all of its
/// operands ([`Capture::keep`]) is a `Graph<'static>`.
pub struct Graph<'env> {
    raw: UniquePtr<sys::Graph>,
    parts: Arc<Vec<(u64, Arc<dyn Part>)>>,
    device: Device,
    /// Dropped after `raw`.
    _kept: Vec<Kept>,
    _env: PhantomData<&'env ()>,
}

/// What a graph owns of the caller's.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

impl Graph<'_> {
    pub(super) fn finish(
        device: &Device,
        mut native: UniquePtr<sys::Capture<'_>>,
        parts: Vec<(u64, Arc<dyn Part>)>,
        kept: Vec<Kept>,
    ) -> Result<Self> {
        let parts = Arc::new(parts);
        let keepalive = match keepalive(parts.clone()) {
            Ok(keepalive) => keepalive,
            Err(error) => {
                // First: devices free nothing while they record.
                drop(native);
                return Err(error);
            }
        };
        let raw = match native.as_mut() {
            // SAFETY: the capture is live; `finish` is called once, here.
            Some(native) => unsafe { native.finish(keepalive) }?,
            None => return Err(Error::Internal { message: "a device room returned no capture".to_owned() }),
        };
        if raw.is_null() {
            return Err(Error::Internal { message: "a device room returned no graph".to_owned() });
        }
        Ok(Self { raw, parts, device: device.clone(), _kept: kept, _env: PhantomData })
    }

    /// Exchanges between all ranks the pointers that were captured for the first time, so that
    /// the graph can be launched. Collective over every communicator in the graph; blocks. A
    /// graph without such pointers needs no call, and one more call does no harm: on the CPU those of ranks that
    /// are processes are none.
    ///
    /// From here on peers have the memory mapped, and after a launch that failed they may still write there. So a
    /// [`DeviceBuffer`](crate::DeviceBuffer) stays allocated, also when it and the graph are dropped, until they have
    /// dropped their graphs too. That is seen when something is registered or adopted next, which then waits for the
    /// devices of the ranks, and when the communicator is closed. Where it is dropped instead, or closing it fails,
    /// nothing tells what other processes still use, and memory that they had mapped is leaked. For memory of others
    /// ([`Ref::from_raw`](crate::Ref::from_raw)) the caller sees to it, as
    /// [`Communicator::adopt`](crate::Communicator::adopt) asks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when the ranks captured different numbers or sizes of pointers, or not the same ones
    /// again at the same places: what is one buffer here is one buffer on every rank.
    pub fn register(&self) -> Result<()> {
        self.parts.iter().try_for_each(|(_, part)| part.register())
    }

    /// Enqueues all of the captured work on `stream`. Does not block.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] before [`register`](Self::register) where it is needed,
    /// [`Error::Closed`] after the communicator was closed, the group's error when it failed,
    /// [`Error::InvalidArgument`] for a stream of another device, [`Error::Unsupported`] for one that is being captured.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.device.check_same("stream", stream.device())?;
        stream.refuse_captured("launch a graph")?;
        keep(&self.parts, &|| {
            self.parts.iter().try_for_each(|(_, part)| part.before_launch(stream))?;
            stream.enqueue("launch a graph", |raw| self.raw.launch(raw))
        })
    }
}

/// Runs `launch` while what every part uses stays there.
fn keep(parts: &[(u64, Arc<dyn Part>)], launch: &dyn Fn() -> Result<()>) -> Result<()> {
    match parts.split_first() {
        Some(((_, part), others)) => part.keep(&|| keep(others, launch)),
        None => launch(),
    }
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Graph(on {:?})", self.device)
    }
}

/// A bundle that C++ gives back through `release` when graph and launches are gone.
type Bundle = Arc<Vec<(u64, Arc<dyn Part>)>>;

fn keepalive(bundle: Bundle) -> Result<sys::Keepalive> {
    reaper::start()?;
    Ok(sys::Keepalive { data: Box::into_raw(Box::new(bundle)).cast(), release })
}

/// Called from any thread, where no device call is allowed: so only hands the bundle on.
extern "C" fn release(data: *mut c_void) {
    // SAFETY: `data` came from `keepalive`, and C++ calls this once.
    let bundle = unsafe { Box::from_raw(data.cast::<Bundle>()) };
    reaper::hand_over(*bundle);
}
