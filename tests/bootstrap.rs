//! How ranks find each other: threads, TCP and unix sockets, with strangers, deaths and mistakes.
//! Numbers in names are lines of the list of pitfalls.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
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

/// Runs `rank` on a thread for each and returns what each gave.
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

fn config(address: SocketAddr, rank: usize, world_size: usize, seconds: f64) -> TcpConfig {
    let deadline = within(seconds);
    TcpConfig { address: address.to_string(), rank, world_size, secret: SECRET, bind: None, deadline }
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

// ---- all kinds -------------------------------------------------------------------------------

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

// ---- threads ---------------------------------------------------------------------------------

#[test]
fn pitfall_1_a_dropped_or_panicked_thread_is_named_at_once() {
    for panics in [false, true] {
        let mut ranks = Threads::new(4).unwrap();
        let gone = ranks.remove(2);
        let start = Instant::now();
        thread::scope(|scope| {
            let waiting: Vec<_> =
                ranks.into_iter().map(|mut rank| scope.spawn(move || rank.barrier(within(10.0)))).collect();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(50));
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _gone = gone;
                    if panics {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                }));
                assert_eq!(result.is_err(), panics);
            });
            for thread in waiting {
                let error = thread.join().unwrap().unwrap_err();
                let end = if panics { "its thread panicked" } else { "it was dropped" };
                assert_eq!(error.to_string(), format!("rank 2 is gone: {end}"));
            }
        });
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}

#[test]
fn threads_that_miss_the_deadline_are_named_and_find_out() {
    let mut ranks = Threads::new(3).unwrap();
    let mut late = ranks.remove(1);
    thread::scope(|scope| {
        let waiting: Vec<_> =
            ranks.into_iter().map(|mut rank| scope.spawn(move || rank.barrier(within(0.1)))).collect();
        for thread in waiting {
            assert_eq!(timed_out(thread.join().unwrap()).0, Some(1));
        }
    });
    assert!(late.barrier(within(10.0)).is_err());
}

#[test]
fn threads_may_leave_right_after_the_last_result() {
    for _ in 0..50 {
        thread::scope(|scope| {
            for mut rank in Threads::new(8).unwrap() {
                scope.spawn(move || rank.barrier(within(10.0)).unwrap());
            }
        });
    }
}

// ---- TCP: who may join -----------------------------------------------------------------------

#[test]
fn rank_0_may_be_late() {
    let address = free_address();
    on_threads(3, |rank| {
        if rank == 0 {
            thread::sleep(Duration::from_millis(400));
        }
        converse(&mut Tcp::connect(config(address, rank, 3, 10.0)).unwrap());
    });
}

#[test]
fn pitfall_35_garbage_does_not_stall_the_listener() {
    let address = free_address();
    let start = Instant::now();
    thread::scope(|scope| {
        let rank0 = scope.spawn(move || Tcp::connect(config(address, 0, 3, 20.0)).map(|mut tcp| converse(&mut tcp)));
        let mut strangers = Vec::new();
        for number in 0..200u32 {
            let mut stranger = loop {
                match TcpStream::connect(address) {
                    Ok(stranger) => break stranger,
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            };
            // A refusal may close the connection while we write.
            let _ = match number % 5 {
                0 => stranger.write_all(&random_bytes(number, 4096)),
                1 => Ok(()),
                2 => stranger.write_all(b"SYMF\x01\0\0\0\0\0"),
                3 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                _ => stranger.write_all(b"SYMF\x01\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f"),
            };
            strangers.push(stranger);
        }
        let others: Vec<_> = (1..3)
            .map(|rank| scope.spawn(move || converse(&mut Tcp::connect(config(address, rank, 3, 20.0)).unwrap())))
            .collect();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        rank0.join().unwrap().unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// Reproducible noise.
fn random_bytes(seed: u32, count: usize) -> Vec<u8> {
    let mut state = u64::from(seed) * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn pitfall_35_a_stranger_that_drips_bytes_is_cut_off_while_the_group_works() {
    let address = free_address();
    thread::scope(|scope| {
        let rank0 = scope.spawn(move || {
            let mut tcp = Tcp::connect(config(address, 0, 2, 10.0)).unwrap();
            tcp.barrier(within(10.0)).unwrap();
        });
        thread::sleep(Duration::from_millis(50));
        let mut dripping = TcpStream::connect(address).unwrap();
        dripping.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let mut slow = dripping.try_clone().unwrap();
        let drip = scope.spawn(move || {
            for byte in b"SYMF\x01\0\0\0\0\0\0\0\0\0\0\0" {
                if slow.write_all(&[*byte]).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(300));
            }
        });
        let mut tcp = Tcp::connect(config(address, 1, 2, 10.0)).unwrap();
        let start = Instant::now();
        // Rank 0 waits for us in its barrier, and keeps the door meanwhile.
        assert!(matches!(dripping.read(&mut [0; 64]), Ok(0) | Err(_)));
        let closed = start.elapsed();
        assert!(closed < Duration::from_secs(5), "{closed:?}");
        tcp.barrier(within(10.0)).unwrap();
        drip.join().unwrap();
        rank0.join().unwrap();
    });
}

#[test]
fn pitfall_35_a_wrong_secret_is_refused_and_the_group_goes_on() {
    let address = free_address();
    on_threads(3, |number| match number {
        2 => {
            let stranger = TcpConfig { secret: [0; 16], ..config(address, 1, 2, 10.0) };
            let message = words(Tcp::connect(stranger));
            assert!(message.contains("its secret differs from this rank's"), "{message}");
            // Only now may the group form.
            converse(&mut Tcp::connect(config(address, 1, 2, 10.0)).unwrap());
        }
        0 => converse(&mut Tcp::connect(config(address, 0, 2, 10.0)).unwrap()),
        _ => {}
    });
}

#[test]
fn pitfall_35_a_listener_that_does_not_know_the_secret_is_not_believed() {
    // It repeats to us what we said, then what it likes.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let replies: [&[u8]; 2] = [&[], b"220 mail.example.com ESMTP ready, what is your pleasure today?\r\n"];
    thread::scope(|scope| {
        scope.spawn(move || {
            for reply in replies {
                let (mut socket, _) = listener.accept().unwrap();
                let mut hello = [0; 44];
                socket.read_exact(&mut hello).unwrap();
                socket.write_all(if reply.is_empty() { &hello } else { reply }).unwrap();
                let _ = socket.read(&mut hello);
            }
        });
        let message = words(Tcp::connect(config(address, 1, 2, 10.0)));
        assert!(message.contains("a hello instead of a challenge"), "{message}");
        let message = words(Tcp::connect(config(address, 1, 2, 10.0)));
        assert!(message.contains("is not symmetra"), "{message}");
    });
}

#[test]
fn pitfall_35_a_second_claim_of_a_rank_is_refused_and_the_group_goes_on() {
    let address = free_address();
    thread::scope(|scope| {
        let world = |rank| config(address, rank, 3, 10.0);
        let rank0 = scope.spawn(move || Tcp::connect(world(0)).map(|mut tcp| converse(&mut tcp)));
        let rank1 = scope.spawn(move || Tcp::connect(world(1)).map(|mut tcp| converse(&mut tcp)));
        thread::sleep(Duration::from_millis(200));
        for rank in [0, 1] {
            // Rank 0 cannot be claimed by dialling; who tries finds the port in use.
            let message = words(Tcp::connect(world(rank)));
            let expected = if rank == 0 { "is in use" } else { "rank 1 was claimed before" };
            assert!(message.contains(expected), "{message}");
        }
        let mut rank2 = Tcp::connect(world(2)).unwrap();
        // The world is complete, rank 0 waits for us: the answer is the same.
        let message = words(Tcp::connect(world(1)));
        assert!(message.contains("rank 1 was claimed before"), "{message}");
        converse(&mut rank2);
        rank0.join().unwrap().unwrap();
        rank1.join().unwrap().unwrap();
    });
}

#[test]
fn pitfall_35_another_world_size_is_refused_in_words() {
    let address = free_address();
    thread::scope(|scope| {
        let rank0 = scope.spawn(move || Tcp::connect(config(address, 0, 2, 10.0)).map(|mut tcp| converse(&mut tcp)));
        let message = words(Tcp::connect(config(address, 2, 5, 10.0)));
        assert!(message.contains("rank 2 was started with world size 5, rank 0 with 2"), "{message}");
        converse(&mut Tcp::connect(config(address, 1, 2, 10.0)).unwrap());
        rank0.join().unwrap().unwrap();
    });
}

// ---- TCP: time and death ---------------------------------------------------------------------

#[test]
fn a_world_that_stays_incomplete_names_the_missing_ranks_to_everybody() {
    let address = free_address();
    let results = on_threads(3, |rank| match rank {
        2 => Tcp::connect(config(address, 3, 5, 10.0)).map(drop),
        rank => Tcp::connect(config(address, rank, 5, if rank == 0 { 0.5 } else { 10.0 })).map(drop),
    });
    for result in results {
        let (rank, detail) = timed_out(result);
        assert_eq!(rank, Some(2));
        assert!(detail.contains("ranks {2, 4} of 5 did not connect"), "{detail}");
    }
}

#[test]
fn a_rank_0_that_never_comes_is_named_with_the_address() {
    let address = free_address();
    let start = Instant::now();
    let (rank, detail) = timed_out(Tcp::connect(config(address, 1, 2, 0.3)));
    assert_eq!(rank, Some(0));
    assert!(detail.contains(&address.to_string()) && detail.contains("refused"), "{detail}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_listener_that_stays_silent_ends_in_a_timeout() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let start = Instant::now();
    let (rank, detail) = timed_out(Tcp::connect(config(listener.local_addr().unwrap(), 1, 2, 0.3)));
    assert_eq!(rank, Some(0));
    assert!(detail.contains("no challenge came"), "{detail}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_rank_that_does_not_call_is_named_to_everybody() {
    let address = free_address();
    let (done, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let results = on_threads(4, |rank| {
        let mut tcp = Tcp::connect(config(address, rank, 4, 10.0)).unwrap();
        match rank {
            2 => {
                let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(5));
                None
            }
            0 => {
                let result = tcp.barrier(within(0.3));
                done.send(()).unwrap();
                Some(result)
            }
            _ => Some(tcp.barrier(within(5.0))),
        }
    });
    for result in results.into_iter().flatten() {
        assert_eq!(timed_out(result).0, Some(2));
    }
}

#[test]
fn pitfall_1_a_rank_that_leaves_is_named_to_everybody_and_for_ever() {
    for leaving in 0..4 {
        let directory = private_directory();
        let start = Instant::now();
        on_threads(4, |rank| {
            let mut local = Local::connect(&directory, rank, 4, within(10.0)).unwrap();
            converse(&mut local);
            if rank == leaving {
                return;
            }
            for _ in 0..2 {
                assert_eq!(lost(local.all_gather(b"?", within(10.0))), leaving, "rank {rank}");
            }
        });
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn pitfall_1_a_rank_that_leaves_before_the_world_is_complete_is_named() {
    let address = free_address();
    let start = Instant::now();
    thread::scope(|scope| {
        let rank0 = scope.spawn(move || Tcp::connect(config(address, 0, 4, 10.0)).map(drop));
        let rank1 = scope.spawn(move || Tcp::connect(config(address, 1, 4, 10.0)).map(drop));
        // Gives up at its own deadline, before rank 3 comes.
        assert!(timed_out(Tcp::connect(config(address, 2, 4, 0.3))).1.contains("the other ranks"));
        assert_eq!(lost(rank0.join().unwrap()), 2);
        assert_eq!(lost(rank1.join().unwrap()), 2);
    });
    assert!(start.elapsed() < Duration::from_secs(2));
}

// ---- TCP: addresses --------------------------------------------------------------------------

#[test]
fn a_port_in_use_is_said_plainly() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let message = words(Tcp::connect(config(address, 0, 2, 1.0)));
    assert!(message.contains(&format!("port {} of 127.0.0.1 is in use", address.port())), "{message}");
}

#[test]
fn pitfall_35_an_address_that_is_not_loopback_needs_a_bind() {
    let far = TcpConfig { address: "192.0.2.1:29500".into(), ..config(free_address(), 0, 2, 1.0) };
    let message = invalid(Tcp::connect(far));
    assert!(message.contains("192.0.2.1") && message.contains("`bind` (SYMMETRA_BIND)"), "{message}");
    let every = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let address = free_address();
    on_threads(2, |rank| {
        converse(&mut Tcp::connect(TcpConfig { bind: every, ..config(address, rank, 2, 10.0) }).unwrap())
    });
}

#[test]
fn malformed_addresses_are_named() {
    for address in ["localhost", "localhost:0", "127.0.0.1:99999", "[::1]"] {
        let bad = TcpConfig { address: address.into(), ..config(free_address(), 0, 2, 1.0) };
        let message = invalid(Tcp::connect(bad));
        assert!(message.contains(&format!("`{address}`")), "{message}");
    }
    let nowhere = TcpConfig { address: "nowhere.invalid:29500".into(), ..config(free_address(), 0, 2, 5.0) };
    let error = Tcp::connect(nowhere).err().unwrap().to_string();
    assert!(error.contains("nowhere.invalid"), "{error}");
}

#[test]
fn host_names_are_resolved() {
    let address = format!("localhost:{}", free_address().port());
    on_threads(2, |rank| {
        converse(
            &mut Tcp::connect(TcpConfig { address: address.clone(), ..config(free_address(), rank, 2, 10.0) }).unwrap(),
        );
    });
}

#[test]
fn a_unique_id_reads_back_and_hides_its_secret() {
    let text = "127.0.0.1:40123/000102030405060708090a0b0c0d0e0f";
    let id: UniqueId = text.parse().unwrap();
    assert_eq!(id.to_string(), text);
    assert_eq!(format!("{id:?}"), "UniqueId(127.0.0.1:40123, secret hidden)");
    assert_ne!(UniqueId::listen().unwrap().to_string(), UniqueId::listen().unwrap().to_string());
    let secret = "000102030405060708090a0b0c0d0e";
    for bad in ["", "127.0.0.1:1", "localhost:1/", &format!("127.0.0.1:1/{secret}"), &format!("127.0.0.1:1/+{secret}0")]
    {
        let message = invalid(bad.parse::<UniqueId>());
        assert!(message.contains("32 hexadecimal digits") && !message.contains(secret), "{message}");
    }
    assert!(!format!("{:?}", config(free_address(), 0, 1, 1.0)).contains("115, 105"), "a secret is printed");
}

// ---- the directory of unix sockets -----------------------------------------------------------

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_missing_directory_is_made_for_us_alone_and_the_socket_is_removed() {
    let parent = private_directory();
    let directory = parent.path().join("ranks");
    on_threads(2, |rank| converse(&mut Local::connect(&directory, rank, 2, within(10.0)).unwrap()));
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn pitfall_35_a_directory_that_is_not_ours_alone_is_refused() {
    let parent = private_directory();
    let directory = parent.path().join("ranks");
    std::fs::create_dir(&directory).unwrap();
    for mode in [0o755, 0o770, 0o600] {
        set_mode(&directory, mode);
        let message = invalid(Local::connect(&directory, 0, 2, within(1.0)));
        assert!(message.contains(&format!("mode {mode:04o}")) && message.contains("0700"), "{message}");
    }
    set_mode(&directory, 0o700);
    let link = parent.path().join("link");
    symlink(&directory, &link).unwrap();
    assert!(invalid(Local::connect(&link, 0, 2, within(1.0))).contains("not a file or a link"));
    std::fs::write(parent.path().join("file"), b"").unwrap();
    assert!(invalid(Local::connect(parent.path().join("file"), 1, 2, within(1.0))).contains("not a file or a link"));
    let deep = directory.join("d".repeat(100));
    assert!(invalid(Local::connect(deep, 0, 2, within(1.0))).contains("107 bytes"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&directory, Some(54321), None).unwrap();
        let message = invalid(Local::connect(&directory, 0, 2, within(1.0)));
        assert!(message.contains("owned by user 54321"), "{message}");
    }
}

#[test]
fn pitfall_17_the_socket_of_a_crash_is_replaced() {
    let directory = private_directory();
    for name in ["rank0.sock", "rank0.new"] {
        drop(UnixListener::bind(directory.path().join(name)).unwrap());
    }
    on_threads(3, |rank| {
        if rank == 0 {
            thread::sleep(Duration::from_millis(100));
        }
        converse(&mut Local::connect(&directory, rank, 3, within(10.0)).unwrap());
    });
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn pitfall_35_a_second_rank_0_of_a_directory_is_refused_and_the_group_goes_on() {
    let directory = private_directory();
    thread::scope(|scope| {
        let rank0 =
            scope.spawn(|| Local::connect(&directory, 0, 2, within(10.0)).map(|mut local| converse(&mut local)));
        thread::sleep(Duration::from_millis(200));
        let message = words(Local::connect(&directory, 0, 2, within(10.0)));
        assert!(message.contains("rank 0 was claimed before"), "{message}");
        converse(&mut Local::connect(&directory, 1, 2, within(10.0)).unwrap());
        rank0.join().unwrap().unwrap();
    });
}

// ---- processes -------------------------------------------------------------------------------

/// Runs this test binary again as `role`; what it prints after `> ` is its answer.
fn child(role: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_plays_its_role", "--nocapture", "--test-threads", "1"])
        .env("SYMMETRA_TEST_ROLE", role)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// The next answer of a child.
fn answer(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    lines.find_map(|line| line.unwrap().split_once("> ").map(|(_, answer)| answer.to_owned())).expect("no answer")
}

fn answers(child: &mut Child) -> impl Iterator<Item = std::io::Result<String>> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var("SYMMETRA_TEST_ROLE") else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap();
    match role.as_str() {
        "env" => match Tcp::from_env(within(10.0)) {
            Ok(mut tcp) => {
                converse(&mut tcp);
                println!("> rank {} of {}", tcp.rank(), tcp.world_size());
            }
            Err(error) => println!("> {error}"),
        },
        "local" => {
            let (rank, world_size) = (variable("RANK").parse().unwrap(), variable("WORLD_SIZE").parse().unwrap());
            let mut local = Local::connect(variable("DIRECTORY"), rank, world_size, within(10.0)).unwrap();
            converse(&mut local);
            println!("> ready");
            if variable("STAYS") == "idle" {
                thread::sleep(Duration::from_secs(20));
            }
            println!("> {}", local.barrier(within(10.0)).unwrap_err());
        }
        "fds" => leak_nothing(),
        "idle" => burn_nothing(),
        _ => panic!("no such role"),
    }
}

/// Ranks 1.. as processes that go on to gather, but for those that stay idle.
fn ranks_of_processes(world_size: usize, directory: &Path, idle: usize) -> Vec<Child> {
    let (directory, world) = (directory.to_str().unwrap(), world_size.to_string());
    let start = |rank: usize| {
        let stays = if rank == idle { "idle" } else { "gathering" };
        let rank = rank.to_string();
        let variables = [("RANK", &*rank), ("WORLD_SIZE", &*world), ("DIRECTORY", directory), ("STAYS", stays)];
        child("local", &variables)
    };
    (1..world_size).map(start).collect()
}

#[test]
fn pitfall_1_kill_9_of_a_process_is_named_to_everybody() {
    // The killed rank waits in an all-gather that rank 3 holds up, or is the one that holds it up.
    for idle in [3, 2] {
        let directory = private_directory();
        let mut children = ranks_of_processes(4, directory.path(), idle);
        let mut local = Local::connect(&directory, 0, 4, within(10.0)).unwrap();
        converse(&mut local);
        let mut voices: Vec<_> = children.iter_mut().map(answers).collect();
        voices.iter_mut().for_each(|voice| assert_eq!(answer(voice), "ready"));
        thread::scope(|scope| {
            let rank0 = scope.spawn(|| local.barrier(within(10.0)));
            thread::sleep(Duration::from_millis(100));
            children[1].kill().unwrap();
            let killed = Instant::now();
            assert_eq!(lost(rank0.join().unwrap()), 2);
            assert!(killed.elapsed() < Duration::from_secs(1));
        });
        let words = answer(&mut voices[0]);
        assert!(words.starts_with("rank 2 is gone") && words.ends_with("found by rank 0"), "{words}");
        for mut child in children {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }
}

#[test]
fn pitfall_1_kill_9_of_rank_0_is_named_to_everybody() {
    let directory = private_directory();
    let world = [("WORLD_SIZE", "2"), ("DIRECTORY", directory.path().to_str().unwrap()), ("STAYS", "idle")];
    let mut rank0 = child("local", &[&world[..], &[("RANK", "0")]].concat());
    let mut local = Local::connect(&directory, 1, 2, within(10.0)).unwrap();
    converse(&mut local);
    assert_eq!(answer(&mut answers(&mut rank0)), "ready");
    rank0.kill().unwrap();
    let killed = Instant::now();
    assert_eq!(lost(local.barrier(within(10.0))), 0);
    assert!(killed.elapsed() < Duration::from_secs(1));
    rank0.wait().unwrap();
    // Its socket is still there, and is replaced.
    assert!(directory.path().join("rank0.sock").exists());
    on_threads(2, |rank| converse(&mut Local::connect(&directory, rank, 2, within(10.0)).unwrap()));
}

#[test]
fn pitfall_33_processes_meet_as_the_environment_says() {
    let port = free_address().port().to_string();
    let secret = "0123456789abcdef0123456789ABCDEF";
    let world =
        [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port), ("WORLD_SIZE", "3"), ("SYMMETRA_SECRET", secret)];
    let mut children: Vec<Child> =
        ["0", "1", "2"].iter().map(|rank| child("env", &[&world[..], &[("RANK", rank)]].concat())).collect();
    for (rank, child) in children.iter_mut().enumerate() {
        let mut voice = answers(child);
        assert_eq!(answer(&mut voice), format!("rank {rank} of 3"));
        voice.for_each(drop);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn pitfall_36_variables_that_are_missing_or_malformed_are_named() {
    let right = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "0"), ("WORLD_SIZE", "1")];
    let cases = [
        ("MASTER_ADDR", None, "MASTER_ADDR is unset, but it must be set"),
        ("RANK", None, "RANK is unset"),
        ("RANK", Some("-1"), "RANK is `-1`, but it must be a number from 0"),
        ("RANK", Some("7"), "rank is 7, but it must be in 0..1"),
        ("WORLD_SIZE", Some("two"), "WORLD_SIZE is `two`"),
        ("WORLD_SIZE", Some("0"), "world size is 0, but it must be in 1..=256"),
        ("MASTER_PORT", Some("70000"), "MASTER_PORT is 70000, but it must be in 1..=65535"),
        ("SYMMETRA_SECRET", Some("1234"), "SYMMETRA_SECRET is malformed, but it must be 32 hexadecimal digits"),
        ("SYMMETRA_BIND", Some("eth0"), "SYMMETRA_BIND is `eth0`, but it must be an IP address"),
    ];
    let mut children: Vec<(Child, &str)> = Vec::new();
    for (name, value, expected) in cases {
        let mut variables: Vec<(&str, &str)> = right.iter().copied().filter(|(other, _)| *other != name).collect();
        variables.extend(value.map(|value| (name, value)));
        children.push((child("env", &variables), expected));
    }
    for (mut child, expected) in children {
        let words = answer(&mut answers(&mut child));
        assert!(words.contains(expected), "{words}");
        child.wait().unwrap();
    }
}

/// Open descriptors of this process.
fn fd_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_descriptor_is_leaked() {
    let mut child = child("fds", &[]);
    assert_eq!(answer(&mut answers(&mut child)), "none leaked");
    child.wait().unwrap();
}

fn leak_nothing() {
    let directory = private_directory();
    let address = free_address();
    let round = || {
        on_threads(4, |rank| converse(&mut Tcp::connect(config(address, rank, 4, 10.0)).unwrap()));
        on_threads(4, |rank| converse(&mut Local::connect(&directory, rank, 4, within(10.0)).unwrap()));
        assert!(Tcp::connect(config(address, 0, 2, 0.01)).is_err());
        assert!(Tcp::connect(config(address, 1, 2, 0.01)).is_err());
        assert!(Local::connect(&directory, 0, 2, within(0.01)).is_err());
        assert!(Local::connect(&directory, 1, 2, within(0.01)).is_err());
        let id = UniqueId::listen().unwrap();
        assert!(Tcp::from_id(id, 0, 2, within(0.01)).is_err());
    };
    round();
    let before = fd_count();
    (0..5).for_each(|_| round());
    assert_eq!(fd_count(), before);
    println!("> none leaked");
}

#[test]
fn pitfall_7_waiting_burns_no_cpu() {
    let mut child = child("idle", &[]);
    let words = answer(&mut answers(&mut child));
    let cpu_ms: f64 = words.parse().unwrap();
    assert!(cpu_ms < 10.0, "{cpu_ms} ms of CPU time in 600 ms of waiting");
    child.wait().unwrap();
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn burn_nothing() {
    let directory = private_directory();
    let address = free_address();
    let waiting = 600;
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            TcpStream::connect(address)
        });
        for kind in ["tcp", "local", "forming"] {
            for rank in 0..3 {
                let directory = directory.path().join(kind);
                scope.spawn(move || {
                    let mut bootstrap: Box<dyn Bootstrap> = match kind {
                        "tcp" => Box::new(Tcp::connect(config(address, rank, 3, 10.0)).unwrap()),
                        "local" => Box::new(Local::connect(directory, rank, 3, within(10.0)).unwrap()),
                        _ if rank == 2 => return,
                        _ => return assert!(Local::connect(directory, rank, 3, within(1.2)).is_err()),
                    };
                    if rank == 2 {
                        thread::sleep(Duration::from_millis(1200));
                    }
                    bootstrap.barrier(within(10.0)).unwrap();
                });
            }
        }
        thread::sleep(Duration::from_millis(400));
        let before = cpu_time();
        thread::sleep(Duration::from_millis(waiting));
        println!("> {}", (cpu_time() - before).as_secs_f64() * 1e3);
        drop(stranger.join());
    });
}
