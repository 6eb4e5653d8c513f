//! Signals on streams: put, wait and barrier over channels, eager and captured, and waits that no rank signals.

use std::time::{Duration, Instant};

use symmetra::{Config, Error, Operation, Ref, Result, SIGNAL_CHANNELS, SymmetricBuffer};

use crate::support::data::{Random, mix};
use crate::support::extent::full;
use crate::support::world::Gate;
use crate::support::{Rank, config, is_host, threads, world};

/// Long enough for a loaded machine to make a forbidden step, if nothing prevents the step.
const A_WHILE: Duration = Duration::from_millis(60);

fn short(steady: Duration) -> Config {
    let mut config = config();
    config.deadlines = config.deadlines.steady(steady);
    config
}

/// A peer's elements, addressed from here.
fn of_peer<'a>(rank: &Rank, buffer: &'a SymmetricBuffer<i64>, peer: usize) -> Ref<'a, i64> {
    let address = buffer.peer_address(peer).unwrap();
    // SAFETY: the peer's arena stays mapped while this rank's buffer lives; signals order the accesses.
    unsafe { Ref::from_raw(&rank.device, address, buffer.len()) }.unwrap()
}

/// A token goes round: every rank adds to it in its successor's memory, then signals.
#[test]
fn pitfall_26_a_put_publishes_what_came_before_it() {
    if !is_host() {
        eprintln!("skipped: a peer's memory is written by a user's own kernel on a GPU");
        return;
    }
    const ROUNDS: i64 = 100;
    threads(3, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<i64>(700).unwrap();
        let pad = buffer.signals();
        let (own, world) = (rank.rank(), rank.world());
        let (next, previous) = ((own + 1) % world, (own + world - 1) % world);
        let there = of_peer(rank, &buffer, next);
        for round in 0..ROUNDS {
            let mut token = vec![0; 700];
            if own > 0 || round > 0 {
                pad.wait(previous, 2, &rank.stream).unwrap();
                token = buffer.read(&rank.stream).unwrap();
            }
            let hops = round * world as i64 + own as i64;
            assert_eq!(token, vec![hops; 700]);
            there.write(&vec![hops + 1; 700], &rank.stream).unwrap();
            pad.put(next, 2, &rank.stream).unwrap();
        }
        if own == 0 {
            pad.wait(previous, 2, &rank.stream).unwrap();
        }
        rank.finish();
    });
}

/// A wait ends when the put has come, not before; puts on other channels or from others do not count.
#[test]
fn a_wait_is_for_one_channel_and_one_peer() {
    let steps = Gate::new(3);
    threads(3, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(1).unwrap();
        let other = rank.communicator.symmetric::<f32>(1).unwrap();
        let pad = buffer.signals();
        if rank.rank() == 0 {
            pad.wait(1, 5, &rank.stream).unwrap();
        }
        steps.pass();
        match rank.rank() {
            1 => {
                pad.put(0, 4, &rank.stream).unwrap(); // another channel
                pad.put(2, 5, &rank.stream).unwrap(); // to another rank
                other.signals().put(0, 5, &rank.stream).unwrap(); // another pad
            }
            2 => pad.put(0, 5, &rank.stream).unwrap(), // from another rank
            _ => {}
        }
        if rank.rank() != 0 {
            rank.finish();
        }
        steps.pass();
        if rank.rank() == 0 {
            std::thread::sleep(A_WHILE);
            assert!(!rank.stream.is_done().unwrap(), "the wait ended without its put");
        }
        steps.pass();
        if rank.rank() == 1 {
            pad.put(0, 5, &rank.stream).unwrap();
        }
        rank.finish();
        // All that was put is still there to be waited for.
        match rank.rank() {
            0 => {
                pad.wait(1, 4, &rank.stream).unwrap();
                pad.wait(2, 5, &rank.stream).unwrap();
                other.signals().wait(1, 5, &rank.stream).unwrap();
            }
            2 => pad.wait(1, 5, &rank.stream).unwrap(),
            _ => {}
        }
        rank.finish();
    });
}

/// Signals are counts: puts may precede waits, on every channel at once, in any order.
#[test]
fn puts_run_ahead_of_waits() {
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(3).unwrap();
        let pad = buffer.signals();
        let peer = 1 - rank.rank();
        for channel in 0..SIGNAL_CHANNELS {
            (0..=channel * 3).for_each(|_| pad.put(peer, channel, &rank.stream).unwrap());
        }
        for channel in (0..SIGNAL_CHANNELS).rev() {
            (0..=channel * 3).for_each(|_| pad.wait(peer, channel, &rank.stream).unwrap());
        }
        rank.finish();
    });
}

/// No stream passes a barrier before all have come to it.
#[test]
fn a_barrier_holds_every_stream_until_the_last_has_come() {
    let steps = Gate::new(4);
    threads(4, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(1).unwrap();
        let pad = buffer.signals();
        for late in 0..4 {
            if rank.rank() != late {
                pad.barrier(0, &rank.stream).unwrap();
            }
            steps.pass();
            std::thread::sleep(A_WHILE / 3);
            assert!(rank.rank() == late || !rank.stream.is_done().unwrap(), "passed without rank {late}");
            steps.pass();
            if rank.rank() == late {
                pad.barrier(0, &rank.stream).unwrap();
            }
            rank.finish();
        }
    });
}

/// Signals are in device memory: a graph of signals is replayed, mixed with eager signals and collectives.
#[test]
fn pitfall_09_captured_signals_replay() {
    let replays = if full() { 600 } else { 200 };
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i64>(5).unwrap();
        buffer.write(&[1; 5], stream).unwrap();
        let pad = buffer.signals();
        let (own, world) = (rank.rank(), rank.world());
        let (next, previous) = ((own + 1) % world, (own + world - 1) % world);
        let graph = stream.capture(|capture| {
            pad.put(next, 7, capture)?;
            communicator.all_reduce_in_place(&buffer, capture)?;
            pad.wait(previous, 7, capture)?;
            pad.barrier(8, capture)
        });
        let graph = graph.unwrap();
        let mut jitter = Random(mix(own as u64));
        for replay in 0..replays {
            graph.launch(stream).unwrap();
            if replay % 5 == 0 {
                pad.barrier(8, stream).unwrap();
                pad.put(next, 7, stream).unwrap();
                pad.wait(previous, 7, stream).unwrap();
            }
            if jitter.below(30) == 0 {
                std::thread::sleep(Duration::from_micros(jitter.below(300) as u64));
            }
        }
        rank.finish();
        let expected = (0..replays).fold(1i64, |product, _| product.wrapping_mul(3));
        assert_eq!(buffer.read(stream).unwrap(), [expected; 5]);
    });
}

#[test]
fn a_channel_or_peer_there_is_not_is_refused() {
    threads(2, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<f32>(1).unwrap();
        let pad = buffer.signals();
        let refused = |result: Result<()>, words: [&str; 2]| {
            let error = result.unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        };
        refused(pad.put(0, SIGNAL_CHANNELS, &rank.stream), ["channel is 16", "has 16"]);
        refused(pad.wait(0, usize::MAX, &rank.stream), ["channel", "has 16"]);
        refused(pad.barrier(99, &rank.stream), ["channel is 99", "has 16"]);
        refused(pad.put(2, 0, &rank.stream), ["peer is 2", "world size is 2"]);
        refused(pad.wait(usize::MAX, 0, &rank.stream), ["peer", "world size is 2"]);
        assert!(buffer.peer_address(2).is_err());
        pad.barrier(0, &rank.stream).unwrap();
        rank.finish();
    });
}

/// A wait for a signal that never comes ends at the deadline, names operation and rank, and stops all.
#[test]
fn a_wait_without_a_put_times_out() {
    let steady = Duration::from_millis(300);
    missing(steady, Operation::SignalWait, |rank, buffer| match rank.rank() {
        0 => buffer.signals().wait(1, 3, &rank.stream),
        _ => Ok(()),
    });
}

#[test]
fn a_barrier_without_a_rank_times_out() {
    let steady = Duration::from_millis(300);
    missing(steady, Operation::SignalBarrier, |rank, buffer| match rank.rank() {
        1 => Ok(()),
        _ => buffer.signals().barrier(3, &rank.stream),
    });
}

/// Rank 0 misses rank 1 in `call`.
fn missing(steady: Duration, operation: Operation, call: impl Fn(&Rank, &SymmetricBuffer<f32>) -> Result<()> + Sync) {
    let everyone = Gate::new(3);
    world::meet(3, |bootstrap| {
        let rank = world::open(bootstrap, &short(steady)).unwrap();
        let buffer = rank.communicator.symmetric::<f32>(1).unwrap();
        // Before any rank waits.
        let start = Instant::now();
        everyone.pass();
        let mut outcome = call(&rank, &buffer);
        let failure = loop {
            match outcome.and_then(|()| rank.communicator.synchronize(&rank.stream)) {
                Err(error) => break error,
                Ok(()) => std::thread::sleep(Duration::from_millis(2)),
            }
            outcome = Ok(());
            assert!(start.elapsed() < steady + Duration::from_secs(20), "rank {} never learned of it", rank.rank());
        };
        match (&failure, rank.rank()) {
            (Error::Timeout { operation: found, rank: Some(1), waited, .. }, 0) => {
                assert_eq!((*found, *waited), (operation, steady));
                assert!(start.elapsed() >= steady, "gave up after {:?}", start.elapsed());
            }
            (Error::Aborted { .. }, 1) => {}
            (Error::Timeout { rank: Some(1), .. }, 2) => {}
            (other, own) => panic!("rank {own} got {other}"),
        }
        assert_eq!(buffer.signals().put(0, 0, &rank.stream), Err(failure));
        everyone.pass();
    });
}
