//! Failed calls that keep their streams until the rank lets them go.

use std::time::Duration;

use symmetra::{Communicator, Config, DeviceBuffer, Error};

use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config};

const ELEMS: usize = 1000;

fn holding() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.hold_after_failure = true;
    config.deadlines.steady = Duration::from_millis(300);
    config.silence = true;
    config
}

/// Whether the work of the rank's stream ends within half a second.
fn ends(rank: &Rank) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        rank.stream.is_done().unwrap()
    })
}

/// Two ranks, of which rank 0 makes a call that rank 1 does not make. Rank 0 copies the output after the call, and lets the
/// stream go on by `let_go`.
fn held_until(let_go: impl Fn(Communicator) + Sync) {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &holding()).unwrap();
        let own = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        let copy = DeviceBuffer::from_slice(&[0i32; ELEMS], &rank.stream).unwrap();
        rank.communicator.all_reduce_in_place(&own, &rank.stream).unwrap();
        rank.finish();
        gate.pass();
        if rank.rank() == 1 {
            return gate.pass();
        }
        rank.communicator.all_reduce_in_place(&own, &rank.stream).unwrap();
        symmetra::copy(&own, &copy, &rank.stream).unwrap();
        // The failure ends this wait, and the stream is held.
        let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
        assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}");
        assert!(!ends(&rank));
        assert_eq!(rank.communicator.all_reduce_in_place(&own, &rank.stream), Err(error.clone()));
        assert!(!ends(&rank));
        let Rank { communicator, stream, .. } = rank;
        let_go(communicator);
        stream.synchronize().unwrap();
        assert_eq!(own.read(&stream).unwrap(), copy.read(&stream).unwrap());
        gate.pass();
    });
}

#[test]
fn a_failed_call_keeps_its_stream_until_an_abort() {
    held_until(|communicator| communicator.abort());
}

#[test]
fn a_failed_call_keeps_its_stream_until_a_departure() {
    held_until(|communicator| assert!(communicator.depart().is_err()));
}

#[test]
fn a_failed_call_keeps_its_stream_until_the_communicator_is_dropped() {
    held_until(drop);
}

#[test]
fn a_failed_call_keeps_its_stream_until_the_communicator_is_abandoned() {
    held_until(Communicator::abandon);
}

#[test]
fn a_peer_that_aborts_does_not_let_go_of_the_streams_of_others() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &holding()).unwrap();
        let own = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        rank.communicator.all_reduce_in_place(&own, &rank.stream).unwrap();
        rank.finish();
        gate.pass();
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(50));
            rank.communicator.abort();
            return gate.pass();
        }
        rank.communicator.all_reduce_in_place(&own, &rank.stream).unwrap();
        let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
        assert!(!ends(&rank));
        rank.communicator.abort();
        rank.stream.synchronize().unwrap();
        gate.pass();
    });
}
