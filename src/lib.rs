//! GPU collectives for LLM inference inside one host. The same kernels run on the CPU.
//!
//! ```
//! use symmetra::bootstrap::{Bootstrap, Threads};
//! use symmetra::{Communicator, Config, Device, Result, Stream};
//!
//! fn rank(bootstrap: impl Bootstrap) -> Result<Vec<f32>> {
//!     let device = Device::host()?; // or Device::cuda(bootstrap.rank())?
//!     let stream = Stream::new(&device)?;
//!     let communicator = Communicator::open(bootstrap, &device, Config::default())?;
//!     let values = communicator.symmetric::<f32>(3)?;
//!     values.write(&[1.0, 2.0, 3.0], &stream)?;
//!     communicator.all_reduce_in_place(&values, &stream)?;
//!     communicator.synchronize(&stream)?;
//!     let sums = values.read(&stream)?;
//!     communicator.close()?;
//!     Ok(sums)
//! }
//!
//! let ranks = Threads::new(2)?.into_iter().map(|bootstrap| std::thread::spawn(|| rank(bootstrap)));
//! for rank in ranks.collect::<Vec<_>>() {
//!     assert_eq!(rank.join().unwrap()?, [2.0, 4.0, 6.0]);
//! }
//! # Ok::<(), symmetra::Error>(())
//! ```
//!
//! The repository has a tutorial (`docs/tutorial.md`), pages on every topic (`docs/`), and a table of all operations
//! (`README.md`).
//!
//! # Which type do I need?
//!
//! ## To run collectives
//!
//! **[`Communicator`]**: the ranks of one host, and their memory.
//! Each rank opens it with a bootstrap, a device and a [`Config`].
//! Its methods are the operations: [`all_reduce`](ProcessGroup::all_reduce), [`all_gather`](ProcessGroup::all_gather)
//! and the others. They enqueue and return; [`synchronize`](Communicator::synchronize) waits and returns errors.
//!
//! **[`Environment`](environment::Environment)**: tensor, pipeline, data and expert parallel groups, opened together.
//! It reads the variables that torchrun and `symmetra launch` set, and picks the device of the rank.
//! Each group is a [`Coordinator`](environment::Coordinator), which has the operations of a communicator.
//! A coordinator can also span hosts, and can send its calls to NCCL.
//! [`Coordinator::open`](environment::Coordinator::open) opens one group alone.
//!
//! **[`ProcessGroup`]**: the operations. A communicator and a coordinator dereference to it, so each has its methods.
//! A function that serves both takes `&ProcessGroup`.
//!
//! **[`Device`]** and **[`Stream`]**: the GPU or CPU that a rank works on, and a queue of work on it.
//! One `Device` a rank: memory, streams and communicators that work together use clones of one device.
//! An engine lends its own stream by [`Stream::borrow_raw`].
//! A stream does not report whether a collective gave up: ask the communicator.
//!
//! **[`bootstrap`]**: how ranks find each other.
//! [`Threads`](bootstrap::Threads) for ranks that are threads of one process.
//! [`Tcp`](bootstrap::Tcp) for processes that a launcher starts; [`Local`](bootstrap::Local) for processes that share a
//! directory. A program with its own channel implements [`Bootstrap`](bootstrap::Bootstrap).
//!
//! ## To hold data
//!
//! **[`SymmetricBuffer`]**: memory that every rank can address; the fastest operand.
//! [`Communicator::symmetric`] makes it on all ranks at once, in the heap of the group.
//! Its [`SignalPad`] orders reads and writes of the ranks, also for your own kernels.
//! A part of it is a [`SymmetricSlice`].
//!
//! **[`DeviceBuffer`]**: memory of this rank only.
//! Every operation takes it. In eager calls its data pass through scratch.
//! In a [`Graph`], [`register`](Graph::register) lets peers address it.
//! A part of it is a [`Ref`].
//!
//! **[`Ref`]**: memory that the program has already, by its address.
//! [`Ref::from_raw`] borrows it; it is unsafe, because only the program knows how long the memory lives.
//! It is an operand as a `DeviceBuffer` is.
//! The module `interop` (features `cudarc`, `hip-sys`) makes one from the types of these crates.
//!
//! **[`Adopted`]**: memory of the program that peers can address.
//! [`Communicator::adopt`] exchanges the addresses of all ranks.
//! Its eager calls are as fast as those of symmetric memory.
//! Where some rank cannot share its memory, results are equal and slower.
//!
//! ## To multiply
//!
//! **[`matmul::Multiplier`]**: GEMMs on a stream or in a graph.
//! cuBLASLt multiplies on NVIDIA GPUs; it is found at run time. The CPU multiplies with the same types and shapes.
//! A [`matmul::Product`] describes shapes and types, a [`matmul::Tensor`] is an operand.
//!
//! **[`fused`]**: GEMMs fused with an all-gather, a reduce-scatter or an all-reduce, for tensor parallel layers.
//! [`plan_all_gather_matmul`](ProcessGroup::plan_all_gather_matmul) and its siblings make a plan, which is enqueued any
//! number of times.
//!
//! ## To communicate from your own kernels
//!
//! **[`HeapView`]**: the memory of all ranks, for a kernel on a GPU or on the CPU.
//! [`Communicator::heap`] makes it; the functions of `symmetra/device/heap.cuh` take it.
//! [`launch_host`] runs a kernel on the CPU, in the order of a stream.
//! A [`PeerView`] is one buffer on all ranks, a [`PadView`] its signals.
//!
//! ## To repeat work
//!
//! **[`Graph`]**: captured work that is launched any number of times.
//! [`Stream::capture`] records what a closure enqueues on its [`Capture`].
//! A graph borrows its operands, or owns the values passed to [`Capture::keep`].
//! The fastest way to run a step.
//!
//! **[`BoundAllReduce`]**: one all-reduce, checked and planned once.
//! [`bind_all_reduce`](ProcessGroup::bind_all_reduce) makes it.
//! Its [`enqueue`](BoundAllReduce::enqueue) does no look-ups and takes no lock.
//! For eager calls where each microsecond of the host counts.
//!
//! **[`Pending`]**: a collective by copy engines, which leaves the multiprocessors to other kernels.
//! [`low_contention_all_gather`](ProcessGroup::low_contention_all_gather) and
//! [`low_contention_reduce_scatter`](ProcessGroup::low_contention_reduce_scatter) return it.
//! A stream that needs the result calls [`wait`](Pending::wait).
//!
//! ## To choose and to diagnose
//!
//! **[`Config`]**: the settings of a group; equal on all ranks.
//! [`Deadlines`] bound every wait; [`Determinism`] states what the bits of a sum may depend on.
//! [`Tuning`] loads the measurements of `symmetra tune`.
//! [`AllReduceOptions`] choose a [`Reduction`], an [`Algorithm`] and a [`Codec`] for one call.
//!
//! **[`Error`]**: the cause of a failure, and the rank that caused it.
//! An error of the caller changes nothing; after a failure every call of the group returns the same error.
//! The survivors may open another group.
//! `docs/guarantees.md` lists every error.
//!
//! **[`observe`]**: running groups, seen from outside of their processes: which rank waits for which.
//! `symmetra status` prints them.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | none | the CPU |
//! | `cuda`, `hip` | NVIDIA GPUs, AMD GPUs |
//! | `nccl` | NCCL or RCCL as a backend, between hosts too |
//! | `nvshmem` | NVSHMEM's memory as operands |
//! | `multicast` | sums and stores by multicast; has run only on the host device |
//! | `gloo` | ranks on several hosts, through the CPU |
//! | `timing` | kernels of GPUs that can record when calls begin and end: [`Config::timing`] |
//! | `nvtx` | a range of NVTX around each call, in the domain `symmetra`, while a profiler is attached |
//! | `metrics` | the counters `symmetra_calls` and `symmetra_call_bytes` of the crate `metrics`, by `operation` and `group` |
//! | `cudarc`, `hip-sys` | conversions from the types of these crates |

mod api;
mod backend;
pub mod bootstrap;
mod capi;
mod cbor;
mod choice;
mod collective;
mod device;
#[cfg(feature = "gloo")]
mod engine;
pub mod environment;
mod error;
mod exit;
pub mod experts;
mod fork;
pub mod fused;
mod group;
#[cfg(any(feature = "cudarc", feature = "hip-sys"))]
pub mod interop;
mod kernel;
mod loader;
mod log;
pub mod matmul;
mod memory;
pub mod mixed;
#[cfg(feature = "nccl")]
pub mod nccl;
#[cfg(feature = "nvshmem")]
pub mod nvshmem;
pub mod observe;
pub mod op;
mod settings;
mod stream;
mod sys;
mod types;
mod variables;

pub use api::How;
pub use backend::ProcessGroup;
pub use choice::{Range, Ranges};
pub use collective::{
    BoundAllReduce, Communicator, Pending, explain, explain_broadcast, explain_exchange, explain_norm,
    explain_quantised_norm, explain_reduction,
};
pub use device::{Device, DeviceKind, HostShape};
pub use error::{Error, Operation, Parameter, Result};
pub use group::{
    Config, Deadlines, Determinism, Group, MAX_WORLD_SIZE, Multicast, TunedCodec, TunedExperts, TunedGrid, TunedNorm,
    TunedRow, TunedTable, TunedTiming, Tuning,
};
pub use memory::{
    Adopted, AdoptedSlice, DeviceBuffer, HeapView, HostBuffer, MulticastData, MulticastView, Operand, PadView,
    PeerView, Ref, SIGNAL_CHANNELS, SignalPad, SymmetricBuffer, SymmetricSlice, Untyped, copy, copy_from_host,
    copy_to_host, required_bytes,
};
pub use op::{
    Algorithm, AllReduceOptions, Codec, LayerNorm, Messages, Narrow, Norm, Pairs, Quantisation, RmsNorm, RowNorm,
    ScaleLayout,
};
pub use stream::{AnyQueue, Capture, Event, Graph, NativeCapture, NativeGraph, Queue, Stream, launch_host};
pub use types::{Dtype, Element, Reduction, Transport};

// Their types are a part of this interface: elements, and values of `environment::NamedValue`.
pub use {float8, half, serde_json};

/// The parts that the packages `symmetra-ring` and `symmetra-nccl` use. Not part of the public interface: may change in
/// any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::bootstrap::hello::{Agreed, check_agreed, check_complaints, tell};
    pub use crate::bootstrap::host::boot_id;
    pub use crate::bootstrap::mesh::Mesh;
    pub use crate::bootstrap::monitor::Monitor;
    pub use crate::bootstrap::wait::{LONGEST, until};
    pub use crate::cbor::{decode, encode};
    pub use crate::collective::{Factor, Scale};
    pub use crate::fork::Maker;
    pub use crate::loader::search::{Wanted, open_real};
    pub use crate::log::without_subscriber;
    pub use crate::observe::failed::failed_wait;
    pub use tracing;
}

/// The examples of README are tests too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Any thread may use groups, streams, memory and graphs. A [`Capture`] stays on its thread.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Communicator>();
    any_thread::<Stream>();
    any_thread::<Graph<'static>>();
    any_thread::<SymmetricBuffer<f32>>();
    any_thread::<DeviceBuffer<f32>>();
};
