//! Norms of parallel groups, through every available backend.

use std::time::Duration;

use half::bf16;
use reference::element::Real;
use reference::norm;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, EnvConfig, Environment, InitMethod};
use symmetra::{Deadlines, DeviceBuffer, Dtype, LayerNorm, Norm, Operation, Reduction, RmsNorm, RowNorm, Stream};
#[cfg(feature = "gloo")]
use symmetra::{Error, Result};

use super::formats::{assert_quantised, operands};
use crate::support::data::assert_same;
use crate::support::device::device;
use crate::support::world::meet;
use crate::support::{Data, Sample};

const HIDDEN: usize = 100;
const NORM: RmsNorm = RmsNorm::gemma(1e-5);
/// A layer norm has a bias.
const NORMS: [Norm; 2] = [Norm::Rms(NORM), Norm::Layer(LayerNorm::new(1e-5))];
/// Of quantised rows: the last group of a row is short.
const FORMAT: &str = "group-16-e4m3-columns";

fn environment(bootstrap: Threads, hosts: &[usize]) -> Environment {
    let (rank, world) = (bootstrap.rank(), hosts.len());
    let mut config = EnvConfig::default();
    (config.device, config.interface) = (Some(device(rank)), Some("127.0.0.1".to_owned()));
    config.tensor_parallel_size = world;
    config.host = Some(format!("host-{}", hosts[rank]));
    let minute = Duration::from_secs(60);
    config.communicator.deadlines = Deadlines::default().open(minute).first_use(minute).steady(minute);
    config.communicator.determinism = symmetra::Determinism::Exact;
    config.init_method = InitMethod::bootstrap(bootstrap);
    Environment::init(config).unwrap()
}

/// Norms of `count` rows in place, padded, and with a residual; captured where the backend can.
fn check<T: Real + Sample>(group: &Coordinator, count: usize, captured: bool) {
    NORMS.into_iter().for_each(|norm| check_norm::<T>(group, count, captured, norm));
}

/// The operands of a row.
struct Affine {
    norm: Norm,
    weights: Vec<f32>,
    biases: Option<Vec<f32>>,
    weight: DeviceBuffer<f32>,
    bias: Option<DeviceBuffer<f32>>,
}

impl Affine {
    fn new(norm: Norm, stream: &Stream) -> Self {
        let weights: Vec<f32> = (0..HIDDEN).map(|index| index as f32 / 64.0 - 0.7).collect();
        let biases = matches!(norm, Norm::Layer(_)).then(|| weights.iter().map(|weight| 1.5 - weight).collect());
        let buffer = |values: &Vec<f32>| DeviceBuffer::from_slice(values, stream).unwrap();
        Self { norm, weight: buffer(&weights), bias: biases.as_ref().map(buffer), weights, biases }
    }

    fn rows<'op, T: Real + Sample>(&'op self, input: &'op DeviceBuffer<T>) -> RowNorm<'op, T> {
        let rows = RowNorm::new(input, &self.weight, self.norm);
        if let Some(bias) = &self.bias { rows.bias(bias) } else { rows }
    }

    fn expected<T: Real>(&self, x: &[T], width: usize) -> Vec<T> {
        norm::padded(&norm::biased(x, &self.weights, self.biases.as_deref(), self.norm), HIDDEN, width)
    }
}

fn check_norm<T: Real + Sample>(group: &Coordinator, count: usize, captured: bool, norm: Norm) {
    let stream = Stream::new(group.device()).unwrap();
    let data = Data::<T>::new(count as u64, group.world_size(), HIDDEN * count);
    let before: Vec<T> = (0..HIDDEN * count).map(|index| T::sample(index as u64 * 31)).collect();
    let affine = Affine::new(norm, &stream);
    let input = DeviceBuffer::from_slice(&data.inputs[group.rank()], &stream).unwrap();
    let residual = DeviceBuffer::from_slice(&before, &stream).unwrap();
    let wide = DeviceBuffer::<T>::new(group.device(), (HIDDEN + 4) * count).unwrap();
    let codes = operands(group.device(), FORMAT, [count, HIDDEN + 4], &stream);
    let padded = || {
        let rows = affine.rows(&input).residual(&residual).residual_out(&residual);
        codes.asked(rows.output(&wide).padded_to(HIDDEN + 4))
    };
    let in_place = || affine.rows(&input).output(&input);
    if captured {
        let graph = group.capture(&stream, |capture| {
            group.all_reduce_norm(padded()?, capture)?;
            group.all_reduce_norm(in_place(), capture)
        });
        graph.unwrap().launch(&stream).unwrap();
    } else {
        group.all_reduce_norm(padded().unwrap(), &stream).unwrap();
        group.all_reduce_norm(in_place(), &stream).unwrap();
    }
    group.synchronize(&stream).unwrap();
    check_scattered::<T>(group, &stream, captured, norm);
    let x = norm::with_residual(&data.sums, Some(&before));
    assert_same(&residual.read(&stream).unwrap(), &x, &count);
    let y = affine.expected(&x, HIDDEN + 4);
    assert_same(&wide.read(&stream).unwrap(), &y, &count);
    assert_quantised(&codes, FORMAT, &y, HIDDEN + 4, &stream);
    assert_same(&input.read(&stream).unwrap(), &affine.expected(&data.sums, HIDDEN), &count);
}

/// Norms of scattered rows: x in place of the residual, padded rows, no x, and the output in the input.
fn check_scattered<T: Real + Sample>(group: &Coordinator, stream: &Stream, captured: bool, norm: Norm) {
    let (world, share) = (group.world_size(), 3);
    let (own, width) = (share * HIDDEN, HIDDEN + 4);
    let data = Data::<T>::new(3, world, world * own);
    let before: Vec<T> = (0..world * own).map(|index| T::sample(index as u64 * 31)).collect();
    let affine = Affine::new(norm, stream);
    let mine = group.rank() * own..(group.rank() + 1) * own;
    let input = DeviceBuffer::from_slice(&data.inputs[group.rank()], stream).unwrap();
    let [kept, bare] = [(); 2].map(|()| DeviceBuffer::from_slice(&before[mine.clone()], stream).unwrap());
    let [own_wide, all_wide, padded] =
        [share, world * share, world * share].map(|rows| DeviceBuffer::<T>::new(group.device(), rows * width).unwrap());
    let rows = || affine.rows(&input);
    let scattered = || rows().residual(&bare).output(&own_wide).padded_to(width);
    let gathered = || rows().residual(&kept).residual_out(&kept).output(&all_wide).padded_to(width);
    let no_x = || rows().residual(&bare).output(&padded).padded_to(width);
    let in_place = || rows().output(&input);
    if captured {
        let graph = group.capture(stream, |capture| {
            group.reduce_scatter_norm(scattered(), capture)?;
            group.reduce_scatter_norm_all_gather(no_x(), capture)?;
            group.reduce_scatter_norm_all_gather(gathered(), capture)?;
            group.reduce_scatter_norm_all_gather(in_place(), capture)
        });
        graph.unwrap().launch(stream).unwrap();
    } else {
        group.reduce_scatter_norm(scattered(), stream).unwrap();
        group.reduce_scatter_norm_all_gather(no_x(), stream).unwrap();
        group.reduce_scatter_norm_all_gather(gathered(), stream).unwrap();
        group.reduce_scatter_norm_all_gather(in_place(), stream).unwrap();
    }
    group.synchronize(stream).unwrap();
    let expected = |x: &[T], width| affine.expected(x, width);
    let x = norm::with_residual(&data.sums, Some(&before));
    assert_same(&kept.read(stream).unwrap(), &x[mine.clone()], &world);
    assert_same(&own_wide.read(stream).unwrap(), &expected(&x[mine], width), &world);
    assert_same(&all_wide.read(stream).unwrap(), &expected(&x, width), &world);
    assert_same(&padded.read(stream).unwrap(), &expected(&x, width), &world);
    assert_same(&input.read(stream).unwrap(), &expected(&data.sums, HIDDEN), &world);
}

#[test]
fn a_group_on_one_host() {
    for world in [1, 2, 4] {
        meet(world, |bootstrap| {
            let environment = environment(bootstrap, &vec![0; world]);
            for captured in [false, true] {
                check::<bf16>(environment.tp(), 7, captured);
                check::<f32>(environment.tp(), 3, captured);
                check::<f32>(environment.tp(), 0, captured);
            }
            environment.close().unwrap();
        });
    }
}

#[test]
fn what_serves_a_norm_is_explained() {
    meet(2, |bootstrap| {
        let environment = environment(bootstrap, &[0, 0]);
        let own = &environment.tp().explain()[1];
        for captured in [false, true] {
            let serves = |dtype: Dtype| {
                let of = |served: &&symmetra::environment::Served| {
                    served.holds(Operation::AllReduceNorm, Some(Reduction::Sum), dtype, captured, 0)
                };
                own.serves.iter().filter(of).count()
            };
            let all = Dtype::ALL.map(|dtype| (dtype, serves(dtype)));
            for (dtype, entries) in all {
                assert_eq!(entries == 1, matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16), "{dtype}");
            }
        }
        environment.close().unwrap();
    });
}

/// Two ranks add in one order, so NCCL has the bits of symmetra's kernels.
#[cfg(feature = "nccl")]
#[test]
fn through_nccl() {
    use symmetra::environment::Backend;
    if crate::support::lacks_nccl() {
        return;
    }
    meet(2, |bootstrap| {
        let environment = environment(bootstrap, &[0, 0]);
        let nccl = environment.tp().through(Backend::Nccl).unwrap();
        for captured in [false, true] {
            check::<bf16>(&nccl, 7, captured);
            check::<f32>(&nccl, 3, captured);
        }
        drop(nccl);
        environment.close().unwrap();
    });
}

#[cfg(feature = "gloo")]
#[test]
fn through_the_cpu_and_between_hosts() {
    use symmetra::environment::Backend;
    for hosts in [vec![0, 0], vec![0, 1], vec![0, 0, 1, 1], vec![0, 1, 0]] {
        meet(hosts.len(), |bootstrap| {
            let environment = environment(bootstrap, &hosts);
            let host = environment.tp().through(Backend::Host).unwrap();
            check::<bf16>(&host, 7, false);
            check::<f32>(&host, 3, false);
            check::<f32>(&host, 0, false);
            let stream = Stream::new(host.device()).unwrap();
            let rows = DeviceBuffer::from_slice(&[1.0f32; 8], &stream).unwrap();
            let over = RowNorm::new(&rows, &rows, NORM);
            let none: Result<()> = host.all_reduce_norm(over, &stream);
            assert!(matches!(none, Err(Error::InvalidArgument { .. })));
            let weight = DeviceBuffer::from_slice(&[1.0f32; 4], &stream).unwrap();
            let codes = operands(host.device(), "per-token-e4m3", [2, 4], &stream);
            let alone = codes.asked(RowNorm::new(&rows, &weight, NORM)).unwrap();
            let Err(Error::Unsupported { what, .. }) = host.all_reduce_norm(alone, &stream) else { panic!() };
            assert!(what.contains("quantised values alone"), "{what}");
            environment.close().unwrap();
        });
    }
}

#[cfg(feature = "gloo")]
#[test]
fn norms_that_differ_through_the_cpu() {
    use symmetra::environment::Backend;
    for error in meet(2, |bootstrap| {
        let environment = environment(bootstrap, &[0, 0]);
        let host = environment.tp().through(Backend::Host).unwrap();
        let stream = Stream::new(host.device()).unwrap();
        let rows = DeviceBuffer::from_slice(&[1.0f32; 8], &stream).unwrap();
        let weight = DeviceBuffer::from_slice(&[1.0f32; 4], &stream).unwrap();
        let norm = RmsNorm::new(host.rank() as f32);
        let error = host.all_reduce_norm(RowNorm::new(&rows, &weight, norm).output(&rows), &stream).unwrap_err();
        assert_eq!(environment.close(), Err(error.clone()));
        error
    }) {
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{words}");
        assert!(words.contains("all-reduce-norm (sum), 32 bytes of f32, settings"), "{words}");
    }
}
