//! Graphs: captured work that can be launched any number of times.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cxx::UniquePtr;

use super::Stream;
use super::keepalive::keepalive;
use super::recording::{GraphPart, GraphParts, Kept};
use crate::device::Device;
use crate::error::Result;
use crate::fork::OfMaker;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

/// Captured work. Launching is asynchronous; a launch in flight outlives the graph.
///
/// `'env` is the life of the borrowed operands. The borrow checker keeps them until the graph is dropped, and the graph
/// keeps their memory until its last launch is done. A graph that owns all its operands
/// ([`Capture::keep`](super::Capture::keep)) is a `Graph<'static>`.
///
/// A graph that is not kept runs nothing, which is a warning:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use symmetra::*;
/// fn capture(buffer: &DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<()> {
///     stream.capture(|capture| communicator.all_reduce_in_place(buffer, capture))?;
///     Ok(())
/// }
/// ```
/// Here the graph is launched:
/// ```
/// #![deny(unused_must_use)]
/// # use symmetra::*;
/// fn capture(buffer: &DeviceBuffer<f32>, communicator: &Communicator, stream: &Stream) -> Result<()> {
///     let graph = stream.capture(|capture| communicator.all_reduce_in_place(buffer, capture))?;
///     graph.register()?;
///     graph.launch(stream)
/// }
/// ```
#[must_use = "captured work runs only when the graph is launched"]
pub struct Graph<'env> {
    raw: Raw,
    parts: Arc<GraphParts>,
    /// Dropped after `raw`.
    _kept: Vec<Kept>,
    _env: PhantomData<&'env ()>,
}

/// The runtime's graph. A separate type, so that a [`Graph`] may outlive what it borrows until it is dropped.
pub(super) struct Raw {
    /// A forked child has no thread that could end a launch.
    pub(super) graph: OfMaker<UniquePtr<sys::Graph>>,
    pub(super) device: Device,
}

impl Graph<'_> {
    pub(super) fn finish(
        device: &Device,
        mut native: UniquePtr<sys::Capture<'_>>,
        parts: GraphParts,
        kept: Vec<Kept>,
    ) -> Result<Self> {
        let parts = Arc::new(parts);
        let keepalive = match keepalive(parts.clone()) {
            Ok(keepalive) => keepalive,
            Err(error) => {
                // Dropped first: devices free nothing while they record.
                drop(native);
                return Err(error);
            }
        };
        // SAFETY: the capture is live; `finish` is called once, here.
        let raw = unsafe { native.pin_mut().finish(keepalive) }.caught()?;
        let raw = Raw { graph: OfMaker::new(made(raw, "graph")?), device: device.clone() };
        Ok(Self { raw, parts, _kept: kept, _env: PhantomData })
    }

    /// Exchanges between all ranks the pointers that were captured for the first time. Collective over every
    /// communicator in the graph, in the order in which they were opened; blocks. A graph without such pointers needs
    /// no call, and further calls have no effect. On the CPU, ranks in separate processes share no plain pointers.
    ///
    /// From now on, peers have the memory mapped, and after a failed launch they may still write to it. A
    /// [`DeviceBuffer`](crate::DeviceBuffer) therefore stays allocated, even if it and the graph are dropped, until
    /// peers have dropped their graphs too. The next registration or adoption detects this, and then waits for the
    /// devices of the ranks; so does closing the communicator. If the communicator is dropped instead, or closing it
    /// fails, memory that other processes had mapped is leaked. For memory from
    /// [`Ref::from_raw`](crate::Ref::from_raw), the requirements of [`Communicator::adopt`](crate::Communicator::adopt)
    /// apply.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the ranks captured different numbers or sizes of pointers, or
    /// reused pointers at different places: one buffer on one rank must be one buffer on every rank.
    pub fn register(&self) -> Result<()> {
        self.parts.iter().try_for_each(|(_, part)| part.register())
    }

    /// Enqueues all captured work on `stream`. Does not block.
    ///
    /// # Errors
    /// [`Error::NotRegistered`](crate::Error::NotRegistered) if [`register`](Self::register) is required and was not
    /// called. [`Error::Closed`](crate::Error::Closed) after the communicator was closed; the group's error if the
    /// group has failed. [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device.
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a stream that [`Stream::capture`] records.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.raw.device.check_same("stream", stream.device())?;
        stream.refuse_captured("launch a graph")?;
        self.parts.iter().try_for_each(|(_, part)| part.admit())?;
        keep(&self.parts, &|| {
            self.parts.iter().try_for_each(|(_, part)| part.before_launch(stream))?;
            stream.enqueue("launch a graph", |raw| self.raw.graph.launch(raw))?;
            self.parts.iter().try_for_each(|(_, part)| part.after_launch(stream))
        })
    }
}

/// Runs `launch` while every part keeps the memory that it uses alive.
fn keep(parts: &[(u64, Arc<dyn GraphPart>)], launch: &dyn Fn() -> Result<()>) -> Result<()> {
    match parts.split_first() {
        Some(((_, part), others)) => part.keep(&|| keep(others, launch)),
        None => launch(),
    }
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Graph(on {:?})", self.raw.device)
    }
}
