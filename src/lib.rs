#![doc = include_str!("../README.md")]

mod api;
mod backend;
pub mod bootstrap;
mod capi;
mod collective;
mod device;
#[cfg(feature = "gloo")]
mod engine;
pub mod environment;
mod error;
mod exit;
mod fork;
mod group;
#[cfg(any(feature = "cudarc", feature = "hip-sys"))]
pub mod interop;
mod kernel;
mod log;
mod memory;
#[cfg(feature = "nccl")]
pub mod nccl;
pub mod op;
mod stream;
mod sys;
mod types;
mod variables;

pub use api::How;
pub use collective::{
    BoundAllReduce, Communicator, Pending, Range, TransportRange, explain, explain_broadcast, explain_exchange,
};
pub use device::{Device, DeviceKind, HostShape};
pub use error::{Error, Operation, Parameter, Result};
pub use group::{Config, Deadlines, Determinism, Group, MAX_WORLD_SIZE, TunedRow, TunedTable, TunedTiming, Tuning};
pub use memory::{
    Adopted, DeviceBuffer, Operand, Ref, SIGNAL_CHANNELS, SignalPad, SymmetricBuffer, SymmetricSlice, required_bytes,
};
pub use op::{Algorithm, AllReduceOptions, Messages};
pub use stream::{Capture, Event, Graph, Queue, Stream};
pub use types::{Dtype, Element, Reduction, Transport};

/// The parts that the package `symmetra-ring` uses. Not part of the public interface: may change in any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::bootstrap::hello::{Agreed, check_agreed, check_complaints, tell};
    pub use crate::bootstrap::mesh::Mesh;
    pub use crate::bootstrap::monitor::Monitor;
    pub use crate::bootstrap::wait::{LONGEST, until};
    pub use crate::group::boot_id;
    pub use crate::log::without_subscriber;
    pub use tracing;
}

/// Any thread may use groups, streams, memory and graphs. A [`Capture`] stays on its thread.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Communicator>();
    any_thread::<Stream>();
    any_thread::<Graph<'static>>();
    any_thread::<SymmetricBuffer<f32>>();
    any_thread::<DeviceBuffer<f32>>();
};
