//! Every operation through NCCL, and how its groups end.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use symmetra::Reduction::{Average, Max, Min, Product, Sum};
use symmetra::bootstrap::Threads;
use symmetra::environment::{Backend, Coordinator, EnvConfig, Environment};
use symmetra::{DeviceBuffer, Error, Result, Stream};

use super::round::check;
use super::{config, groups};
use crate::support::data::mix;
use crate::support::world::{meet, until};
use crate::support::{Sample, lacks_nccl};

/// A wait that ends by its deadline, and that takes no part of one.
const STEADY: Duration = Duration::from_secs(3);
const AT_ONCE: Duration = Duration::from_secs(2);

/// Two ranks add in one order; integers add in any. NCCL is not asked to average integers, whose sums it would wrap, nor
/// for the least and greatest of floating types, where it would lose NaN.
#[test]
fn every_operation_through_nccl_gives_the_same_values() {
    if lacks_nccl() {
        return;
    }
    let seed = fastrand::u64(..);
    for (world, sizes) in [(2, [2, 1, 1]), (4, [2, 1, 2]), (4, [4, 1, 1])] {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            for group in groups(&environment) {
                let nccl = group.through(Backend::Nccl).unwrap();
                for round in 0..4 {
                    let seed = mix(seed ^ round);
                    check::<i32>(group, &nccl, &[Sum, Product, Min, Max], seed, true);
                    check::<u8>(group, &nccl, &[Sum, Product, Min, Max], seed, true);
                    check::<i64>(group, &nccl, &[Sum, Product, Min, Max], seed, true);
                    if group.world_size() <= 2 {
                        let floating = [Sum, Product, Average];
                        check::<f32>(group, &nccl, &floating, seed, true);
                        check::<f64>(group, &nccl, &floating, seed, true);
                        check::<bf16>(group, &nccl, &floating, seed, true);
                        check::<f16>(group, &nccl, &floating, seed, true);
                    }
                }
            }
            environment.close().unwrap();
        });
    }
}

/// Sums of 4 ranks in any order of NCCL's additions, and in any type that is no narrower than the elements. One
/// rounding is off by at most u = 2^-digits of the rounded value, where `digits` counts the leading bit. A sum of n
/// takes n - 1 additions, and perhaps one rounding more at the end, each of a partial sum that is at most S = the sum
/// of magnitudes, or S (1 + u)^n with the errors so far. The reference is added in f64, with n - 1 more of at most
/// 2^-53 <= u. So the two differ by less than 2 n u S: for n = 4, 7 u S (1 + u)^4 < 8 u S, as u <= 2^-8. No value here
/// is subnormal.
fn sums_are_near<T: Sample>(group: &Coordinator, seed: u64, digits: i32, wide: impl Fn(T) -> f64) {
    const ELEMS: usize = 1000;
    let (world, rank) = (group.world_size(), group.rank());
    let value = |rank: usize, index: usize| T::sample(mix(seed ^ (rank as u64) << 32 ^ index as u64));
    let stream = Stream::new(group.device()).unwrap();
    let all: Vec<T> = (0..ELEMS * world).map(|index| value(rank, index)).collect();
    let all = DeviceBuffer::from_slice(&all, &stream).unwrap();
    let [reduced, scattered, rooted] = [ELEMS * world, ELEMS, ELEMS * world];
    let [reduced, scattered, rooted] =
        [reduced, scattered, rooted].map(|elems| DeviceBuffer::<T>::new(group.device(), elems).unwrap());
    group.all_reduce(&all, &reduced, &stream).unwrap();
    group.reduce_scatter(&all, &scattered, Sum, &stream).unwrap();
    group.reduce(&all, (rank == 2).then_some(&rooted), Sum, 2, &stream).unwrap();
    group.synchronize(&stream).unwrap();
    let unit = f64::from(-digits).exp2();
    let near = |got: &DeviceBuffer<T>, first: usize| {
        for (item, got) in got.read(&stream).unwrap().into_iter().enumerate() {
            let values = (0..world).map(|rank| wide(value(rank, first + item)));
            let (sum, size) = values.fold((0.0, 0.0), |(sum, size), value| (sum + value, size + value.abs()));
            let off = (wide(got) - sum).abs();
            assert!(off <= 2.0 * world as f64 * unit * size, "{}: {item}: {got:?} for {sum}, seed {seed}", T::DTYPE);
        }
    };
    near(&reduced, 0);
    near(&scattered, rank * ELEMS);
    if rank == 2 {
        near(&rooted, 0);
    }
}

#[test]
fn sums_of_four_ranks_through_nccl_are_near_the_true_ones() {
    if lacks_nccl() {
        return;
    }
    let seed = fastrand::u64(..);
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [4, 1, 1])).unwrap();
        let nccl = environment.tp().through(Backend::Nccl).unwrap();
        for round in 0..4 {
            let seed = mix(seed ^ round);
            sums_are_near::<f32>(&nccl, seed, 24, f64::from);
            sums_are_near::<f64>(&nccl, seed, 53, |value| value);
            sums_are_near::<f16>(&nccl, seed, 11, f64::from);
            sums_are_near::<bf16>(&nccl, seed, 8, f64::from);
        }
        environment.close().unwrap();
    });
}

/// Two hosts by name, of two GPUs each: groups that span hosts use NCCL without a setting. The ranks of several hosts
/// meet over Gloo.
#[cfg(feature = "gloo")]
#[test]
fn groups_that_span_hosts_go_by_nccl() {
    if lacks_nccl() {
        return;
    }
    let seed = fastrand::u64(..);
    meet(4, |bootstrap| {
        let host = format!("host-{}", symmetra::bootstrap::Bootstrap::rank(&bootstrap) / 2);
        let mut config = config(bootstrap, [2, 1, 2]);
        config.host = Some(host);
        let environment = Environment::init(config).unwrap();
        assert_eq!(environment.hosts().count(), 2);
        for group in groups(&environment) {
            let spans = group.communicator().is_err();
            let serves = |backend: Backend| {
                let explained = group.explain().into_iter().find(|explained| explained.backend == backend).unwrap();
                !explained.serves.is_empty()
            };
            assert_eq!((serves(Backend::Own), serves(Backend::Nccl)), (!spans, spans), "{}", group.name());
            for round in 0..4 {
                let seed = mix(seed ^ round);
                check::<i32>(group, group, &[Sum, Product, Min, Max], seed, true);
                if group.world_size() <= 2 {
                    check::<f32>(group, group, &[Sum, Product, Average], seed, true);
                    check::<f32>(group, group, &[Min, Max], seed, false);
                }
            }
        }
        environment.close().unwrap();
    });
}

/// A world whose NCCL has worked, with a stream and a buffer of ones.
struct Warm {
    environment: Environment,
    nccl: Coordinator,
    stream: Stream,
    buffer: DeviceBuffer<f32>,
}

impl Warm {
    fn new(config: EnvConfig) -> Self {
        let environment = Environment::init(config).unwrap();
        let nccl = environment.world().through(Backend::Nccl).unwrap();
        let stream = Stream::new(nccl.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 1000], &stream).unwrap();
        nccl.all_reduce_in_place(&buffer, &stream).unwrap();
        nccl.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [nccl.world_size() as f32; 1000]);
        nccl.barrier().unwrap();
        Self { environment, nccl, stream, buffer }
    }

    /// Calls, waits, and returns the error and the time until the error.
    fn call(&self) -> (Error, Duration) {
        let start = Instant::now();
        let called = self.nccl.all_reduce_in_place(&self.buffer, &self.stream);
        let error = called.and_then(|()| self.nccl.synchronize(&self.stream)).unwrap_err();
        (error, start.elapsed())
    }

    /// The device works on, and the group stays as it ended.
    fn end(self, error: Error) {
        let again = self.nccl.all_reduce_in_place(&self.buffer, &self.stream);
        assert_eq!(again, Err(error.clone()), "it stays so");
        let ones = DeviceBuffer::<f32>::from_slice(&[1.0; 9], &self.stream).unwrap();
        assert_eq!(ones.read(&self.stream).unwrap(), [1.0; 9]);
        assert_eq!(self.environment.close(), Err(error));
    }
}

fn short(bootstrap: Threads, world: usize, check_calls: bool) -> EnvConfig {
    let mut config = config(bootstrap, [world, 1, 1]);
    config.communicator.deadlines.steady = STEADY;
    config.communicator.check_calls = check_calls;
    config
}

#[test]
fn pitfall_04_a_rank_that_skips_a_call_of_nccl_is_named_by_all_at_the_deadline() {
    if lacks_nccl() {
        return;
    }
    for (world, check_calls) in [(2, false), (2, true), (4, false), (4, true)] {
        meet(world, |bootstrap| {
            let warm = Warm::new(short(bootstrap, world, check_calls));
            if warm.nccl.rank() == 1 {
                until(STEADY * 4, "the others give up", || warm.nccl.check().is_err());
                let error = warm.nccl.check().unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
                return warm.end(error);
            }
            let (error, took) = warm.call();
            assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}");
            assert!(took > STEADY / 2 && took < STEADY * 3, "{took:?}");
            warm.end(error);
        });
    }
}

#[test]
fn pitfall_04_calls_of_nccl_are_compared() {
    if lacks_nccl() {
        return;
    }
    meet(2, |bootstrap| {
        let warm = Warm::new(short(bootstrap, 2, true));
        let part = warm.buffer.borrow().slice(0..1000 - 100 * warm.nccl.rank()).unwrap();
        let called = warm.nccl.all_reduce_in_place(part, &warm.stream);
        let error = called.and_then(|()| warm.nccl.synchronize(&warm.stream)).unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{words}");
        for bytes in [4000, 3600] {
            assert!(words.contains(&format!("all-reduce (sum) of {bytes} bytes of f32 by NCCL")), "{words}");
        }
        warm.end(error);
    });
}

#[test]
fn pitfall_04_a_graph_of_nccl_that_one_rank_does_not_launch_ends() {
    if lacks_nccl() {
        return;
    }
    meet(2, |bootstrap| {
        let warm = Warm::new(short(bootstrap, 2, false));
        let Warm { nccl, stream, buffer, .. } = &warm;
        let graph = nccl.capture(stream, |capture| nccl.all_reduce_in_place(buffer, capture)).unwrap();
        let outcome = match nccl.rank() {
            0 => graph.launch(stream).and_then(|()| nccl.synchronize(stream)),
            _ => {
                until(STEADY * 4, "the other gives up", || nccl.check().is_err());
                nccl.check()
            }
        };
        let error = outcome.unwrap_err();
        match (nccl.rank(), &error) {
            (0, Error::Timeout { rank: Some(1), .. }) | (1, Error::Aborted { .. }) => {}
            (rank, error) => panic!("rank {rank}: {error}"),
        }
        assert!(graph.launch(stream).is_err(), "it is refused from now on");
        drop(graph);
        warm.end(error);
    });
}

/// NCCL's own end waits until no graph holds an operation.
#[test]
fn a_graph_of_nccl_is_of_no_use_after_close() {
    if lacks_nccl() {
        return;
    }
    meet(2, |bootstrap| {
        let Warm { environment, nccl, stream, buffer } = Warm::new(config(bootstrap, [2, 1, 1]));
        // Also where the other rank has dropped its own.
        let graph = nccl.capture(&stream, |capture| nccl.all_reduce_in_place(&buffer, capture)).unwrap();
        graph.launch(&stream).unwrap();
        let graph = Some(graph).filter(|_| nccl.rank() == 0);
        let start = Instant::now();
        environment.close().unwrap();
        assert!(start.elapsed() < AT_ONCE * 5, "{:?}", start.elapsed());
        assert!(graph.is_none_or(|graph| graph.launch(&stream) == Err(Error::Closed)));
        assert_eq!(buffer.read(&stream).unwrap(), [4.0; 1000]);
    });
}

#[test]
fn pitfall_01_a_rank_that_leaves_or_aborts_is_learnt_of_at_once() {
    if lacks_nccl() {
        return;
    }
    for (world, leaves) in [(2, true), (2, false), (4, true), (4, false)] {
        meet(world, |bootstrap| {
            let warm = Warm::new(config(bootstrap, [world, 1, 1]));
            let leaver = warm.nccl.rank() == 1;
            if leaver {
                // The others are in the kernel by now.
                std::thread::sleep(Duration::from_millis(300));
            }
            match (leaver, leaves) {
                (true, true) => drop(warm),
                (true, false) => {
                    warm.nccl.abort("the test says so");
                    let error = warm.nccl.check().unwrap_err();
                    assert!(error.to_string().contains("by this rank: the test says so"), "{error}");
                    warm.end(error);
                }
                (false, _) => {
                    let (error, took) = warm.call();
                    let named = match &error {
                        Error::PeerLost { rank: 1, .. } => leaves,
                        Error::Aborted { detail } => !leaves && detail.starts_with(": by rank 1: the test says so"),
                        _ => false,
                    };
                    assert!(named, "{error}");
                    assert!(took < Duration::from_millis(300) + AT_ONCE, "{took:?}");
                    warm.end(error);
                }
            }
        });
    }
}

#[test]
fn an_environment_that_is_dropped_while_nccl_waits_does_not_hang() {
    if lacks_nccl() {
        return;
    }
    let alone: Vec<Result<()>> = meet(2, |bootstrap| {
        let warm = Warm::new(config(bootstrap, [2, 1, 1]));
        let start = Instant::now();
        let called = match warm.nccl.rank() {
            0 => warm.nccl.all_reduce_in_place(&warm.buffer, &warm.stream),
            _ => Ok(()),
        };
        drop(warm);
        assert!(start.elapsed() < AT_ONCE * 5, "{:?}", start.elapsed());
        called
    });
    assert!(alone.iter().all(|called| matches!(called, Ok(()) | Err(Error::PeerLost { .. }))), "{alone:?}");
}
