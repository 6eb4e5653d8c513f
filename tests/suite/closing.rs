//! How a group ends: with work in flight, and with work that fails while ranks wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{Config, DeviceBuffer, Error, SymmetricBuffer};

use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config};

const ELEMS: usize = 1000;

fn patient(steady: Duration) -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.check_calls = false;
    config.deadlines.steady = steady;
    config
}

/// A group that has worked, with a buffer of ones.
fn warm(bootstrap: Threads, config: &Config) -> (Rank, SymmetricBuffer<i32>) {
    let rank = open(bootstrap, config).unwrap();
    let buffer = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
    rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
    rank.finish();
    buffer.write(&[1; ELEMS], &rank.stream).unwrap();
    rank.communicator.group().barrier().unwrap();
    (rank, buffer)
}

#[test]
fn work_in_flight_is_done_before_the_group_ends() {
    meet(3, |bootstrap| {
        let (rank, buffer) = warm(bootstrap, &config());
        let Rank { communicator, stream, .. } = &rank;
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        for _ in 0..4 {
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
            graph.launch(stream).unwrap();
        }
        communicator.clone().close().unwrap();
        assert_eq!(buffer.read(stream).unwrap(), [3i32.pow(8); ELEMS]);
        assert_eq!(graph.launch(stream), Err(Error::Closed));
        assert_eq!(buffer.signals().put(0, 0, stream), Err(Error::Closed));
        assert_eq!(communicator.put(&buffer, &buffer, 1, stream), Err(Error::Closed));
    });
}

#[test]
fn pitfall_04_a_call_that_fails_while_ranks_close_is_an_error_of_all() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let (rank, buffer) = warm(bootstrap, &patient(Duration::from_millis(300)));
        if rank.rank() == 0 {
            rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        }
        let error = rank.communicator.clone().close().unwrap_err();
        match rank.rank() {
            0 => assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}"),
            _ => assert!(matches!(error, Error::Aborted { .. }), "{error}"),
        }
        gate.pass();
    });
}

#[test]
fn pitfall_01_a_rank_that_dies_while_another_closes_is_noticed() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let (rank, buffer) = warm(bootstrap, &patient(Duration::from_secs(15)));
        if rank.rank() == 1 {
            gate.pass();
            std::thread::sleep(Duration::from_millis(200));
            drop((rank, buffer));
            return;
        }
        rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
        gate.pass();
        let start = Instant::now();
        let error = rank.communicator.close().unwrap_err();
        let took = start.elapsed();
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

/// A watchdog may come late, and a rank may abort after it departed.
#[test]
fn an_abort_after_the_end_spoils_no_result() {
    for departs in [false, true] {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let (rank, buffer) = warm(bootstrap, &config());
            let Rank { communicator, stream, .. } = &rank;
            match (departs, rank.rank()) {
                (false, _) => communicator.clone().close().unwrap(),
                (true, 1) => communicator.clone().depart().unwrap(),
                (true, _) => {}
            }
            gate.pass();
            if rank.rank() == 1 {
                communicator.abort();
            }
            gate.pass();
            assert_eq!(buffer.read(stream).unwrap(), [1; ELEMS]);
            if departs && rank.rank() == 0 {
                communicator.group().check().unwrap();
                communicator.clone().depart().unwrap();
            }
            gate.pass();
        });
    }
}

/// The last call of the communicator went to a stream that has no other owner, so the stream ends with the
/// communicator, when its work is done.
#[test]
fn a_communicator_that_is_dropped_waits_for_no_peer() {
    let gate = Gate::new(2);
    let mut config = patient(Duration::from_secs(15));
    config.deadlines.first_use = config.deadlines.steady;
    meet(2, |bootstrap| {
        let Rank { communicator, stream, .. } = open(bootstrap, &config).unwrap();
        communicator.reserve_workspace(1024).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &stream).unwrap();
        if communicator.rank() == 0 {
            communicator.all_reduce_in_place(&plain, &stream).unwrap();
            drop(stream);
            let start = Instant::now();
            drop(communicator);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
        gate.pass();
    });
}

/// Peers may still be in the last exchange when a rank's `close` has returned: they close without error even if that
/// rank panics.
#[test]
fn a_rank_may_come_to_grief_as_soon_as_it_has_closed() {
    let mut small = config();
    small.heap_bytes = 64 << 10;
    for _ in 0..60 {
        meet(4, |bootstrap| {
            let number = bootstrap.rank();
            let Rank { communicator, .. } = open(bootstrap, &small).unwrap();
            communicator.clone().close().unwrap_or_else(|error| panic!("rank {number}: {error}"));
            let grief = catch_unwind(AssertUnwindSafe(|| {
                let _held = communicator;
                resume_unwind(Box::new(()));
            }));
            assert!(grief.is_err());
        });
    }
}
