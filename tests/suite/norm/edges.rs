//! Numbers at the edges: zeros of both signs, denormals, the greatest numbers, infinities and NaNs, in input, residual
//! and weight.

use half::{bf16, f16};
use reference::element::{Real, WideElement};
use reference::norm;
use symmetra::{Algorithm, DeviceBuffer, LayerNorm, Norm, RmsNorm, RowNorm};

use crate::support::data::{assert_same, mix};
use crate::support::specials::{Bits, special_data};
use crate::support::{Data, Rank, Sample, config, fits, threads};

const HIDDEN: usize = 37;
const COUNT: usize = 60;

/// Norms rows, and compares.
fn check<T: Real + Sample>(rank: &Rank, data: &Data<T>, residual: &[T], weight: &[T], norm: impl Into<Norm>) {
    let norm = norm.into();
    let Rank { communicator, stream, device, .. } = rank;
    let input = communicator.symmetric::<T>(data.sums.len()).unwrap();
    input.write(&data.inputs[rank.rank()], stream).unwrap();
    let (residual_in, weight_in) =
        (DeviceBuffer::from_slice(residual, stream).unwrap(), DeviceBuffer::from_slice(weight, stream).unwrap());
    let output = DeviceBuffer::<T>::new(device, data.sums.len()).unwrap();
    let rows = RowNorm::new(&input, &weight_in, norm).residual(&residual_in).residual_out(&residual_in);
    communicator.all_reduce_norm(rows.output(&output), stream).unwrap();
    rank.finish();
    let x = norm::with_residual(&data.sums, Some(residual));
    assert_same(&residual_in.read(stream).unwrap(), &x, &(rank.rank(), norm));
    let expected = norm::normed(&x, weight, norm);
    assert_same(&output.read(stream).unwrap(), &expected, &(rank.rank(), norm));
}

fn specials<T: Bits + Real>(world: usize) {
    let data = special_data::<T>(world, HIDDEN * COUNT);
    let others = special_data::<T>(2, HIDDEN * COUNT);
    let ordinary: Vec<T> = (0..HIDDEN).map(|index| T::sample(mix(index as u64))).collect();
    let zeros = vec![T::of_single(-0.0); HIDDEN * COUNT];
    threads(world, &config(), |rank| {
        let rms = [RmsNorm::new(0.0), RmsNorm::gemma(1e-5), RmsNorm::new(f32::INFINITY)].map(Norm::from);
        let layer = [LayerNorm::new(0.0), LayerNorm::new(1e-5), LayerNorm::new(f32::INFINITY)].map(Norm::from);
        for norm in rms.into_iter().chain(layer) {
            check(rank, &data, &others.inputs[0], &others.inputs[1][..HIDDEN], norm);
            check(rank, &data, &zeros, &ordinary, norm);
        }
    });
}

#[test]
fn special_values_of_every_type() {
    for world in [1, 2, 3] {
        if fits(world) {
            specials::<bf16>(world);
            specials::<f16>(world);
            specials::<f32>(world);
        }
    }
}

/// A row of zeros is zero, and NaN without an epsilon. Squares beyond f32 make the scale 0. The greatest and the least
/// values of a row keep the definition.
#[test]
fn rows_whose_squares_leave_single_precision() {
    for value in [0.0, -0.0, 3e38, -3e38, 1e-38, 1e-44, 1.9e19] {
        let data = Data::<f32>::of(vec![vec![value; HIDDEN * 2], vec![-0.0; HIDDEN * 2]]);
        let zeros = vec![-0.0; HIDDEN * 2];
        threads(2, &config(), |rank| {
            let rms = [RmsNorm::new(0.0), RmsNorm::new(1e-6), RmsNorm::gemma(0.0)].map(Norm::from);
            let layer = [LayerNorm::new(0.0), LayerNorm::new(1e-6)].map(Norm::from);
            for norm in rms.into_iter().chain(layer) {
                check(rank, &data, &zeros, &[-0.0; HIDDEN], norm);
                check(rank, &data, &zeros, &[1.5; HIDDEN], norm);
            }
        });
    }
}

/// Against double precision: the error is that of the last rounding, and a few steps of f32 (Higham's bound of sums of
/// trees is far below).
#[test]
fn the_error_is_bounded() {
    let hidden = 4096;
    let data = Data::<bf16>::new(3, 2, hidden * 8);
    let weight: Vec<bf16> = (0..hidden).map(|index| bf16::sample(mix(index as u64))).collect();
    threads(2, &config(), |rank| {
        let input = rank.communicator.symmetric::<bf16>(hidden * 8).unwrap();
        input.write(&data.inputs[rank.rank()], &rank.stream).unwrap();
        let weight_in = DeviceBuffer::from_slice(&weight, &rank.stream).unwrap();
        let rows = RowNorm::new(&input, &weight_in, RmsNorm::new(1e-6)).output(&input);
        rank.communicator.all_reduce_norm(rows, &rank.stream).unwrap();
        rank.finish();
        let found = input.read(&rank.stream).unwrap();
        for (x, y) in data.sums.chunks(hidden).zip(found.chunks(hidden)) {
            let mean = x.iter().map(|x| x.wide().powi(2)).sum::<f64>() / hidden as f64;
            for ((x, weight), y) in x.iter().zip(&weight).zip(y) {
                let exact = x.wide() * weight.wide() / (mean + 1e-6).sqrt();
                let bound = exact.abs() * (0.5f64.powi(8) + 16.0 * 0.5f64.powi(24));
                assert!((y.wide() - exact).abs() <= bound, "{y} for {exact}");
            }
        }
    });
}

/// A layer norm of rows whose mean is much larger than their deviations, against double precision, by every kernel. The
/// values are exact in f32, and the deviations are below 2^-15 of the mean. Let u = 2^-24. A sum of the tree has at most
/// 13 roundings here, so the mean is wrong by 14 u |mean| at most, and the deviation of x by u more. The variance adds
/// the square of that error. A sum of squares without the mean would be wrong by 2^6 of the variance.
#[test]
fn a_large_mean_costs_few_bits_of_a_layer_norm() {
    let (hidden, count, offset) = (4096usize, 6, 65536.0f32);
    let rows: Vec<f32> = (0..hidden * count).map(|index| offset + (mix(index as u64) % 512) as f32 / 128.0).collect();
    let data = Data::<f32>::of(vec![rows, vec![0.0; hidden * count]]);
    let weight: Vec<f32> = (0..hidden).map(|index| 0.5 + (mix(index as u64 + 7) % 64) as f32 / 32.0).collect();
    let bias: Vec<f32> = (0..hidden).map(|index| (mix(index as u64 + 9) % 64) as f32 / 16.0 - 2.0).collect();
    threads(2, &config(), |rank| {
        let stream = &rank.stream;
        let input = rank.communicator.symmetric::<f32>(hidden * count).unwrap();
        let output = DeviceBuffer::<f32>::new(&rank.device, hidden * count).unwrap();
        let [weight_in, bias_in] = [&weight, &bias].map(|values| DeviceBuffer::from_slice(values, stream).unwrap());
        input.write(&data.inputs[rank.rank()], stream).unwrap();
        for algorithm in [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, Algorithm::Ring] {
            let rows = RowNorm::new(&input, &weight_in, LayerNorm::new(1e-5)).bias(&bias_in).output(&output);
            rank.communicator.all_reduce_norm(rows.algorithm(algorithm), stream).unwrap();
            rank.finish();
            let found = output.read(stream).unwrap();
            for (x, y) in data.sums.chunks(hidden).zip(found.chunks(hidden)) {
                let mean = x.iter().map(|x| x.wide()).sum::<f64>() / hidden as f64;
                let variance = x.iter().map(|x| (x.wide() - mean).powi(2)).sum::<f64>() / hidden as f64;
                let root = (variance + 1e-5).sqrt();
                for (index, (x, y)) in x.iter().zip(y).enumerate() {
                    let (weight, bias) = (weight[index].wide(), bias[index].wide());
                    let exact = (x.wide() - mean) * weight / root + bias;
                    let bound = 16.0 * 0.5f64.powi(24) * mean * weight / root + exact.abs() * 0.5f64.powi(12);
                    assert!((y.wide() - exact).abs() <= bound, "{y} for {exact} by {algorithm}");
                }
            }
        }
    });
}
