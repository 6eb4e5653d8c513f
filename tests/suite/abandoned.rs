//! A rank that leaves without a wait: peers that need nothing of it stay well, and calls that need it fail.

use std::time::{Duration, Instant};

use symmetra::{Communicator, Config, DeviceBuffer, Error, Result};

use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config};

const ELEMS: usize = 1000;
/// Far below the deadlines of [`patient`].
const SOON: Duration = Duration::from_secs(10);

fn patient() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.silence = true;
    config
}

/// Abandons a communicator and checks that the caller does not wait for other ranks or the device.
fn abandon(communicator: &Communicator) {
    let start = Instant::now();
    communicator.clone().abandon();
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

/// The failure of a group within [`SOON`].
fn failure(communicator: &Communicator) -> Error {
    let start = Instant::now();
    loop {
        match communicator.group().check() {
            Err(error) => return error,
            Ok(()) => assert!(start.elapsed() < SOON, "no failure"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stays well for longer than the monitor takes to look at the ranks.
fn stays_well(communicator: &Communicator) {
    std::thread::sleep(Duration::from_millis(1500));
    communicator.group().check().unwrap();
}

fn sum(rank: &Rank, plain: &DeviceBuffer<i32>) -> Result<()> {
    rank.communicator.all_reduce_in_place(plain, &rank.stream)
}

#[test]
fn a_rank_whose_calls_are_done_leaves_the_others_well() {
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &patient()).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        sum(&rank, &plain).unwrap();
        rank.finish();
        gate.pass();
        if rank.rank() == 1 {
            abandon(&rank.communicator);
            assert_eq!(sum(&rank, &plain), Err(Error::Closed));
            assert_eq!(rank.communicator.clone().close(), Err(Error::Closed));
            // A second time is harmless.
            abandon(&rank.communicator);
        } else {
            stays_well(&rank.communicator);
        }
        gate.pass();
        assert_eq!(plain.read(&rank.stream).unwrap(), [3; ELEMS]);
        if rank.rank() == 0 {
            let error = sum(&rank, &plain).unwrap_err();
            assert!(matches!(&error, Error::PeerLost { rank: 1, .. }), "{error}");
            assert!(error.to_string().contains("abandoned its communicator"), "{error}");
        }
        gate.pass();
    });
}

#[test]
fn calls_under_way_give_up_and_idle_peers_stay_well() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &patient()).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        sum(&rank, &plain).unwrap();
        rank.finish();
        gate.pass();
        if rank.rank() == 0 {
            // The peer never makes these calls.
            sum(&rank, &plain).unwrap();
            sum(&rank, &plain).unwrap();
            abandon(&rank.communicator);
            let start = Instant::now();
            rank.stream.synchronize().unwrap();
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        } else {
            stays_well(&rank.communicator);
            let error = sum(&rank, &plain).unwrap_err();
            assert!(matches!(&error, Error::PeerLost { rank: 0, .. }), "{error}");
            assert!(error.to_string().contains("abandoned its communicator"), "{error}");
        }
        gate.pass();
    });
}

#[test]
fn a_peer_whose_call_needs_the_rank_fails() {
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &patient()).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        sum(&rank, &plain).unwrap();
        rank.finish();
        gate.pass();
        // Rank 2 does not make the second call, so that it does not end.
        if rank.rank() < 2 {
            sum(&rank, &plain).unwrap();
        }
        gate.pass();
        match rank.rank() {
            0 => abandon(&rank.communicator),
            _ => {
                let error = failure(&rank.communicator);
                assert!(matches!(&error, Error::PeerLost { rank: 0, .. }), "{error}");
            }
        }
        gate.pass();
    });
}

#[test]
fn messages_that_are_cut_off_fail_the_group() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &patient()).unwrap();
        let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
        sum(&rank, &plain).unwrap();
        rank.finish();
        gate.pass();
        if rank.rank() == 0 {
            rank.communicator.pairs(&rank.stream, |messages| messages.receive(&plain, 1)).unwrap();
            abandon(&rank.communicator);
        } else {
            let error = failure(&rank.communicator);
            assert!(matches!(&error, Error::Aborted { .. } | Error::PeerLost { rank: 0, .. }), "{error}");
        }
        gate.pass();
    });
}

/// Messages between other ranks go on.
#[test]
fn a_peer_whose_messages_are_done_stays_well() {
    for departs in [false, true] {
        let gate = Gate::new(3);
        meet(3, |bootstrap| {
            let rank = open(bootstrap, &patient()).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let [from, into] = [1i32, 0].map(|value| DeviceBuffer::from_slice(&[value; ELEMS], stream).unwrap());
            match rank.rank() {
                0 => communicator.pairs(stream, |messages| messages.send(&from, 1)).unwrap(),
                1 => communicator.pairs(stream, |messages| messages.receive(&into, 0)).unwrap(),
                _ => {}
            }
            rank.finish();
            gate.pass();
            match (rank.rank(), departs) {
                (0, false) => abandon(communicator),
                (0, true) => communicator.clone().depart().unwrap(),
                _ => stays_well(communicator),
            }
            gate.pass();
            match rank.rank() {
                1 => communicator.pairs(stream, |messages| messages.send(&from, 2)).unwrap(),
                2 => communicator.pairs(stream, |messages| messages.receive(&into, 1)).unwrap(),
                _ => {}
            }
            if rank.rank() > 0 {
                rank.finish();
            }
            gate.pass();
        });
    }
}

#[test]
fn a_peer_with_an_open_message_fails() {
    for (departs, sends) in [(false, false), (false, true), (true, false)] {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let rank = open(bootstrap, &patient()).unwrap();
            let plain = DeviceBuffer::from_slice(&[0i32; ELEMS], &rank.stream).unwrap();
            if rank.rank() == 1 {
                let open = rank.communicator.pairs(&rank.stream, |messages| match sends {
                    true => messages.send(&plain, 0),
                    false => messages.receive(&plain, 0),
                });
                open.unwrap();
            }
            gate.pass();
            match (rank.rank(), departs) {
                (0, false) => abandon(&rank.communicator),
                (0, true) => rank.communicator.clone().depart().unwrap(),
                _ => {
                    let error = failure(&rank.communicator);
                    assert!(matches!(&error, Error::PeerLost { rank: 0, .. }), "{error}");
                }
            }
            gate.pass();
        });
    }
}

#[test]
fn ranks_that_wait_in_a_call_of_the_host_go_on() {
    let gate = Gate::new(3);
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &patient()).unwrap();
        let lost = |waited: Result<()>| {
            assert!(matches!(waited, Err(Error::PeerLost { rank: 0, .. })), "rank {}: {waited:?}", rank.rank());
        };
        if rank.rank() == 1 {
            lost(rank.communicator.group().barrier());
        }
        if rank.rank() == 0 {
            let waits = rank.communicator.clone();
            let waiting = std::thread::spawn(move || waits.group().barrier());
            std::thread::sleep(Duration::from_millis(50));
            abandon(&rank.communicator);
            let start = Instant::now();
            assert_eq!(waiting.join().unwrap(), Err(Error::Closed));
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        }
        gate.pass();
        if rank.rank() == 2 {
            lost(rank.communicator.group().barrier());
        }
        gate.pass();
    });
}
