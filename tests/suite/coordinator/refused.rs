//! Calls that are refused: by every backend, and where none serves.

use std::collections::BTreeMap;

use symmetra::bootstrap::Bootstrap;
use symmetra::environment::{Backend, Coordinator, Environment, NamedValue};
use symmetra::{Algorithm, DeviceBuffer, Error, Reduction, Result, Stream};

use super::config;
use crate::support::is_host;
use crate::support::world::meet;

#[test]
fn what_no_backend_serves_names_the_group_the_call_and_every_reason() {
    meet(2, |bootstrap| {
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = Some(Backend::Quantised);
        let environment = Environment::init(config).unwrap();
        let stream = Stream::new(environment.world().device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.5; 8], &stream).unwrap();
        let error = environment.tp().all_reduce(&buffer, &buffer, &stream).unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{words}");
        for part in [
            "all-reduce (sum) of f32 by the group tp on 1 host, ",
            "(2 ranks)",
            "quantised: no codec is set; own: quantised is forced; nccl: quantised is forced; host: quantised is forced",
        ] {
            assert!(words.contains(part), "{words}");
        }
        let setting = environment.settings().iter().find(|setting| setting.name == "backend").unwrap();
        assert_eq!(setting.value, "quantised");
        // A group of one rank answers by itself; so does one through a backend that serves.
        environment.pp().all_reduce(&buffer, &buffer, &stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [1.5; 8]);
        environment.tp().through(Backend::Own).unwrap().all_reduce(&buffer, &buffer, &stream).unwrap();
        environment.tp().synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [3.0; 8]);
        environment.close().unwrap();
    });
}

#[test]
fn nccl_that_cannot_be_had_is_a_reason_and_the_program_runs() {
    if !is_host() {
        return;
    }
    meet(2, |bootstrap| {
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = Some(Backend::Nccl);
        let environment = Environment::init(config).unwrap();
        let stream = Stream::new(environment.world().device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[2.0; 3], &stream).unwrap();
        let words = environment.tp().broadcast(&buffer, 0, &stream).unwrap_err().to_string();
        let reason = match cfg!(feature = "nccl") {
            true => "nccl: rank 0: NCCL on the CPU is not supported: it works on GPUs only",
            false => "nccl: rank 0: it was not built: build with the feature `nccl`",
        };
        assert!(words.contains("broadcast of f32 by the group tp") && words.contains(reason), "{words}");
        let lines: Vec<_> = environment.tp().explain().iter().map(ToString::to_string).collect();
        assert!(
            lines[1] == "own: refuses: nccl is forced" && lines[2].starts_with("nccl: refuses: rank 0"),
            "{lines:?}"
        );
        environment.world().barrier().unwrap();
        environment.close().unwrap();
    });
}

#[test]
fn ranks_told_different_backends_do_not_open() {
    for error in meet(2, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, [2, 1, 1]);
        config.backend = (rank == 1).then_some(Backend::Own);
        Environment::init(config).unwrap_err()
    }) {
        let words = error.to_string();
        assert!(words.contains("disagree on the backend: auto and own"), "{words}");
    }
}

#[test]
fn pitfall_04_ranks_that_go_through_different_backends_learn_it_and_go_on() {
    for error in meet(3, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [3, 1, 1])).unwrap();
        let tp = environment.tp();
        let backend = if tp.rank() == 2 { Backend::Nccl } else { Backend::Own };
        let error = tp.through(backend).unwrap_err();
        let stream = Stream::new(tp.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
        tp.through(Backend::Own).unwrap().all_reduce(&buffer, &buffer, &stream).unwrap();
        tp.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [3.0; 4]);
        environment.close().unwrap();
        error
    }) {
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 2, .. }), "{error}");
        assert_eq!(error.to_string(), "ranks 0 and 2 disagree on the backend to go through: own and nccl");
    }
}

#[test]
fn bad_calls_are_typed_errors_and_change_nothing() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let tp = environment.tp();
        for group in [tp.clone(), tp.through(Backend::Own).unwrap()] {
            refused(&group);
        }
        if cfg!(feature = "gloo") {
            let host = tp.through(Backend::Host).unwrap();
            refused(&host);
            let stream = Stream::new(tp.device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
            let words = |result: Result<()>| match result.unwrap_err() {
                error @ Error::Unsupported { .. } => error.to_string(),
                error => panic!("{error}"),
            };
            let captured = stream.capture(|capture| host.all_reduce(&buffer, &buffer, capture)).map(drop);
            assert!(words(captured).contains("in a graph by the group tp on 1 host"));
            let named = host.all_reduce_with(Algorithm::TwoShotLL, &buffer, &buffer, &stream);
            assert!(words(named).contains("host: the call names an algorithm or a codec of the own kernels"));
        }
        environment.close().unwrap();
    });
}

/// Errors of every backend.
fn refused(group: &Coordinator) {
    let stream = Stream::new(group.device()).unwrap();
    let [a, b, short] = [6, 6, 5].map(|elems| DeviceBuffer::<f32>::from_slice(&vec![1.0; elems], &stream).unwrap());
    let none = None::<&DeviceBuffer<f32>>;
    let rank = group.rank();
    let overlapping = a.borrow().slice(1..6).unwrap();
    // A rank that sends itself another count than it expects: no other rank could know.
    let own = [if rank == 0 { 2 } else { 1 }, if rank == 0 { 1 } else { 2 }];
    let cases = [
        ("lengths", group.all_reduce(&a, &short, &stream)),
        ("overlap", group.all_reduce(a.borrow().slice(0..5).unwrap(), overlapping, &stream)),
        ("parts", group.reduce_scatter(&short, &a, Reduction::Sum, &stream)),
        ("output", group.reduce_scatter(&a, &b, Reduction::Sum, &stream)),
        ("dimension", group.all_gather_along(2, &[3, 1], a.borrow().slice(0..3).unwrap(), &b, &stream)),
        ("output", group.all_gather(&a, &b, &stream)),
        ("parts", group.all_to_all(&short, &short, &stream)),
        ("in place", group.all_to_all(&a, &a, &stream)),
        ("counts", group.all_gather_v(&a, &b, &[4], &stream)),
        ("own count", group.all_gather_v(&a, &b, &[1, 1], &stream)),
        ("own count", group.reduce_scatter_v(&a, &b, &[1, 1], Reduction::Sum, &stream)),
        ("counts", group.all_to_all_v(&a, &[1], &b, &[1, 1], &stream)),
        ("sum of counts", group.all_to_all_v(&a, &[4, 4], &b, &[1, 1], &stream)),
        ("overflow", group.all_to_all_v(&a, &[usize::MAX, 2], &b, &[1, 1], &stream)),
        ("own count", group.all_to_all_v(&a, &own, &b, &[1, 1], &stream)),
        ("own message", send(group, &[(&a, rank)], &stream)),
        ("root", group.broadcast(&a, 2, &stream)),
        ("root", group.gather(&a, Some(&b), 7, &stream)),
        ("no output", group.reduce(&a, none, Reduction::Sum, rank, &stream)),
        ("no output", group.gather(&a, none, rank, &stream)),
        ("no input", group.scatter(none, &a, rank, &stream)),
        ("root", group.scatter(none, &a, 2, &stream)),
        ("peer", send(group, &[(&a, 2)], &stream)),
        ("twice", send(group, &[(&a, 0), (&b, 0)], &stream)),
    ];
    for (what, result) in cases {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{what}: {result:?}");
    }
    let none: BTreeMap<String, NamedValue<'_>> = BTreeMap::new();
    let two = group.broadcast_named((rank == 0).then_some(&none), 1, &stream).unwrap_err();
    assert!(matches!(two, Error::InvalidArgument { .. }), "{two}");
    group.all_reduce(&a, &b, &stream).unwrap();
    group.synchronize(&stream).unwrap();
    assert_eq!(b.read(&stream).unwrap(), [2.0; 6]);
}

fn send(group: &Coordinator, messages: &[(&DeviceBuffer<f32>, usize)], stream: &Stream) -> Result<()> {
    group.batch(stream, |batch| {
        messages.iter().for_each(|(buffer, peer)| batch.send(*buffer, *peer));
        Ok(())
    })
}
