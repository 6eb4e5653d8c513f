//! A relay between the ranks that records and changes bytes: what it can read, and how ranks detect changes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Tcp};
use symmetra::{Error, Result};

use crate::{config, free_address, knock, lost, on_threads, timed_out, within, words};

/// Changes bytes on their way, once.
type Tamper = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// One direction of a relayed connection.
#[derive(Default)]
struct Way {
    seen: Vec<u8>,
    tamper: Option<Tamper>,
}

/// A relay between rank 1 and rank 0.
struct Relay {
    address: SocketAddr,
    to_rank0: Arc<Mutex<Way>>,
    to_rank1: Arc<Mutex<Way>>,
}

impl Relay {
    fn before(rank0: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (to_rank0, to_rank1) = (Arc::<Mutex<Way>>::default(), Arc::<Mutex<Way>>::default());
        let ways = (Arc::clone(&to_rank0), Arc::clone(&to_rank1));
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = knock(rank0);
            let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || pass(ends.0, ends.1, &ways.0));
            pass(far, near, &ways.1);
        });
        Self { address, to_rank0, to_rank1 }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, way: &Mutex<Way>) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..count].to_vec();
        let mut way = way.lock().unwrap();
        way.seen.extend_from_slice(&bytes);
        if let Some(tamper) = way.tamper.take() {
            tamper(&mut bytes);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Runs both ranks with the relay between them.
fn relayed<T: Send>(secret: [u8; 16], rank: impl Fn(Tcp, &Relay) -> T + Sync) -> (Relay, Vec<T>) {
    let address = free_address();
    let relay = Relay::before(address);
    let results = on_threads(2, |number| {
        let address = if number == 0 { address } else { relay.address };
        rank(Tcp::connect(config(address, number, 2, 10.0).secret(secret)).unwrap(), &relay)
    });
    (relay, results)
}

/// Bytes of a rank, more than are encrypted at once. Any 16 consecutive bytes are unique.
fn private(rank: usize) -> Vec<u8> {
    (0..20_000u32).flat_map(|line| format!("rank {rank} line {line:05}").into_bytes()).collect()
}

fn count(seen: &[u8], what: &[u8]) -> usize {
    seen.windows(what.len()).filter(|window| *window == what).count()
}

#[test]
fn pitfall_35_a_recorded_connection_shows_nothing_that_ranks_exchange() {
    for (secret, shows) in [(crate::SECRET, false), ([0; 16], true)] {
        let (relay, _) = relayed(secret, |mut tcp, _| {
            let all = tcp.all_gather(&private(tcp.rank()), within(10.0)).unwrap();
            assert!(all == [private(0), private(1)]);
            tcp.barrier(within(10.0)).unwrap();
        });
        for (way, rank) in [(relay.to_rank0, 1), (relay.to_rank1, 0)] {
            let seen = &way.lock().unwrap().seen;
            assert!(seen.len() > private(rank).len());
            let lines = [0, 7, 12345, 19_999].map(|line| format!("rank {rank} line {line:05}"));
            assert!(lines.iter().all(|line| (count(seen, line.as_bytes()) == 1) == shows), "shows: {shows}");
            // Headers of frames are plain in the handshake alone: hello and challenge.
            assert_eq!(count(seen, b"SYMF") == 1, !shows);
        }
    }
}

#[test]
fn pitfall_35_bytes_that_are_changed_on_the_way_end_the_connection_with_an_error() {
    let tampers: [fn() -> Tamper; 5] = [
        // One bit of the header, of its tag, of the payload and of its tag.
        || Box::new(|bytes| bytes[0] ^= 0x10),
        || Box::new(|bytes| bytes[39] ^= 0x10),
        || Box::new(|bytes| bytes[40] ^= 0x10),
        || Box::new(|bytes| bytes[60] ^= 0x10),
        // A whole frame a second time.
        || Box::new(|bytes| bytes.extend_from_within(..)),
    ];
    for tamper in tampers {
        for victim in 0..2 {
            let (_, outcomes) = relayed(crate::SECRET, |mut tcp, relay| {
                tcp.barrier(within(10.0)).unwrap();
                // Rank 0 sends nothing to rank 1 before it has rank 1's bytes.
                if tcp.rank() == 1 {
                    let way = if victim == 0 { &relay.to_rank0 } else { &relay.to_rank1 };
                    way.lock().unwrap().tamper = Some(tamper());
                }
                // The second fails the rank that gets changed bytes at the latest, and the third the other.
                (0..3).try_for_each(|_| tcp.all_gather(b"precious", within(10.0)).map(drop))
            });
            check(victim, outcomes);
        }
    }
}

/// The rank that got the bytes reports them, and notifies the other.
fn check(victim: usize, outcomes: Vec<Result<()>>) {
    let expected = format!("rank {} sent bytes that the connection's key does not open", 1 - victim);
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            outcome if rank == victim => {
                let message = words(outcome);
                assert!(message.contains(&expected), "{message}");
            }
            Err(Error::Peer { rank, message }) => assert!(rank == victim && message.contains(&expected), "{message}"),
            outcome => assert_eq!(lost(outcome), victim),
        }
    }
}

#[test]
fn pitfall_35_half_of_an_encrypted_frame_is_waited_for_until_the_deadline() {
    let (_, outcomes) = relayed(crate::SECRET, |mut tcp, relay| {
        tcp.barrier(within(10.0)).unwrap();
        if tcp.rank() == 1 {
            relay.to_rank0.lock().unwrap().tamper = Some(Box::new(|bytes| bytes.truncate(50)));
        }
        let start = Instant::now();
        let outcome = tcp.all_gather(b"precious", within(if tcp.rank() == 0 { 0.3 } else { 10.0 }));
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        outcome.map(drop)
    });
    for outcome in outcomes {
        let (late, detail) = timed_out(outcome);
        assert!(late == Some(1) && detail.contains("ranks {1} of 2 did not take part"), "{detail}");
    }
}
