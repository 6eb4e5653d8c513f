//! Every operation through the CPU and an engine, on one host and between hosts.

use std::time::Duration;

use half::bf16;
use symmetra::bootstrap::Bootstrap;
use symmetra::environment::{Backend, Environment, InitMethod};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Determinism, DeviceBuffer, Error, Reduction, Stream};

use super::ended::calls;
use super::round::check;
use super::{config, groups, named};
use crate::support::data::mix;
use crate::support::world::meet;

#[test]
fn every_operation_through_the_cpu_gives_the_same_values() {
    let seed = fastrand::u64(..);
    for (world, sizes) in [(4, [2, 1, 2]), (3, [3, 1, 1])] {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            for group in groups(&environment) {
                let host = group.through(Backend::Host).unwrap();
                for round in 0..4 {
                    check::<f32>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                    check::<bf16>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                    check::<u8>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                    check::<i64>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                    check::<F8E4M3>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                    check::<F8E5M2>(group, &host, &Reduction::ALL, mix(seed ^ round), false);
                }
            }
            environment.close().unwrap();
        });
    }
}

#[test]
fn groups_that_span_hosts_serve_every_operation() {
    let seed = fastrand::u64(..);
    for (hosts, sizes) in [(vec![0, 0, 1, 1], [2, 1, 2]), (vec![0, 1, 0], [3, 1, 1]), (vec![0, 1, 2, 2], [2, 2, 1])] {
        meet(hosts.len(), |bootstrap| {
            let mut config = config(bootstrap, sizes);
            // Sums in rank order, so that exactly one result is right.
            config.communicator.determinism = Determinism::Exact;
            let InitMethod::Bootstrap(told) = &config.init_method else { panic!("it is one") };
            config.host = Some(format!("host-{}", hosts[told.rank()]));
            let environment = Environment::init(config).unwrap();
            for (number, group) in groups(&environment).into_iter().enumerate() {
                for round in 0..3 {
                    let seed = mix(seed ^ (number as u64) << 8 ^ round);
                    check::<f32>(group, group, &Reduction::ALL, seed, false);
                    check::<u8>(group, group, &Reduction::ALL, seed, false);
                }
            }
            let map = named(&[], seed);
            let world = environment.world();
            let stream = Stream::new(world.device()).unwrap();
            let received = world.broadcast_named(world.is_first_rank().then_some(&map), 0, &stream).unwrap();
            assert_eq!(received.as_ref().unwrap_or(&map)["layer"].other().unwrap().as_u64(), Some(seed));
            environment.close().unwrap();
        });
    }
}

#[test]
fn ranks_that_call_differently_through_the_cpu_all_learn_it() {
    for error in meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let host = environment.tp().through(Backend::Host).unwrap();
        let stream = Stream::new(host.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 6], &stream).unwrap();
        let error = match host.rank() {
            0 => host.broadcast(&buffer, 0, &stream).unwrap_err(),
            _ => host.broadcast(&buffer, 1, &stream).unwrap_err(),
        };
        assert_eq!(host.broadcast(&buffer, 0, &stream), Err(error.clone()), "it stays so");
        assert_eq!(calls(environment.tp(), &buffer, &stream), vec![error.clone(); 5], "whatever is called");
        assert_eq!(environment.close(), Err(error.clone()));
        error
    }) {
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{words}");
        assert!(words.contains("broadcast of root 0, 24 bytes of f32"), "{words}");
    }
}

#[test]
fn a_call_through_the_cpu_that_waits_for_a_rank_that_aborts_says_so() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let host = environment.tp().through(Backend::Host).unwrap();
        let stream = Stream::new(host.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 6], &stream).unwrap();
        host.all_reduce_in_place(&buffer, &stream).unwrap();
        let detail = if host.rank() == 0 {
            // The other is in its call by now, most likely.
            std::thread::sleep(Duration::from_millis(200));
            host.abort("enough");
            ": by this rank: enough"
        } else {
            ": by rank 0: enough"
        };
        let error = Error::Aborted { detail: format!("{detail}; in group world") };
        assert_eq!(host.all_reduce_in_place(&buffer, &stream), Err(error.clone()));
        let called = calls(&host, &buffer, &stream);
        assert_eq!(called, vec![error.clone(); 5], "whatever is called");
        assert_eq!(environment.close(), Err(error));
    });
}
