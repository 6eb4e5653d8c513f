//! How ranks find each other: threads, TCP and unix sockets, with strangers, deaths and mistakes.
//! Numbers in names are lines of the list of pitfalls.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod addresses;
mod deaths;
mod local;
mod meeting;
mod processes;
mod relay;
mod strangers;
mod threads;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Local, Tcp, TcpConfig, Threads, UniqueId};
use symmetra::{Error, Result};

const SECRET: [u8; 16] = *b"sixteen secrets!";

fn within(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// Bytes that differ in length and content from rank to rank and from round to round.
fn bytes_of(rank: usize, round: usize) -> Vec<u8> {
    (0..rank * 1000 + round * 7).map(|index| (index * 31 + rank + round) as u8).collect()
}

/// Runs `rank` on a thread for each rank and returns the results.
fn on_threads<T: Send>(world_size: usize, rank: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = (0..world_size).map(|number| scope.spawn(move || rank(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Checks some all-gathers and a barrier.
fn converse(bootstrap: &mut dyn Bootstrap) {
    let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
    for round in 0..5 {
        let all = bootstrap.all_gather(&bytes_of(rank, round), within(10.0)).unwrap();
        assert_eq!(all.len(), world_size);
        for (source, bytes) in all.iter().enumerate() {
            assert!(*bytes == bytes_of(source, round), "rank {rank}: bytes of {source} in round {round}");
        }
    }
    bootstrap.barrier(within(10.0)).unwrap();
}

/// A free port of the loopback interface.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Connects to rank 0 as soon as it listens, and sends nothing.
fn knock(address: SocketAddr) -> TcpStream {
    let deadline = within(10.0);
    loop {
        match TcpStream::connect(address) {
            Ok(stranger) => return stranger,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn config(address: SocketAddr, rank: usize, world_size: usize, seconds: f64) -> TcpConfig {
    let deadline = within(seconds);
    TcpConfig::new(address.to_string(), rank, world_size, deadline).secret(SECRET)
}

fn private_directory() -> tempfile::TempDir {
    let permissions = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(permissions).tempdir().unwrap()
}

fn lost(result: Result<impl Sized>) -> usize {
    match result.err().expect("no error") {
        Error::PeerLost { rank, .. } => rank,
        other => panic!("not PeerLost: {other}"),
    }
}

fn timed_out(result: Result<impl Sized>) -> (Option<usize>, String) {
    match result.err().expect("no error") {
        Error::Timeout { rank, detail, .. } => (rank, detail),
        other => panic!("not Timeout: {other}"),
    }
}

fn words(result: Result<impl Sized>) -> String {
    match result.err().expect("no error") {
        Error::Bootstrap { message } => message,
        other => panic!("not Bootstrap: {other}"),
    }
}

fn invalid(result: Result<impl Sized>) -> String {
    match result.err().expect("no error") {
        error @ Error::InvalidArgument { .. } => error.to_string(),
        other => panic!("not InvalidArgument: {other}"),
    }
}

#[test]
fn pitfall_21_threads_gather_in_rank_order_in_worlds_of_1_to_16() {
    for world_size in 1..=16 {
        let ranks = Threads::new(world_size).unwrap();
        thread::scope(|scope| {
            for mut rank in ranks {
                scope.spawn(move || converse(&mut rank));
            }
        });
    }
}

#[test]
fn pitfall_21_tcp_gathers_in_rank_order_in_worlds_of_1_to_16() {
    for world_size in 1..=16 {
        let id = UniqueId::listen().unwrap();
        let text = id.to_string();
        thread::scope(|scope| {
            scope.spawn(move || converse(&mut Tcp::from_id(id, 0, world_size, within(10.0)).unwrap()));
            for rank in 1..world_size {
                let id: UniqueId = text.parse().unwrap();
                scope.spawn(move || converse(&mut Tcp::from_id(id, rank, world_size, within(10.0)).unwrap()));
            }
        });
    }
}

#[test]
fn pitfall_21_local_gathers_in_rank_order_in_worlds_of_1_to_16() {
    let directory = private_directory();
    for world_size in 1..=16 {
        on_threads(world_size, |rank| {
            converse(&mut Local::connect(&directory, rank, world_size, within(10.0)).unwrap());
        });
    }
}

#[test]
fn frames_of_8_mib_pass_between_all_ranks() {
    let world_size = 4;
    let huge = |rank: usize| vec![rank as u8 + 1; 8 << 20];
    let gather = |bootstrap: &mut dyn Bootstrap| {
        let all = bootstrap.all_gather(&huge(bootstrap.rank()), within(20.0)).unwrap();
        assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == huge(rank)));
    };
    let address = free_address();
    on_threads(world_size, |rank| gather(&mut Tcp::connect(config(address, rank, world_size, 10.0)).unwrap()));
    let directory = private_directory();
    on_threads(world_size, |rank| gather(&mut Local::connect(&directory, rank, world_size, within(10.0)).unwrap()));
}

#[test]
fn a_contribution_over_64_mib_is_refused_before_anything_is_sent() {
    let directory = private_directory();
    on_threads(2, |rank| {
        let mut local = Local::connect(&directory, rank, 2, within(10.0)).unwrap();
        let message = invalid(local.all_gather(&vec![0; (64 << 20) + 1], within(10.0)));
        assert!(message.contains("67108865 bytes") && message.contains("67108864"), "{message}");
        converse(&mut local);
    });
    let message = invalid(Threads::new(1).unwrap()[0].all_gather(&vec![0; (64 << 20) + 1], within(1.0)));
    assert!(message.contains("67108865 bytes"), "{message}");
}

#[test]
fn ranks_and_world_sizes_out_of_range_are_named_with_their_limit() {
    assert!(invalid(Threads::new(0)).contains("world size is 0"));
    assert!(invalid(Threads::new(257)).contains("1..=256"));
    assert!(invalid(Tcp::connect(config(free_address(), 4, 4, 1.0))).contains("rank is 4, but it must be in 0..4"));
    assert!(invalid(Local::connect(private_directory(), 1, 1, within(1.0))).contains("rank is 1"));
    assert!(invalid(Tcp::from_id(UniqueId::listen().unwrap(), 0, 300, within(1.0))).contains("world size is 300"));
}
