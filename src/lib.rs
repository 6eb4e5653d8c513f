#![doc = include_str!("../README.md")]

pub mod bootstrap;
mod collective;
mod device;
#[cfg(feature = "gloo")]
mod engine;
pub mod environment;
mod error;
mod ffi;
mod group;
#[cfg(any(feature = "cudarc", feature = "hip-sys"))]
pub mod interop;
mod kernel;
mod memory;
pub mod metadata;
#[cfg(feature = "nccl")]
pub mod nccl;
mod stream;
mod types;
mod variables;

pub use collective::{
    Algorithm, AllReduceOptions, Batch, BoundAllReduce, Communicator, Pending, Range, TransportRange, explain,
    explain_broadcast, explain_exchange,
};
pub use device::{Device, DeviceKind, HostShape};
pub use error::{Error, Operation, Result};
pub use group::{Config, Deadlines, Determinism, Group, MAX_WORLD_SIZE, TunedRow, TunedTable, TunedTiming, Tuning};
pub use memory::{
    Adopted, DeviceBuffer, Operand, Ref, SIGNAL_CHANNELS, SignalPad, SymmetricBuffer, SymmetricSlice, required_bytes,
};
pub use stream::{Capture, Event, Graph, Queue, Stream};
pub use types::{Dtype, Element, Reduction, Transport};
