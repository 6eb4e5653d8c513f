//! Ranks that depart: alone, at any time, in any order, also right before the process is killed. Work that is done stays
//! good and an idle group stays well; only a call that needs a rank which has left fails, and names that rank.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra::bootstrap::Bootstrap;
use symmetra::{Algorithm, Communicator, DeviceBuffer, Error, Result, SymmetricBuffer};

use crate::support::process::{Child, Ranks, this, within_a_second};
use crate::support::world::{Gate, bounded, meet, open, open_on, until};
use crate::support::{Rank, fits, is_host};
use crate::{LIMIT, OPS, Op, Parts, STEADY, VICTIM, WORLD, direct, failure};

const ELEMS: usize = 1000;
/// The monitor of a group has seen a departure, and has looked around since.
const SEEN: Duration = Duration::from_millis(1300);

/// A group that has worked, with a buffer of ones.
fn warm(rank: &Rank) -> SymmetricBuffer<i32> {
    let buffer = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
    rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
    rank.finish();
    buffer.write(&[1; ELEMS], &rank.stream).unwrap();
    rank.communicator.group().barrier().unwrap();
    buffer
}

/// The error that names a rank which has left in good order.
fn names_who_left(error: &Error, rank: usize) {
    let Error::PeerLost { rank: named, detail } = error else { panic!("{error}") };
    assert_eq!(*named, rank, "{error}");
    assert!(detail.starts_with(": it left in good order"), "{error}");
}

/// Everything that a rank which has left still holds is closed.
fn is_closed(communicator: &Communicator, buffer: &SymmetricBuffer<i32>, rank: &Rank) {
    let results: [Result<()>; 5] = [
        communicator.all_reduce_in_place(buffer, &rank.stream),
        communicator.group().barrier(),
        communicator.symmetric::<i32>(1).map(drop),
        buffer.signals().put(0, 0, &rank.stream),
        communicator.clone().depart(),
    ];
    assert_eq!(results, [const { Err(Error::Closed) }; 5]);
    assert_eq!(communicator.clone().close(), Err(Error::Closed));
}

/// The others are in a call that needs the rank.
#[test]
fn a_departure_ends_a_call_that_needs_the_rank() {
    for op in OPS {
        let (gate, told) = (Gate::new(WORLD), Gate::new(WORLD - 1));
        meet(WORLD, |bootstrap| {
            let rank = open(bootstrap, &direct(LIMIT)).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let parts = Parts::new(communicator, stream).unwrap();
            parts.check(op, 3, communicator, stream);
            if rank.rank() == VICTIM {
                gate.pass();
                assert_eq!(communicator.clone().depart(), Ok(()), "{op:?}");
                return;
            }
            parts.call(op, VICTIM, communicator, stream).unwrap();
            gate.pass();
            let start = Instant::now();
            names_who_left(&failure(&rank, LIMIT / 4), VICTIM);
            assert!(start.elapsed() < Duration::from_secs(5), "{op:?}: {:?}", start.elapsed());
            told.pass();
        });
    }
}

/// The call is done on the rank that departs, but possibly not on the others.
#[test]
fn a_departure_harms_no_call_that_the_rank_has_made() {
    for op in OPS {
        for round in 0..6 {
            let gate = Gate::new(WORLD);
            meet(WORLD, |bootstrap| {
                let rank = open(bootstrap, &direct(LIMIT)).unwrap();
                let Rank { communicator, stream, .. } = &rank;
                let parts = Parts::new(communicator, stream).unwrap();
                parts.check(op, round, communicator, stream);
                // Late ranks find the data that the rank has sent.
                std::thread::sleep(Duration::from_millis(if rank.rank() == VICTIM { 0 } else { round * 3 }));
                parts.call(op, VICTIM, communicator, stream).unwrap();
                let before = parts.output.borrow();
                match rank.rank() {
                    VICTIM => assert_eq!(communicator.clone().depart(), Ok(()), "{op:?}"),
                    _ => communicator.synchronize(stream).unwrap(),
                }
                gate.pass();
                assert_eq!(before.read(stream).unwrap().len(), parts.output.len());
                if rank.rank() != VICTIM {
                    communicator.group().check().unwrap();
                }
                gate.pass();
                if rank.rank() != VICTIM {
                    let called = parts.call(op, VICTIM, communicator, stream);
                    names_who_left(&called.and_then(|()| Err::<(), _>(failure(&rank, LIMIT / 4))).unwrap_err(), VICTIM);
                }
                gate.pass();
            });
        }
    }
}

#[test]
fn an_idle_group_stays_well_beside_a_rank_that_departed() {
    let gate = Gate::new(WORLD);
    meet(WORLD, |bootstrap| {
        let rank = open(bootstrap, &direct(LIMIT)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = warm(&rank);
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        if rank.rank() == VICTIM {
            assert_eq!(communicator.clone().depart(), Ok(()));
            is_closed(communicator, &buffer, &rank);
            assert_eq!(buffer.read(stream).unwrap(), [WORLD as i32; ELEMS]);
            gate.pass();
        } else {
            gate.pass();
            std::thread::sleep(SEEN);
            communicator.synchronize(stream).unwrap();
            communicator.group().check().unwrap();
            assert_eq!(buffer.read(stream).unwrap(), [WORLD as i32; ELEMS]);
            // Between the two that are here.
            let other = WORLD - 1 - rank.rank();
            buffer.signals().put(other, 0, stream).unwrap();
            buffer.signals().wait(other, 0, stream).unwrap();
            communicator.put(&buffer, &buffer, other, stream).unwrap();
            communicator.synchronize(stream).unwrap();
        }
        gate.pass();
        if rank.rank() != VICTIM {
            let mut put = Ok(());
            until(Duration::from_secs(20), "the departure is seen", || {
                put = buffer.signals().put(VICTIM, 0, stream);
                put.is_err()
            });
            names_who_left(&put.unwrap_err(), VICTIM);
        }
        gate.pass();
    });
}

#[test]
fn a_departure_ends_the_replays_that_need_the_rank_and_no_others() {
    let gate = Gate::new(WORLD);
    meet(WORLD, |bootstrap| {
        let rank = open(bootstrap, &direct(LIMIT)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = warm(&rank);
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        for _ in 0..5 {
            graph.launch(stream).unwrap();
        }
        if rank.rank() == VICTIM {
            assert_eq!(communicator.clone().depart(), Ok(()));
            assert_eq!(graph.launch(stream), Err(Error::Closed));
        } else {
            communicator.synchronize(stream).unwrap();
        }
        assert_eq!(buffer.read(stream).unwrap(), [3i32.pow(5); ELEMS]);
        gate.pass();
        if rank.rank() != VICTIM {
            let replayed = graph.launch(stream).and_then(|()| Err::<(), _>(failure(&rank, LIMIT / 4)));
            names_who_left(&replayed.unwrap_err(), VICTIM);
        }
        gate.pass();
    });
}

/// The rank's own calls wait for ranks that come later.
#[test]
fn a_rank_that_departs_waits_for_its_own_calls() {
    meet(WORLD, |bootstrap| {
        let rank = open(bootstrap, &direct(LIMIT)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = warm(&rank);
        let start = Instant::now();
        // Before the others sleep.
        communicator.group().barrier().unwrap();
        std::thread::sleep(if rank.rank() == VICTIM { Duration::ZERO } else { STEADY });
        for _ in 0..3 {
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
        }
        communicator.clone().depart().unwrap();
        assert!(rank.rank() != VICTIM || start.elapsed() > STEADY / 2, "{:?}", start.elapsed());
        assert_eq!(buffer.read(stream).unwrap(), [3i32.pow(3); ELEMS]);
    });
}

/// A call of the rank that departs always fails: the rank learns why, and the others learn that it gave up.
#[test]
fn a_departure_with_a_call_that_nobody_meets_is_a_timeout() {
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &direct(STEADY)).unwrap();
        let buffer = warm(&rank);
        if rank.rank() == 1 {
            rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
            let start = Instant::now();
            let error = rank.communicator.clone().depart().unwrap_err();
            assert!(matches!(error, Error::Timeout { rank: Some(0), .. }), "{error}");
            assert!(start.elapsed() < STEADY + Duration::from_secs(5), "{:?}", start.elapsed());
            assert_eq!(rank.communicator.group().check(), Err(Error::Closed));
        } else {
            let error = failure(&rank, LIMIT / 4);
            assert!(matches!(&error, Error::Aborted { detail } if detail.contains("rank 1")), "{error}");
        }
        gate.pass();
    });
}

/// Signals are in no order of calls: a put that follows other work is done before its rank has gone.
#[test]
fn a_departure_waits_for_signals_and_puts() {
    let (gate, pair) = (Gate::new(2), crate::worlds(2));
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &direct(LIMIT)).unwrap();
        let other = open_on(&rank.device, crate::taken(&pair, rank.rank()), &direct(LIMIT)).unwrap();
        let (buffer, pads) = (warm(&rank), warm(&other));
        let aside = symmetra::Stream::new(&rank.device).unwrap();
        if rank.rank() == 1 {
            buffer.write(&[7; ELEMS], &rank.stream).unwrap();
            // Holds the stream up until rank 0 lets go.
            pads.signals().wait(0, 0, &aside).unwrap();
            rank.communicator.put(&buffer, &buffer, 0, &aside).unwrap();
            buffer.signals().put(0, 1, &aside).unwrap();
            gate.pass();
            rank.communicator.clone().depart().unwrap();
        } else {
            buffer.signals().wait(1, 1, &aside).unwrap();
            gate.pass();
            std::thread::sleep(STEADY);
            pads.signals().put(1, 0, &other.stream).unwrap();
            aside.synchronize().unwrap();
            rank.communicator.group().check().unwrap();
            assert_eq!(buffer.read(&aside).unwrap(), [7; ELEMS]);
        }
        gate.pass();
        other.communicator.close().unwrap();
    });
}

#[test]
fn ranks_may_all_depart_in_any_order() {
    let world = if is_host() { 4 } else { 2 };
    for round in 0..25 {
        meet(world, |bootstrap| {
            let own = bootstrap.rank();
            let rank = open(bootstrap, &direct(LIMIT)).unwrap();
            let buffer = warm(&rank);
            let plain = DeviceBuffer::from_slice(&[1i32; ELEMS], &rank.stream).unwrap();
            rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
            rank.communicator.all_reduce_with(Algorithm::OneShotLL, &plain, &plain, &rank.stream).unwrap();
            std::thread::sleep(Duration::from_micros(((own * 37 + round * 11) % 50) as u64 * 20));
            rank.communicator.clone().depart().unwrap();
            is_closed(&rank.communicator, &buffer, &rank);
            for values in [buffer.read(&rank.stream), plain.read(&rank.stream)] {
                assert_eq!(values.unwrap(), [world as i32; ELEMS]);
            }
        });
    }
}

/// `close` is collective, and so a call that needs the rank. The group is closed nevertheless.
#[test]
fn who_closes_beside_a_rank_that_departed_is_told_at_once() {
    for first in [true, false] {
        let gate = Gate::new(WORLD);
        meet(WORLD, |bootstrap| {
            let rank = open(bootstrap, &direct(LIMIT)).unwrap();
            let buffer = warm(&rank);
            if rank.rank() == VICTIM {
                // With the others in their close already, or not.
                if !first {
                    gate.pass();
                    std::thread::sleep(STEADY);
                }
                rank.communicator.clone().depart().unwrap();
            }
            if first || rank.rank() != VICTIM {
                gate.pass();
            }
            if rank.rank() != VICTIM {
                let start = Instant::now();
                let error = rank.communicator.clone().close().unwrap_err();
                match error {
                    Error::PeerLost { rank: VICTIM, .. } => names_who_left(&error, VICTIM),
                    // The other survivor was notified first, and has gone.
                    error => assert!(matches!(error, Error::Peer { .. }), "{error}"),
                }
                assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
                is_closed(&rank.communicator, &buffer, &rank);
            }
        });
    }
}

/// The part of a rank in a test with a rank that departs and is killed.
fn mortal(child: &Child) {
    let rank = child.open(&direct(Duration::from_secs(60)));
    let Rank { communicator, stream, .. } = &rank;
    let buffer = warm(&rank);
    let plain = DeviceBuffer::from_slice(&[1i32; 1 << 16], stream).unwrap();
    let graph = stream.capture(|capture| communicator.all_reduce_in_place(&plain, capture)).unwrap();
    graph.register().unwrap();
    communicator.all_reduce_in_place(&buffer, stream).unwrap();
    graph.launch(stream).unwrap();
    if child.rank == VICTIM {
        communicator.clone().depart().unwrap();
        is_closed(communicator, &buffer, &rank);
        assert_eq!(plain.read(stream).unwrap(), vec![3; 1 << 16]);
        child.say("gone");
        child.hear();
    }
    communicator.synchronize(stream).unwrap();
    child.say("done");
    child.hear();
    // The rank has departed and its process was killed.
    std::thread::sleep(SEEN);
    communicator.synchronize(stream).unwrap();
    communicator.group().check().unwrap();
    assert_eq!(buffer.read(stream).unwrap(), [3; ELEMS]);
    assert_eq!(plain.read(stream).unwrap(), vec![3; 1 << 16]);
    child.say("well");
    child.hear();
    let error = match child.rank {
        0 => graph.launch(stream).and_then(|()| Err::<(), _>(failure(&rank, LIMIT / 4))).unwrap_err(),
        _ => failure(&rank, LIMIT / 4),
    };
    names_who_left(&error, VICTIM);
    child.say("told");
    child.hear();
}

#[test]
fn pitfall_01_a_process_that_is_killed_after_it_departed_is_not_lost() {
    const NAME: &str = "departures::pitfall_01_a_process_that_is_killed_after_it_departed_is_not_lost";
    if let Some(child) = this() {
        return bounded(LIMIT, || mortal(&child));
    }
    if !fits(WORLD) {
        return;
    }
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(NAME, WORLD, "");
    let others = [0, 2];
    ranks.expect(&[VICTIM], "gone");
    ranks.signal(VICTIM, Signal::KILL);
    ranks.expect(&others, "done");
    ranks.tell(&others, "look");
    ranks.expect(&others, "well");
    ranks.tell(&others, "call");
    ranks.expect(&others, "told");
    ranks.tell(&others, "end");
    ranks.finish(&others);
}

/// Calls without end on the others, while one departs.
fn endless(child: &Child) {
    let rank = child.open(&direct(Duration::from_secs(60)));
    let Rank { communicator, stream, .. } = &rank;
    let parts = Parts::new(communicator, stream).unwrap();
    parts.check(Op::AllGather, 1, communicator, stream);
    for number in 0u64.. {
        if child.rank == VICTIM && number == 200 {
            communicator.clone().depart().unwrap();
            child.say("gone");
            child.hear();
            return;
        }
        if let Err(error) = parts.call(Op::AllGather, VICTIM, communicator, stream).and_then(|()| match number % 7 {
            0 => communicator.synchronize(stream),
            _ => Ok(()),
        }) {
            names_who_left(&error, VICTIM);
            child.say("told");
            child.hear();
            return;
        }
    }
}

#[test]
fn pitfall_01_processes_learn_at_once_of_a_departure() {
    const NAME: &str = "departures::pitfall_01_processes_learn_at_once_of_a_departure";
    if let Some(child) = this() {
        return bounded(LIMIT, || endless(&child));
    }
    if !fits(WORLD) {
        return;
    }
    let _alone = crate::support::world::alone();
    within_a_second(NAME, || {
        let mut ranks = Ranks::start(NAME, WORLD, "");
        let gone = ranks.hear(VICTIM);
        assert_eq!(gone.words, "gone");
        let took = [0, 2].map(|rank| {
            let told = ranks.hear(rank);
            assert_eq!(told.words, "told");
            told.at.saturating_duration_since(gone.at)
        });
        ranks.tell(&[0, 1, 2], "end");
        ranks.finish(&[0, 1, 2]);
        took.into_iter().max().unwrap()
    });
}
