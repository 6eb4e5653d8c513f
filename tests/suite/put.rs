//! One-sided writes into peers' memory: data that are put, or stored by a probe, have arrived when the signal that
//! follows them has arrived, eager and from graphs.

use std::time::Duration;

use parking_lot::Mutex;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{DeviceBuffer, Error};

use crate::support::world::{meet, open, open_on};
use crate::support::{config, threads};

const ELEMS: usize = 1030;

/// The values that `rank` sends.
fn values(rank: usize) -> Vec<i32> {
    (0..ELEMS as i32).map(|item| item * 16 + rank as i32).collect()
}

#[test]
fn a_put_arrives_before_the_signal_behind_it() {
    threads(3, &config(), |rank| {
        let (own, world) = (rank.rank(), rank.world());
        let to = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
        let symmetric = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
        symmetric.write(&values(own), &rank.stream).unwrap();
        let plain = DeviceBuffer::from_slice(&values(own + 8), &rank.stream).unwrap();
        let (next, previous) = ((own + 1) % world, (own + world - 1) % world);
        for round in 0..20 {
            match round % 2 {
                0 => rank.communicator.put(&symmetric, &to, next, &rank.stream).unwrap(),
                _ => rank.communicator.put(&plain, &to, next, &rank.stream).unwrap(),
            }
            to.signals().put(next, 0, &rank.stream).unwrap();
            to.signals().wait(previous, 0, &rank.stream).unwrap();
            assert_eq!(to.read(&rank.stream).unwrap(), values(previous + 8 * (round % 2)));
            // Read before it is written again.
            to.signals().barrier(1, &rank.stream).unwrap();
        }
        rank.finish();
    });
}

#[test]
fn stores_of_a_probe_arrive_everywhere_and_leave_the_tail() {
    threads(4, &config(), |rank| {
        let (own, world) = (rank.rank(), rank.world());
        let from = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
        from.write(&values(own), &rank.stream).unwrap();
        let to: Vec<_> = (0..world).map(|_| rank.communicator.symmetric::<i32>(ELEMS).unwrap()).collect();
        let all: Vec<usize> = (0..world).collect();
        let graph = rank
            .stream
            .capture(|capture| {
                rank.communicator.probe_launches(1, 32, 3, capture)?;
                rank.communicator.probe_stores(&from, &to[own], &all, capture)?;
                from.signals().barrier(0, capture)
            })
            .unwrap();
        graph.launch(&rank.stream).unwrap();
        rank.finish();
        // 1030 elements are 257 stores of 4, and 2.
        for (source, buffer) in to.iter().enumerate() {
            let mut expected = values(source);
            expected[1028..].fill(0);
            assert_eq!(buffer.read(&rank.stream).unwrap(), expected, "of rank {source}");
        }
        // No rank leaves while another rank reads.
        rank.communicator.group().barrier().unwrap();
    });
}

#[test]
fn puts_that_make_no_sense_are_refused() {
    threads(2, &config(), |rank| {
        let communicator = &rank.communicator;
        let (long, short) = (communicator.symmetric::<f32>(8).unwrap(), communicator.symmetric::<f32>(7).unwrap());
        let other = communicator.split(Some(0), 0).unwrap().unwrap();
        for refused in [
            communicator.put(&short, &long, 1, &rank.stream),
            communicator.put(&long, &long, 2, &rank.stream),
            communicator.probe_stores(&short, &long, &[0], &rank.stream),
            communicator.probe_stores(&long, &long, &[2], &rank.stream),
            communicator.probe_stores(&long, &long, &[0; 17], &rank.stream),
            other.put(&long, &long, 1, &rank.stream),
        ] {
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        }
        let words = communicator.symmetric::<u64>(3).unwrap();
        let slots = communicator.symmetric::<u64>(4).unwrap();
        let one = communicator.symmetric::<u64>(1).unwrap();
        for refused in [
            communicator.probe_loads(&words, &slots, 1, 1, &rank.stream),
            communicator.probe_additions(&words, &slots, 2, 1, &rank.stream),
            communicator.probe_additions(&words, &one, 1, 1, &rank.stream),
            communicator.probe_messages(&slots, &words, &slots, 1, 1, &rank.stream),
            communicator.probe_messages(&slots, &slots, &slots, 1, 0, &rank.stream),
            communicator.probe_put(&short, &long, 1, &rank.stream),
            communicator.probe_put(&long, &long, 2, &rank.stream),
            other.probe_put(&long, &long, 1, &rank.stream),
        ] {
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        }
        other.close().unwrap();
    });
}

/// A message that never comes ends the wait: bounded, and the peer is named.
#[test]
fn a_probe_that_hears_nothing_gives_up() {
    let mut config = config();
    config.deadlines.steady = Duration::from_millis(200);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &config).unwrap();
        let slots = [4, 4].map(|words| rank.communicator.symmetric::<u64>(words).unwrap());
        let found = rank.communicator.symmetric::<u64>(2).unwrap();
        if rank.rank() == 0 {
            rank.communicator.probe_messages(&slots[0], &slots[1], &found, 1, 3, &rank.stream).unwrap();
            let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            assert!(error.to_string().contains("rank 1"), "{error}");
        }
        // The other stays until then.
        let _ = rank.communicator.group().barrier();
    });
}

#[test]
fn a_graph_of_puts_ends_with_its_group() {
    threads(2, &config(), |rank| {
        let communicator = rank.communicator.split(Some(0), 0).unwrap().unwrap();
        let (from, to) = (communicator.symmetric::<f32>(8).unwrap(), communicator.symmetric::<f32>(8).unwrap());
        let put = communicator.clone();
        let graph = rank.stream.capture(|capture| put.put(&from, &to, 1, capture)).unwrap();
        graph.launch(&rank.stream).unwrap();
        communicator.synchronize(&rank.stream).unwrap();
        communicator.close().unwrap();
        assert_eq!(graph.launch(&rank.stream), Err(Error::Closed));
    });
}

/// Rank 1 puts into a buffer of rank 0 and is held up; both drop it, and make another in its place.
#[test]
fn what_is_put_late_into_a_dropped_buffer_is_not_in_the_next() {
    let others: Vec<_> = Threads::new(2).unwrap().into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    meet(2, |bootstrap| {
        let own = bootstrap.rank();
        let holding = open(others[own].lock().take().unwrap(), &config()).unwrap();
        let pads = holding.communicator.symmetric::<u8>(1).unwrap();
        let rank = open_on(&holding.device, bootstrap, &config()).unwrap();
        let old = rank.communicator.symmetric::<i32>(ELEMS).unwrap();
        let address = old.as_raw();
        let from = DeviceBuffer::from_slice(&values(own), &rank.stream).unwrap();
        if own == 1 {
            pads.signals().wait(0, 0, &rank.stream).unwrap();
            rank.communicator.put(&from, &old, 0, &rank.stream).unwrap();
            old.signals().put(0, 0, &rank.stream).unwrap();
        }
        drop(old);
        let new = std::thread::scope(|scope| {
            if own == 0 {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(500));
                    pads.signals().put(1, 0, &holding.stream).unwrap();
                });
            }
            rank.communicator.symmetric::<i32>(ELEMS).unwrap()
        });
        assert_eq!(new.as_raw(), address);
        assert_eq!(new.read(&rank.stream).unwrap(), [0; ELEMS]);
        rank.finish();
        drop(new);
        rank.communicator.close().unwrap();
        drop(pads);
        holding.communicator.close().unwrap();
    });
}
