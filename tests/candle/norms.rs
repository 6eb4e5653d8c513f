//! The norm of a sum, compared with the sum, candle's addition and candle's norm.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::rms_norm;

use crate::{bits, on_gpus, ranks, values, worlds};

fn random(seed: u64, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let mut random = fastrand::Rng::with_seed(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| 4.0 * random.f32() - 2.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)
}

/// The norm of rows in f64.
fn exact(rows: &Tensor, weight: &Tensor) -> Vec<f64> {
    let weight = values(weight);
    let row = |row: &[f64]| {
        let root = (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + 1e-5).sqrt();
        row.iter().zip(&weight).map(|(x, weight)| x * weight / root).collect::<Vec<_>>()
    };
    values(rows).chunks(weight.len()).flat_map(row).collect()
}

#[test]
fn a_norm_of_a_sum_is_the_norm_of_candle_within_a_rounding() {
    let seed = fastrand::u64(..u64::MAX / 2);
    eprintln!("seed {seed}");
    // The distances of 1 and the next number. Candle rounds sums of squares of f32, and twice to other types.
    for (dtype, unit, of_candle) in [
        (DType::F32, 2.0_f64.powi(-23), 16.0),
        (DType::F16, 2.0_f64.powi(-10), 2.0),
        (DType::BF16, 2.0_f64.powi(-7), 2.0),
    ] {
        let bound = if dtype == DType::F32 { 2.0 } else { 0.51 };
        for (world_size, shape) in [(1, &[5, 96][..]), (2, &[1, 1, 512]), (3, &[2, 3, 33]), (4, &[64]), (2, &[0, 8])] {
            if worlds([world_size]).next().is_none() || (on_gpus() && shape.contains(&0)) {
                continue;
            }
            ranks(world_size, |group| {
                let random = |seed, shape| random(seed, shape, dtype)?.to_device(group.device());
                let own = random(seed + group.rank() as u64, shape)?;
                let residual = random(seed + 100, shape)?;
                let weight = random(seed + 101, &shape[shape.len() - 1..])?;
                for residual in [Some(&residual), None] {
                    let sum = group.all_reduce(&own)?;
                    let sum = residual.map_or(Ok(sum.clone()), |residual| sum + residual)?;
                    let (normed, rows) = group.all_reduce_norm(&own, residual, &weight, 1e-5)?;
                    assert_eq!((normed.dims(), normed.dtype()), (shape, dtype));
                    assert_eq!((rows.dims(), bits(&rows)), (shape, bits(&sum)), "{dtype:?}");
                    let found = values(&normed);
                    for (expected, bound) in
                        [(exact(&sum, &weight), bound), (values(&rms_norm(&sum, &weight, 1e-5)?), of_candle)]
                    {
                        for (found, expected) in found.iter().zip(expected) {
                            let limit = bound * unit * expected.abs() + 1e-7;
                            assert!((found - expected).abs() <= limit, "{dtype:?} {shape:?}: {found} and {expected}");
                        }
                    }
                }
                Ok(())
            });
        }
    }
}
