//! The crate on the CPU: tokens of a model, operations, layers, norms and failures.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checkpoint;
mod experts;
mod failures;
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
use symmetra::{Config, Determinism};
use symmetra_candle::Group;

/// Runs ranks as threads, whose sums are in rank order.
fn ranks<T: Send>(world_size: usize, rank: impl Fn(&Group) -> Result<T> + Sync) -> Vec<T> {
    let config = Config::default().determinism(Determinism::Exact);
    let results = Group::threads(world_size, |bootstrap| {
        let group = Group::open(bootstrap, &Device::Cpu, config.clone())?;
        let result = rank(&group)?;
        group.close()?;
        Ok(result)
    });
    results.unwrap().into_iter().map(|result: Result<T>| result.unwrap()).collect()
}

/// The bits of the elements; every type but i64 beyond 2^53 is exact in f64.
fn bits(tensor: &Tensor) -> Vec<u64> {
    values(tensor).into_iter().map(f64::to_bits).collect()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    // Some of candle's conversions from 8-bit floats to f64 do not end.
    let tensor = match tensor.dtype() {
        DType::F8E4M3 => tensor.to_dtype(DType::F32).unwrap(),
        _ => tensor.clone(),
    };
    tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// The largest difference of two tensors.
fn difference(left: &Tensor, right: &Tensor) -> f64 {
    assert_eq!(left.dims(), right.dims());
    let pairs = values(left).into_iter().zip(values(right));
    pairs.map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}
