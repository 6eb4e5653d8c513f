//! GEMMs fused with collectives, for tensor parallel layers: all-gather + matmul, matmul + reduce-scatter, matmul +
//! all-reduce.
//!
//! A plan is made once for a shape, by all ranks together, and enqueued any number of times: eagerly, or in a graph. A plan has
//! one of two schedules. A sequence runs the collective and the GEMM one after the other. A pipeline runs part by part, so that
//! copy engines move a part while the multiprocessors multiply another part (as PyTorch's asynchronous tensor parallelism and
//! TransformerEngine's userbuffers do). Both schedules give equal bits if the collective sums in rank order, on the CPU and, with
//! [`Determinism::Exact`](crate::Determinism::Exact), on GPUs, provided that cuBLASLt computes a row of a part like a row of the
//! whole. A large all-reduce by a ring does not sum in rank order.
//!
//! Calls of a plan on several streams, and launches of graphs that contain such calls, run one after another. While a thread
//! launches such a graph, no other thread may call the plan, because that call could run between the halves of the graph's call.
//!
//! ```
//! use symmetra::bootstrap::Threads;
//! use symmetra::fused::FusedOptions;
//! use symmetra::matmul::{Numeric, Product, Tensor};
//! use symmetra::{Communicator, Config, Device, DeviceBuffer, Stream};
//!
//! let bootstrap = Threads::new(1)?.remove(0);
//! let device = Device::host()?;
//! let stream = Stream::new(&device)?;
//! let communicator = Communicator::open(bootstrap, &device, Config::default())?;
//! // 4 rows of 2 on each rank; a weight of [3][2].
//! let product = Product::new(2, 3, Numeric::F32);
//! let plan = communicator.plan_all_gather_matmul(&[4, 2], 0, &[product], FusedOptions::default())?;
//! let shard = DeviceBuffer::from_slice(&[1f32; 8], &stream)?;
//! let weight = DeviceBuffer::from_slice(&[2f32; 6], &stream)?;
//! let result = DeviceBuffer::<f32>::new(&device, 4 * 3)?;
//! plan.enqueue(Tensor::of(&shard), None, [(Tensor::of(&weight), Tensor::of(&result))], &stream)?;
//! assert_eq!(result.read(&stream)?, [4.0; 12]);
//! drop(plan);
//! communicator.close()?;
//! # Ok::<(), symmetra::Error>(())
//! ```

mod all_gather;
mod all_reduce;
mod apart;
mod cost;
mod division;
mod options;
mod parts;
mod plan;
mod reduce_scatter;

pub use all_gather::AllGatherMatmul;
pub use all_reduce::MatmulAllReduce;
pub use options::{FusedOptions, Planned, Way};
pub use reduce_scatter::MatmulReduceScatter;
