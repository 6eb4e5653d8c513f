//! Failures, in ranks that are threads: every failure is a typed error on every rank, in time, and no kernel is left
//! spinning.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{
    Algorithm, Communicator, Config, Determinism, Device, DeviceBuffer, DeviceKind, Error, Operation, Reduction,
    Result, Stream, SymmetricBuffer,
};

use support::device::device;
use support::world::{Gate, alone, meet, open, open_on, until};
use support::{Rank, config, fits, is_host, system, threads};

/// A rank that is held up for less comes in time.
const STEADY: Duration = Duration::from_secs(1);
/// How long a failure may take to show beyond its deadline, on a machine busy with other things.
const SLACK: Duration = Duration::from_secs(5);

/// Short deadlines once the group works.
fn short(check_calls: bool) -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.deadlines = config.deadlines.steady(STEADY);
    config.check_calls = check_calls;
    config
}

/// The error of a rank, and the time until the error was reported.
fn failure(rank: &Rank) -> (Error, Duration) {
    let start = Instant::now();
    loop {
        if let Err(error) = rank.communicator.synchronize(&rank.stream) {
            return (error, start.elapsed());
        }
        assert!(start.elapsed() < Duration::from_secs(30), "rank {} never learned of it", rank.rank());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A group that has worked, with a buffer.
fn warm(bootstrap: Threads, config: &Config) -> (Rank, SymmetricBuffer<i32>) {
    warm_on(&device(bootstrap.rank()), bootstrap, config)
}

fn warm_on(device: &Device, bootstrap: Threads, config: &Config) -> (Rank, SymmetricBuffer<i32>) {
    let rank = open_on(device, bootstrap, config).unwrap();
    let buffer = rank.communicator.symmetric::<i32>(1000).unwrap();
    for _ in 0..3 {
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
    }
    rank.finish();
    rank.communicator.group().barrier().unwrap();
    (rank, buffer)
}

/// More worlds for the same threads.
fn more_worlds(world: usize) -> Vec<Mutex<Option<Threads>>> {
    Threads::new(world).unwrap().into_iter().map(|rank| Mutex::new(Some(rank))).collect()
}

/// The thread of a failed rank opens another group on its device and stream, and reduces in it.
fn works_again(bootstrap: Threads, failed: &Rank) {
    let world = bootstrap.world_size();
    let communicator = Communicator::open(bootstrap, &failed.device, short(true)).unwrap();
    let buffer = DeviceBuffer::from_slice(&[3i32; 2000], &failed.stream).unwrap();
    communicator.all_reduce_in_place(&buffer, &failed.stream).unwrap();
    communicator.synchronize(&failed.stream).unwrap();
    assert_eq!(buffer.read(&failed.stream).unwrap(), vec![3 * world as i32; 2000]);
    communicator.close().unwrap();
}

/// Rank 1 of 3 does not come to an operation.
fn skipped(algorithm: Algorithm, check_calls: bool) {
    if !fits(3) {
        return;
    }
    let (gate, again) = (Gate::new(3), more_worlds(3));
    meet(3, |bootstrap| {
        let own = bootstrap.rank();
        let (rank, buffer) = warm(bootstrap, &short(check_calls));
        if own != 1 {
            rank.communicator.all_reduce_with(algorithm, &buffer, &buffer, &rank.stream).unwrap();
        }
        let (error, took) = failure(&rank);
        match &error {
            Error::Timeout { operation, sequence, rank: Some(1), waited, detail } if own != 1 => {
                assert_eq!((*operation, *sequence, *waited), (Operation::AllReduce, 3, STEADY), "{error}");
                assert!(
                    detail.contains("it had enqueued 3 operations") && detail.contains("this rank had enqueued 4"),
                    "{error}"
                );
            }
            Error::Aborted { detail } if own == 1 => {
                assert!(detail.ends_with("for this one in all-reduce 3"), "{error}")
            }
            _ => panic!("rank {own} got {error}"),
        }
        // A rank that learned it from another did not wait itself.
        assert!(took < STEADY + SLACK, "{took:?}");
        gate.pass();
        works_again(again[own].lock().take().unwrap(), &rank);
        gate.pass();
    });
}

#[test]
fn pitfall_04_a_rank_that_skips_an_operation_is_named() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(symmetra::Dtype::I32)) {
        skipped(algorithm, false);
    }
    skipped(Algorithm::Auto, true);
}

/// Rank 1 makes calls that are refused, and then none.
#[test]
fn pitfall_04_what_was_refused_is_not_counted() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let (rank, buffer) = warm(bootstrap, &short(false));
        let Rank { communicator, stream, device, .. } = &rank;
        let second = communicator.split(Some(0), 0).unwrap().unwrap();
        if rank.rank() == 1 {
            let other = Stream::new(device).unwrap();
            // Of two groups, the second of which is not ready.
            let plain = DeviceBuffer::<i32>::new(device, 100).unwrap();
            let both = other.capture(|capture| {
                communicator.all_reduce_in_place(&buffer, capture)?;
                second.all_reduce_with(Algorithm::TwoShotZeroCopy, &plain, &plain, capture)
            });
            let refused = both.unwrap().launch(&other);
            assert_eq!(refused, Err(Error::NotRegistered { pointers: 1 }));
            let graph = other.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
            let capture = stream.capture(|_| {
                communicator.all_reduce_in_place(&buffer, stream).unwrap_err();
                graph.launch(stream).unwrap_err();
                Ok(())
            });
            drop(capture.unwrap());
        } else {
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
        }
        let error = failure(&rank).0;
        match &error {
            Error::Timeout { rank: Some(1), detail, .. } if rank.rank() == 0 => {
                assert!(
                    detail.contains("it had enqueued 3 operations") && detail.contains("this rank had enqueued 4"),
                    "{error}"
                )
            }
            Error::Aborted { .. } if rank.rank() == 1 => {}
            _ => panic!("rank {} got {error}", rank.rank()),
        }
        gate.pass();
    });
}

/// Rank 2 of 3 makes another call than the others.
fn different(call: impl Fn(&Rank, &SymmetricBuffer<i32>) -> Result<()> + Sync, words: [&str; 2]) {
    if !fits(3) {
        return;
    }
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let own = bootstrap.rank();
        let (rank, buffer) = warm(bootstrap, &short(true));
        let (first, second) = (buffer.slice(0..100).unwrap(), buffer.slice(100..200).unwrap());
        let called = match own {
            2 => call(&rank, &buffer),
            _ => rank.communicator.all_reduce(first, second, &rank.stream),
        };
        let (error, took) = failure(&rank);
        // Another rank may have found the difference before this one called.
        assert!(called.is_ok() || called == Err(error.clone()), "rank {own}: {called:?}");
        let message = error.to_string();
        let Error::Mismatch { against, rank: named, .. } = error else { panic!("rank {own} got {message}") };
        assert_eq!(against, own);
        assert!(if own == 2 { named < 2 } else { named == 2 }, "rank {own} got {message}");
        assert!(words.iter().all(|word| message.contains(word)), "rank {own} got {message}");
        assert!(took < SLACK, "{took:?}");
        gate.pass();
    });
}

#[test]
fn pitfall_04_ranks_that_call_differently_learn_how() {
    different(
        |rank, buffer| rank.communicator.all_reduce(buffer.slice(0..101)?, buffer.slice(200..301)?, &rank.stream),
        ["400 bytes of i32", "404 bytes of i32"],
    );
    different(
        |rank, _| {
            let floats = DeviceBuffer::from_slice(&[1.0f32; 100], &rank.stream)?;
            rank.communicator.all_reduce_in_place(&floats, &rank.stream)?;
            rank.stream.synchronize()
        },
        ["400 bytes of i32", "400 bytes of f32"],
    );
    different(
        |rank, buffer| {
            rank.communicator.all_reduce_with(
                Algorithm::TwoShotLL,
                buffer.slice(0..100)?,
                buffer.slice(100..200)?,
                &rank.stream,
            )
        },
        ["by one-shot-ll", "by two-shot-ll"],
    );
    different(
        |rank, buffer| {
            rank.communicator.all_reduce_with(
                Reduction::Max,
                buffer.slice(0..100)?,
                buffer.slice(100..200)?,
                &rank.stream,
            )
        },
        ["all-reduce (sum)", "all-reduce (max)"],
    );
}

#[test]
fn pitfall_03_abort_ends_a_wait_from_another_thread() {
    let (gate, again) = (Gate::new(2), more_worlds(2));
    meet(2, |bootstrap| {
        let own = bootstrap.rank();
        let mut patient = short(false);
        patient.deadlines.steady = Duration::from_secs(60);
        let (rank, buffer) = warm(bootstrap, &patient);
        if own == 0 {
            rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        }
        std::thread::scope(|scope| {
            let communicator = rank.communicator.clone();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                if communicator.rank() == 0 {
                    communicator.abort();
                    communicator.abort();
                }
            });
            let (error, took) = failure(&rank);
            assert!(matches!(&error, Error::Aborted { detail } if detail.contains("rank 0")), "{error}");
            assert!(took < SLACK, "{took:?}");
        });
        rank.communicator.abort(); // once more, when it is over
        let error = failure(&rank).0;
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
        drop(buffer);
        gate.pass();
        works_again(again[own].lock().take().unwrap(), &rank);
    });
}

#[test]
fn pitfall_03_abort_ends_a_barrier_of_the_hosts() {
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &support::config()).unwrap();
        let group = rank.communicator.group();
        group.barrier().unwrap();
        if rank.rank() == 2 {
            std::thread::sleep(Duration::from_millis(50));
            group.abort();
            // The group that the rank leaves stays open: no rank learns of the abort from its end.
            gate.pass();
            return;
        }
        let begun = Instant::now();
        let error = group.barrier().unwrap_err();
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
        // All deadlines are of a minute.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(group.all_gather_bytes(&[1]), Err(error));
        gate.pass();
    });
}

#[test]
fn pitfall_03_two_groups_that_spin_on_one_device_are_aborted_at_once() {
    let (gate, others) = (Gate::new(2), more_worlds(2));
    meet(2, |bootstrap| {
        let own = bootstrap.rank();
        let mut patient = short(false);
        patient.deadlines.steady = Duration::from_secs(60);
        let other = others[own].lock().take().unwrap();
        let groups = [warm(bootstrap, &patient), warm(other, &patient)];
        if own == 0 {
            for (rank, buffer) in &groups {
                rank.communicator.all_reduce_in_place(buffer, &rank.stream).unwrap();
            }
        }
        gate.pass();
        std::thread::scope(|scope| {
            for (rank, _) in &groups {
                scope.spawn(|| rank.communicator.abort());
            }
        });
        for (rank, _) in &groups {
            let (error, took) = failure(rank);
            assert!(matches!(error, Error::Aborted { .. }), "{error}");
            assert!(took < SLACK, "{took:?}");
        }
        gate.pass();
    });
}

/// A rank whose thread panics takes its group with it, and only its group.
#[test]
fn pitfall_03_a_group_is_dropped_while_unwinding() {
    let (gate, again) = (Gate::new(3), more_worlds(2));
    meet(3, |bootstrap| {
        let own = bootstrap.rank();
        if own == 2 {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let (rank, buffer) = warm(bootstrap, &short(false));
                let graph =
                    rank.stream.capture(|capture| rank.communicator.all_reduce_in_place(&buffer, capture)).unwrap();
                // In flight, and never to be met.
                rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
                graph.launch(&rank.stream).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            }));
            assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
            gate.pass();
            return;
        }
        let (rank, buffer) = warm(bootstrap, &short(false));
        let (error, took) = failure(&rank);
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert!(took < SLACK, "{took:?}");
        drop(buffer);
        gate.pass();
        works_again(again[own].lock().take().unwrap(), &rank);
    });
}

/// A rank that leaves without closing fails the calls that wait for it.
#[test]
fn pitfall_01_a_rank_that_leaves_is_lost_within_a_second() {
    let (gate, survivors) = (Gate::new(3), Gate::new(2));
    meet(3, |bootstrap| {
        let own = bootstrap.rank();
        let mut config = short(false);
        config.deadlines.steady = Duration::from_secs(60);
        let (rank, buffer) = warm(bootstrap, &config);
        if own == 1 {
            gate.pass();
            drop((rank, buffer));
            return;
        }
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        gate.pass();
        let (error, took) = failure(&rank);
        let Error::PeerLost { rank: 1, detail } = &error else { panic!("{error}") };
        assert!(detail.starts_with(": it dropped its communicator without close() or depart()"), "{error}");
        assert!(took < Duration::from_secs(1) + SLACK, "{took:?}");
        survivors.pass(); // a rank that leaves earlier may be named as well
    });
}

/// A rank that leaves without closing after good work fails nothing that is done, and the next call.
#[test]
fn a_rank_that_leaves_after_good_work_fails_only_what_needs_it() {
    for next in [false, true] {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let own = bootstrap.rank();
            let (rank, buffer) = warm(bootstrap, &short(false));
            if own == 1 {
                drop((rank, buffer));
                gate.pass();
                return;
            }
            gate.pass();
            // The monitor has seen the departure, and has looked around since.
            std::thread::sleep(Duration::from_secs(3));
            rank.communicator.synchronize(&rank.stream).unwrap();
            assert_eq!(buffer.read(&rank.stream).unwrap(), buffer.borrow().read(&rank.stream).unwrap());
            rank.communicator.group().check().unwrap();
            let outcome = match next {
                false => rank.communicator.all_reduce_in_place(&buffer, &rank.stream),
                true => rank.communicator.group().barrier(),
            };
            let Err(Error::PeerLost { rank: 1, detail }) = &outcome else { panic!("{outcome:?}") };
            assert!(detail.starts_with(": it dropped its communicator without close() or depart()"), "{detail}");
        });
    }
}

/// Ranks that all drop after finished work, in any order, end without an error.
#[test]
fn ranks_that_drop_after_finished_work_are_not_lost() {
    let world = if is_host() { 4 } else { 2 };
    for round in 0..25 {
        meet(world, |bootstrap| {
            let own = bootstrap.rank();
            let (rank, buffer) = warm(bootstrap, &short(round % 2 == 0));
            buffer.write(&[1; 1000], &rank.stream).unwrap();
            rank.communicator.group().barrier().unwrap();
            for _ in 0..4 {
                rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
            }
            std::thread::sleep(Duration::from_micros(((own * 37 + round * 11) % 50) as u64 * 20));
            rank.communicator.synchronize(&rank.stream).unwrap();
            assert_eq!(buffer.read(&rank.stream).unwrap(), vec![(world as i32).pow(4); 1000]);
        });
    }
}

/// Calls that differ are found without comparisons on the device, on every rank.
#[test]
fn pitfall_04_calls_that_differ_are_found_off_the_device() {
    type Calls = fn(&Rank, &SymmetricBuffer<i32>) -> Result<()>;
    let differing: [(&str, Calls); 4] = [
        ("counts", |rank, buffer| {
            let elems = if rank.rank() == 1 { 200 } else { 100 };
            rank.communicator.all_reduce_in_place(buffer.slice(..elems)?, &rank.stream)
        }),
        ("reductions", |rank, buffer| {
            let reduction = if rank.rank() == 1 { Reduction::Max } else { Reduction::Sum };
            rank.communicator.all_reduce_with(reduction, buffer, buffer, &rank.stream)
        }),
        ("roots", |rank, buffer| {
            let root = usize::from(rank.rank() == 1);
            rank.communicator.broadcast(buffer, root, &rank.stream)
        }),
        ("order", |rank, buffer| {
            let mut elems = [10, 20];
            if rank.rank() == 1 {
                elems.reverse();
            }
            elems
                .iter()
                .try_for_each(|elems| rank.communicator.all_reduce_in_place(buffer.slice(..*elems)?, &rank.stream))
        }),
    ];
    for (what, calls) in differing {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let (rank, buffer) = warm(bootstrap, &short(false));
            calls(&rank, &buffer).unwrap();
            let error = failure(&rank).0;
            let Error::Mismatch { what: call, against, ours, rank: other, theirs } = &error else {
                panic!("{what}, rank {}: {error}", rank.rank())
            };
            assert_eq!(call, "call 3", "{what}: {error}");
            assert!((*against == 1) != (*other == 1) && ours != theirs, "{what}: {error}");
            assert_eq!(buffer.read(&rank.stream), Err(error));
            gate.pass();
        });
    }
}

#[test]
fn a_failed_group_gives_the_same_error_to_every_call() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let (rank, buffer) = warm(bootstrap, &short(true));
        let Rank { communicator, stream, .. } = &rank;
        let plain = DeviceBuffer::from_slice(&[1i32; 10], stream).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        // SAFETY: ranks are threads, and no call with it is enqueued: all are refused.
        let adopted = unsafe { communicator.adopt(plain.borrow()) }.unwrap();
        if rank.rank() == 0 {
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
        }
        let expected = failure(&rank).0;
        // SAFETY: refused.
        let again = unsafe { communicator.adopt(plain.borrow()) };
        let results: [Result<()>; 14] = [
            communicator.all_reduce_in_place(&buffer, stream),
            communicator.all_reduce(&plain, &plain, stream),
            communicator.all_reduce_in_place(&adopted, stream),
            stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).map(drop),
            graph.launch(stream),
            graph.register(),
            buffer.signals().put(0, 0, stream),
            buffer.signals().barrier(0, stream),
            communicator.symmetric::<f32>(1).map(drop),
            again.map(drop),
            communicator.split(Some(0), 0).map(drop),
            communicator.group().barrier(),
            communicator.group().check(),
            communicator.synchronize(stream),
        ];
        for (number, result) in results.into_iter().enumerate() {
            assert_eq!(result, Err(expected.clone()), "call {number}");
        }
        // A buffer that a collective may have left half done refuses to be read, but a borrow of the buffer can be read.
        assert_eq!(buffer.read(stream), Err(expected.clone()));
        assert_eq!(buffer.borrow().read(stream).unwrap().len(), buffer.len());
        // Local things still work.
        plain.write(&[4; 10], stream).unwrap();
        assert_eq!(plain.read(stream).unwrap(), [4; 10]);
        gate.pass();
        let clone = communicator.clone();
        assert_eq!(clone.close(), Err(expected));
        assert_eq!(communicator.all_reduce_in_place(&buffer, stream), Err(Error::Closed));
    });
}

/// Rank 1's stream is held up and comes to the operation when the others have given up and use their
/// memory for something else: it must not write there.
#[test]
fn pitfall_02_26_a_rank_that_comes_late_writes_nothing() {
    if !fits(3) {
        return;
    }
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(symmetra::Dtype::I32)) {
        let (gate, others) = (Gate::new(3), more_worlds(3));
        meet(3, |bootstrap| {
            let own = bootstrap.rank();
            let (holding, pads) = warm(others[own].lock().take().unwrap(), &config());
            let (rank, buffer) = warm_on(&holding.device, bootstrap, &short(false));
            if own == 1 {
                pads.signals().wait(0, 0, &rank.stream).unwrap();
            }
            rank.communicator.all_reduce_with(algorithm, &buffer, &buffer, &rank.stream).unwrap();
            if own != 1 {
                let error = failure(&rank).0;
                assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{algorithm}: {error}");
                buffer.write(&[77; 1000], &rank.stream).unwrap();
            }
            gate.pass();
            if own == 0 {
                pads.signals().put(1, 0, &holding.stream).unwrap();
            }
            if own == 1 {
                let error = failure(&rank).0;
                assert!(matches!(error, Error::Aborted { .. }), "{algorithm}: {error}");
            }
            gate.pass();
            if own != 1 {
                assert_eq!(buffer.borrow().read(&rank.stream).unwrap(), [77; 1000], "{algorithm}");
            }
            holding.communicator.synchronize(&holding.stream).unwrap();
            gate.pass();
        });
    }
}

#[test]
fn pitfall_05_ranks_that_cannot_agree_get_the_same_error_at_open() {
    type Change = fn(&mut Config);
    let settings: [(&str, Change); 6] = [
        ("heap_bytes", |config| config.heap_bytes += 4096),
        ("check_calls", |config| config.check_calls = !config.check_calls),
        ("determinism", |config| config.determinism = Determinism::PerRun),
        ("most_blocks", |config| config.most_blocks = Some(64)),
        ("deadlines.steady", |config| config.deadlines.steady *= 2),
        ("two_shot_ll_bytes", |config| config.two_shot_ll_bytes += 1),
    ];
    for (name, change) in settings {
        let errors = meet(3, |bootstrap| {
            let mut config = config();
            if bootstrap.rank() == 1 {
                change(&mut config);
            }
            open(bootstrap, &config).map(drop).unwrap_err()
        });
        for error in &errors {
            assert!(matches!(error, Error::Mismatch { what, against: 0, rank: 1, .. } if what == name), "{error}");
            assert_eq!(error, &errors[0]);
        }
    }
}

#[test]
fn pitfall_05_a_rank_that_cannot_take_part_says_why() {
    let errors = meet(3, |bootstrap| {
        let mut config = config();
        if bootstrap.rank() == 2 {
            config.registrations = 0;
        }
        open(bootstrap, &config).map(drop).unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        match error {
            Error::InvalidArgument { message } if rank == 2 => {
                assert!(message.contains("registrations is 0"), "{message}")
            }
            Error::Peer { rank: 2, message } if rank != 2 => {
                assert!(message.contains("registrations is 0"), "{message}")
            }
            _ => panic!("rank {rank} got {error}"),
        }
    }
}

#[test]
fn ranks_with_other_launch_shapes_do_not_form_a_group() {
    if !is_host() {
        return;
    }
    let errors = meet(2, |bootstrap| {
        let blocks = 1 + bootstrap.rank() as u32;
        let device = Device::host_with(symmetra::HostShape::default().blocks(blocks).threads(1)).unwrap();
        Communicator::open(bootstrap, &device, config()).map(drop).unwrap_err()
    });
    assert!(
        errors.iter().all(|error| matches!(error, Error::Mismatch { what, .. } if what == "host launch shape")),
        "{errors:?}"
    );
}

#[test]
fn a_world_too_large_is_refused() {
    if is_host() {
        let errors = meet(17, |bootstrap| open(bootstrap, &config()).map(drop).unwrap_err());
        let refused =
            |error: &Error| matches!(error, Error::InvalidArgument { message } if message.contains("world size is 17"));
        assert!(errors.iter().all(refused), "{errors:?}");
    }
}

/// Opening a device of a backend that was not built is an error that names the backend.
#[test]
fn pitfall_34_a_backend_that_is_not_built_is_an_error() {
    type Open = fn(usize) -> symmetra::Result<Device>;
    let backends: [(DeviceKind, Open, bool, &str); 2] = [
        (DeviceKind::Cuda, Device::cuda, cfg!(feature = "cuda"), "CUDA"),
        (DeviceKind::Hip, Device::hip, cfg!(feature = "hip"), "HIP"),
    ];
    for (kind, open, built, vendor) in backends {
        let there = Device::count(kind);
        let error = open(there).map(drop).unwrap_err();
        let right = match (&error, built) {
            (Error::InvalidArgument { message }, true) => {
                message.contains(&format!("there are {there} {vendor} devices"))
            }
            (Error::Unsupported { reason, .. }, false) => there == 0 && reason.contains(&format!("feature `{kind}`")),
            _ => false,
        };
        assert!(right, "{error}");
    }
    assert_eq!(Device::host().unwrap().kind(), DeviceKind::Host);
}

#[test]
fn pitfall_07_an_idle_group_burns_nothing() {
    let _alone = alone();
    threads(4, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(1000).unwrap();
        let graph = rank.stream.capture(|capture| rank.communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        graph.launch(&rank.stream).unwrap();
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        // The least of some: the process does other things as well.
        let burnt = [(); 3].map(|()| {
            let before = system::processor_time();
            std::thread::sleep(Duration::from_millis(700));
            system::processor_time() - before
        });
        if rank.rank() == 0 {
            assert!(burnt.into_iter().min().unwrap() < Duration::from_millis(20), "{burnt:?} in 700 ms");
        }
        rank.communicator.group().barrier().unwrap();
    });
}

/// On a GPU the runtime decides how a thread waits for the device.
#[test]
fn pitfall_07_ranks_that_wait_for_a_late_one_sleep() {
    if !is_host() {
        return;
    }
    let _alone = alone();
    threads(4, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(1000).unwrap();
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        if rank.rank() == 0 {
            let before = system::processor_time();
            std::thread::sleep(Duration::from_secs(1));
            let burnt = system::processor_time() - before;
            assert!(burnt < Duration::from_millis(300), "{burnt:?} in 1 s");
        }
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        rank.finish();
    });
}

/// Waits until the other rank has given up.
fn until_given_up(rank: &Rank) {
    let ended = || rank.communicator.group().check().is_err();
    until(Duration::from_secs(20), "the other rank gives up", ended);
}

/// The first operation may wait long, later operations may not.
#[test]
fn pitfall_06_first_use_has_its_own_deadline() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &short(true)).unwrap();
        let buffer = rank.communicator.symmetric::<f32>(100).unwrap();
        std::thread::sleep(if rank.rank() == 1 { 3 * STEADY } else { Duration::ZERO });
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        if rank.rank() == 1 {
            until_given_up(&rank);
        }
        let enqueued = rank.communicator.all_reduce_in_place(&buffer, &rank.stream);
        let (error, _) = failure(&rank);
        match rank.rank() {
            0 => assert!(matches!(error, Error::Timeout { rank: Some(1), waited: STEADY, .. }), "{error}"),
            _ => {
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
                assert_eq!(enqueued, Err(error), "known when it came");
            }
        }
        gate.pass();
    });
}

/// Waits in a graph last no longer than those of later operations, but its first launch waits as the first call does.
#[test]
fn pitfall_06_the_first_launch_of_a_graph_may_be_late() {
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &short(true)).unwrap();
        let buffer = rank.communicator.symmetric::<f32>(100).unwrap();
        let captured = rank.stream.capture(|capture| rank.communicator.all_reduce_in_place(&buffer, capture));
        let graph = captured.unwrap();
        std::thread::sleep(if rank.rank() == 1 { 3 * STEADY } else { Duration::ZERO });
        graph.launch(&rank.stream).unwrap();
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        if rank.rank() == 1 {
            until_given_up(&rank);
        }
        let _ = graph.launch(&rank.stream);
        let error = failure(&rank).0;
        let expected = matches!(error, Error::Timeout { rank: Some(1), .. } | Error::Aborted { .. });
        assert!(expected, "{error}");
        rank.communicator.group().barrier().unwrap_err();
    });
}

/// Host-side waits have the open deadline: one that is longer than the steady one is kept, one that
/// passes names the missing rank.
#[test]
fn pitfall_06_exchanges_have_the_open_deadline() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let mut config = short(true);
        config.deadlines.open = 4 * STEADY;
        let (rank, _buffer) = warm(bootstrap, &config);
        std::thread::sleep(if rank.rank() == 1 { 2 * STEADY } else { Duration::ZERO });
        rank.communicator.group().barrier().unwrap();
        if rank.rank() == 0 {
            let start = Instant::now();
            let error = rank.communicator.group().barrier().unwrap_err();
            let took = start.elapsed();
            assert!(matches!(error, Error::Timeout { operation: Operation::Exchange, rank: Some(1), .. }), "{error}");
            assert!(took >= 4 * STEADY && took < 4 * STEADY + SLACK, "{took:?}");
        }
        gate.pass();
        let error = failure(&rank).0;
        assert!(matches!(error, Error::Timeout { .. } | Error::Aborted { .. }), "{error}");
        gate.pass();
    });
}

#[test]
fn pitfall_06_a_rank_missing_at_open_is_named_in_time() {
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let mut config = config();
        config.deadlines.open = STEADY;
        if bootstrap.rank() == 1 {
            gate.pass(); // is there, but does not open
            let error = open(bootstrap, &config).map(drop).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. } | Error::PeerLost { .. }), "{error}");
            return;
        }
        let start = Instant::now();
        let error = open(bootstrap, &config).map(drop).unwrap_err();
        assert!(matches!(error, Error::Timeout { operation: Operation::Exchange, rank: Some(1), .. }), "{error}");
        assert!(start.elapsed() < STEADY + SLACK);
        gate.pass();
    });
}
