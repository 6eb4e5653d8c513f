//! The crate on the CPU, or with `SYMMETRA_TEST_DEVICE=cuda` on GPUs: tokens of a model, operations, layers, norms and failures.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checkpoint;
mod experts;
mod failures;
#[cfg(feature = "cuda")]
#[path = "../../crates/candle/examples/llama/graph.rs"]
mod graph;
#[cfg(feature = "cuda")]
mod graphs;
mod layers;
#[path = "../../crates/candle/examples/llama/model.rs"]
mod model;
mod norms;
mod operations;
mod processes;
#[path = "../../crates/candle/examples/llama/random.rs"]
mod random;
mod tokens;

use candle_core::{DType, Device, Result, Tensor};
use symmetra::bootstrap::Bootstrap;
use symmetra::{Config, Determinism};
use symmetra_candle::Group;

/// Whether the tests use GPUs.
fn on_gpus() -> bool {
    std::env::var("SYMMETRA_TEST_DEVICE").is_ok_and(|device| device == "cuda")
}

/// The device of a rank, with a stream of its own. Rank r has GPU r.
fn device(rank: usize) -> Result<Device> {
    if on_gpus() { Device::new_cuda_with_stream(rank) } else { Ok(Device::Cpu) }
}

/// The world sizes for which the machine has devices.
fn worlds<const N: usize>(sizes: [usize; N]) -> impl Iterator<Item = usize> {
    let most = if on_gpus() { gpus() } else { usize::MAX };
    sizes.into_iter().filter(move |size| *size <= most)
}

#[cfg(feature = "cuda")]
fn gpus() -> usize {
    candle_core::cuda::cudarc::driver::CudaContext::device_count().unwrap() as usize
}

#[cfg(not(feature = "cuda"))]
fn gpus() -> usize {
    panic!("SYMMETRA_TEST_DEVICE=cuda needs the feature `cuda`")
}

/// Waits for the calls of a rank, and returns the error of the group, which a call on a GPU does not return.
fn settle<T>(group: &Group, called: Result<T>) -> Result<T> {
    let result = called?;
    group.device().synchronize()?;
    group.check()?;
    Ok(result)
}

/// Runs ranks as threads, whose sums are in rank order.
fn ranks<T: Send>(world_size: usize, rank: impl Fn(&Group) -> Result<T> + Sync) -> Vec<T> {
    let config = Config::default().determinism(Determinism::Exact);
    let results = Group::threads(world_size, |bootstrap| {
        let at = bootstrap.rank();
        let group = Group::open(bootstrap, &device(at)?, config.clone())?;
        let result = rank(&group)?;
        group.close()?;
        Ok(result)
    });
    results.unwrap().into_iter().map(|result: Result<T>| result.unwrap()).collect()
}

fn on_cpu(tensor: &Tensor) -> Tensor {
    tensor.to_device(&Device::Cpu).unwrap()
}

/// The bits of the elements; every type but i64 beyond 2^53 is exact in f64.
fn bits(tensor: &Tensor) -> Vec<u64> {
    values(tensor).into_iter().map(f64::to_bits).collect()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let tensor = on_cpu(tensor);
    // Some of candle's conversions from 8-bit floats to f64 do not end.
    let tensor = match tensor.dtype() {
        DType::F8E4M3 => tensor.to_dtype(DType::F32).unwrap(),
        _ => tensor,
    };
    tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// The largest difference of two tensors.
fn difference(left: &Tensor, right: &Tensor) -> f64 {
    assert_eq!(left.dims(), right.dims());
    let pairs = values(left).into_iter().zip(values(right));
    pairs.map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}
