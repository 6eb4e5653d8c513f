//! The metadata ring: ranks as threads and as processes, also slow, killed and idle ranks.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod forks;
mod idle;
mod local;
mod processes;
#[path = "../support/mod.rs"]
mod support;
mod zeromq;

use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::Threads;
use symmetra::{Error, Result};
use symmetra_ring::{BroadcastRing, Reader, RingConfig, Writer};

fn within(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// A ring with only a few small slots, so that tests often reach its end.
fn small() -> RingConfig {
    let mut config = RingConfig::default();
    (config.slots, config.chunk_bytes) = (3, 100);
    (config.open, config.steady) = (Duration::from_secs(30), Duration::from_secs(30));
    config
}

/// Makes a ring of threads, rank 0 writing, and hands out its ends.
fn ring(world: usize, config: &RingConfig) -> (Writer, Vec<Reader>) {
    let ends = ends(world, |_| config.clone()).into_iter().map(Result::unwrap);
    let (mut writer, mut readers) = (None, Vec::new());
    for end in ends {
        match end {
            BroadcastRing::Writer(end) => writer = Some(end),
            BroadcastRing::Reader(end) => readers.push(end),
        }
    }
    (writer.expect("no writer"), readers)
}

/// The results of every rank of a world of threads with these settings.
fn ends(world: usize, config: impl Fn(usize) -> RingConfig) -> Vec<Result<BroadcastRing>> {
    let threads = Threads::new(world).unwrap().into_iter().enumerate().map(|(rank, mut bootstrap)| {
        let config = config(rank);
        thread::spawn(move || BroadcastRing::create(&mut bootstrap, config))
    });
    threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Message `number` of a series: its length is random, its bytes differ from those of its neighbours.
fn message(seed: u64, number: u64, most_bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003) ^ number);
    let mut bytes = vec![0; random.usize(..=most_bytes)];
    random.fill(&mut bytes);
    bytes
}

/// Reads a series and compares every byte.
fn check_series(reader: &mut Reader, seed: u64, count: u64, most_bytes: usize) {
    for number in 0..count {
        let expected = message(seed, number, most_bytes);
        let received = reader.receive().unwrap();
        assert!(received == expected, "message {number}: {} bytes, {} expected", received.len(), expected.len());
    }
    assert_eq!(reader.received(), count);
}

fn timed_out<T: std::fmt::Debug>(result: Result<T>) -> (Option<usize>, String) {
    match result {
        Err(error @ Error::Timeout { rank, .. }) => (rank, error.to_string()),
        other => panic!("not Timeout: {other:?}"),
    }
}

fn lost<T: std::fmt::Debug>(result: Result<T>) -> (usize, String) {
    match result {
        Err(Error::PeerLost { rank, detail }) => (rank, detail),
        other => panic!("not PeerLost: {other:?}"),
    }
}
