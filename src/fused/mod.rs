//! Products fused with collectives, for tensor parallel layers: all-gather + matmul, matmul + reduce-scatter, matmul +
//! all-reduce.
//!
//! A plan is made once for a shape, by all ranks together, and enqueued any number of times: eagerly, or in a graph. Ways of
//! a plan are the collective and the product one after the other, or part by part, so that copy engines move a part while
//! the multiprocessors multiply another (PyTorch's asynchronous tensor parallelism and TransformerEngine's userbuffers do the
//! same). On the CPU, and on GPUs with [`Determinism::Exact`](crate::Determinism::Exact) as far as cuBLASLt computes a row of a
//! part as it computes the row of the whole, both ways give equal bits, where the collective sums in rank order: a large
//! all-reduce by a ring does not.
//!
//! Calls of a plan on several streams, and launches of graphs that hold them, run one after another. While a thread launches
//! such a graph, no other thread calls the plan: a call could come between the halves of that call.
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
