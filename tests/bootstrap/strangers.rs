//! Which processes may join: strangers, wrong secrets, second claims.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Tcp};

use crate::{config, converse, free_address, knock, on_threads, within, words};

#[test]
fn pitfall_6_rank_0_may_be_late() {
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
            let mut stranger = knock(address);
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
        let mut dripping = knock(address);
        dripping.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut slow = dripping.try_clone().unwrap();
        let drip = scope.spawn(move || {
            for byte in b"SYMF\x01\0\0\0\0\0\0\0\0\0\0\0" {
                if slow.write_all(&[*byte]).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(700));
            }
        });
        let mut tcp = Tcp::connect(config(address, 1, 2, 10.0)).unwrap();
        let start = Instant::now();
        // Rank 0 waits for us in its barrier, and still accepts connections.
        assert!(matches!(dripping.read(&mut [0; 64]), Ok(0) | Err(_)));
        let closed = start.elapsed();
        assert!(closed < Duration::from_secs(9), "{closed:?}");
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
            for secret in [[0; 16], [7; 16]] {
                let stranger = config(address, 1, 2, 10.0).secret(secret);
                let message = words(Tcp::connect(stranger));
                assert!(message.contains("its secret differs from this rank's"), "{message}");
            }
            // Only now may the group form.
            converse(&mut Tcp::connect(config(address, 1, 2, 10.0)).unwrap());
        }
        0 => converse(&mut Tcp::connect(config(address, 0, 2, 10.0)).unwrap()),
        _ => {}
    });
}

#[test]
fn pitfall_35_a_listener_that_does_not_know_the_secret_is_not_believed() {
    // The listener echoes our bytes, followed by arbitrary bytes.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let replies: [&[u8]; 2] = [&[], b"220 mail.example.com ESMTP ready, what is your pleasure today?\r\n"];
    thread::scope(|scope| {
        scope.spawn(move || {
            for reply in replies {
                let (mut socket, _) = listener.accept().unwrap();
                let mut hello = [0; 24 + 4 + 32 + 16]; // header, version, key and tag
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
    let world = |rank| config(address, rank, 3, 10.0);
    thread::scope(|scope| {
        let rank0 = scope.spawn(move || Tcp::connect(world(0)).map(|mut tcp| converse(&mut tcp)));
        drop(knock(address));
        // Rank 0 cannot be claimed by dialling: a second rank 0 finds the port in use.
        let message = words(Tcp::connect(world(0)));
        assert!(message.contains("is in use"), "{message}");
        // Only the refused of two can be done before rank 2 comes.
        let (done, results) = channel();
        for _ in 0..2 {
            let done = done.clone();
            scope.spawn(move || done.send(Tcp::connect(world(1)).map(|mut tcp| converse(&mut tcp))));
        }
        let message = words(results.recv_timeout(Duration::from_secs(10)).unwrap());
        assert!(message.contains("rank 1 was claimed before"), "{message}");
        let mut rank2 = Tcp::connect(world(2)).unwrap();
        // The world is complete, rank 0 waits for us: the answer is the same.
        let message = words(Tcp::connect(world(1)));
        assert!(message.contains("rank 1 was claimed before"), "{message}");
        converse(&mut rank2);
        rank0.join().unwrap().unwrap();
        results.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
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
