//! The mesh among threads and processes, with deaths and mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod causes;
mod monitor;
mod processes;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd};

use super::open::Door;
use super::*;
use crate::bootstrap::Threads;

fn within(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// Runs `rank` with its mesh on a thread for each rank and returns the results.
fn on_meshes<T: Send>(world_size: usize, rank: impl Fn(Mesh) -> T + Sync) -> Vec<T> {
    on_threads(world_size, |mut threads| rank(Mesh::open(&mut threads, within(10.0)).unwrap()))
}

fn on_threads<T: Send>(world_size: usize, rank: impl Fn(Threads) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let rank = &rank;
        let ranks = Threads::new(world_size).unwrap().into_iter();
        let threads: Vec<_> = ranks.map(|threads| scope.spawn(move || rank(threads))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn bytes_of(rank: usize, round: usize) -> Vec<u8> {
    (0..rank * 1000 + round * 7).map(|index| (index * 31 + rank + round) as u8).collect()
}

fn converse(mesh: &mut Mesh) {
    for round in 0..5 {
        let all = mesh.all_gather(&bytes_of(mesh.rank(), round), within(10.0)).unwrap();
        assert_eq!(all.len(), mesh.world_size());
        assert!(all.iter().enumerate().all(|(source, bytes)| *bytes == bytes_of(source, round)));
    }
}

/// Sends a frame to one rank alone.
fn send(mesh: &mut Mesh, to: usize, frame: Outgoing) {
    let (_, peer) = mesh.others().find(|(rank, _)| *rank == to).unwrap();
    peer.channel.queue(frame);
    peer.channel.flush().unwrap();
}

fn lost(result: Result<impl Sized>) -> usize {
    match result.err().expect("no error") {
        Error::PeerLost { rank, .. } => rank,
        other => panic!("not PeerLost: {other}"),
    }
}

/// A memfd that holds the number of its rank.
fn memfd(rank: usize) -> File {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(format!("memory of rank {rank}").as_bytes()).unwrap();
    file
}

fn check_memfds(mesh: &Mesh, fds: Vec<Option<OwnedFd>>) {
    assert_eq!(fds.len(), mesh.world_size());
    for (source, fd) in fds.into_iter().enumerate() {
        assert_eq!(fd.is_none(), source == mesh.rank());
        let Some(fd) = fd else { continue };
        assert!(fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC));
        let expected = format!("memory of rank {source}");
        // At an offset of our own: the descriptors share one.
        let mut bytes = vec![0; expected.len()];
        File::from(fd).read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, expected.into_bytes());
    }
}

#[test]
fn pitfall_21_worlds_of_1_to_16_gather_in_rank_order() {
    for world_size in 1..=16 {
        on_meshes(world_size, |mut mesh| {
            converse(&mut mesh);
            assert!((0..world_size).all(|rank| mesh.same_process(rank)));
            assert!(!mesh.same_process(world_size));
        });
    }
}

#[test]
fn frames_of_8_mib_pass_between_all_ranks_at_once() {
    on_meshes(4, |mut mesh| {
        let huge = |rank: usize| vec![rank as u8 + 1; 8 << 20];
        let all = mesh.all_gather(&huge(mesh.rank()), within(20.0)).unwrap();
        assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == huge(rank)));
    });
}

#[test]
fn file_descriptors_arrive_and_open_the_same_memory() {
    for world_size in [1, 2, 5] {
        on_meshes(world_size, |mut mesh| {
            let own = memfd(mesh.rank());
            converse(&mut mesh);
            let fds = mesh.all_gather_fds(own.as_fd(), within(10.0)).unwrap();
            check_memfds(&mesh, fds);
            converse(&mut mesh);
        });
    }
}

#[test]
fn a_contribution_over_64_mib_is_refused_and_the_mesh_goes_on() {
    on_meshes(2, |mut mesh| {
        let error = mesh.all_gather(&vec![0; (64 << 20) + 1], within(1.0)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        converse(&mut mesh);
    });
}

#[test]
fn pitfall_1_a_rank_that_leaves_is_named_by_all_and_for_ever() {
    for leaving in 0..5 {
        let start = Instant::now();
        on_meshes(5, |mut mesh| {
            converse(&mut mesh);
            if mesh.rank() == leaving {
                return;
            }
            for _ in 0..2 {
                assert_eq!(lost(mesh.barrier(within(10.0))), leaving);
            }
        });
        assert!(start.elapsed() < Duration::from_secs(8));
    }
}

#[test]
fn pitfall_1_who_died_is_named_even_by_ranks_that_had_all_its_bytes() {
    on_meshes(3, |mut mesh| match mesh.rank() {
        // Speaks to rank 0 only, then dies.
        2 => {
            let frame = mesh.data(b"half");
            send(&mut mesh, 0, frame);
        }
        _ => {
            // Rank 0 may finish this one, but no further one.
            let first = mesh.all_gather(b"", within(10.0));
            let second = mesh.all_gather(b"", within(10.0));
            assert_eq!(lost(first.and(second)), 2, "rank {}", mesh.rank());
        }
    });
}

#[test]
fn a_rank_that_does_not_call_is_named_with_a_timeout() {
    let (done, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let together = std::sync::Barrier::new(2);
    on_meshes(3, |mut mesh| {
        if mesh.rank() == 1 {
            (0..2).for_each(|_| wait.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap());
            // Late, it finds the bytes of the others, then that they gave up.
            let outcome = mesh.barrier(within(5.0)).and_then(|()| mesh.barrier(within(5.0)));
            let words = outcome.unwrap_err().to_string();
            assert!(words.contains(" had waited too long for this one: ranks [1] of 3 did not take part"), "{words}");
            return;
        }
        together.wait();
        let start = Instant::now();
        let error = mesh.barrier(within(1.0)).unwrap_err();
        assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(8));
        done.send(()).unwrap();
    });
}

#[test]
fn pitfall_4_ranks_that_call_different_exchanges_are_told() {
    on_meshes(2, |mut mesh| {
        let error = match mesh.rank() {
            0 => mesh.barrier(within(5.0)).unwrap_err(),
            _ => mesh.all_gather_fds(memfd(1).as_fd(), within(5.0)).unwrap_err(),
        };
        let words = error.to_string();
        // The second rank to look may read the other rank's notice instead.
        assert!(words.contains("disagree on the exchange"), "{words}");
    });
}

#[test]
fn pitfall_4_ranks_whose_calls_have_other_names_are_told_both() {
    let late = std::sync::Barrier::new(3);
    let words = on_meshes(3, |mut mesh| {
        // A rank that has not called yet does not delay the errors of the others.
        if mesh.rank() == 2 {
            late.wait();
        }
        mesh.announce(if mesh.rank() == 1 { "to split a group" } else { "barrier" });
        let error = mesh.barrier(within(20.0)).unwrap_err();
        if mesh.rank() < 2 {
            late.wait();
        }
        error.to_string()
    });
    let differ = "disagree on the collective call of the host";
    assert_eq!(words[0], format!("ranks 0 and 1 {differ}: barrier and split a group"));
    assert_eq!(words[1], format!("ranks 1 and 0 {differ}: split a group and barrier"));
    // By the frame of a rank, or by its notice.
    assert!(words[2].contains(differ) && words[2].contains("barrier") && words[2].contains("split"), "{}", words[2]);
}

#[test]
fn pitfall_5_agreement_gives_every_rank_an_error_if_one_failed() {
    on_meshes(4, |mut mesh| {
        let rank = mesh.rank();
        assert_eq!(mesh.agree("open", Ok(rank * 10), within(10.0)), Ok(rank * 10));
        let local = if rank % 2 == 1 { Err(Error::unsupported("peer access", "of the test")) } else { Ok(()) };
        let outcome = mesh.agree("open", local.clone(), within(10.0));
        match rank % 2 {
            1 => assert_eq!(outcome, local),
            _ => {
                let message = "open: peer access is not supported: of the test".to_owned();
                assert_eq!(outcome, Err(Error::Peer { rank: 1, message }));
            }
        }
        converse(&mut mesh);
    });
}

#[test]
fn a_rank_may_leave_while_others_are_still_busy_with_the_last_exchange() {
    on_meshes(4, |mut mesh| {
        // Rank 0 receives from rank 3 late; the others have left by then.
        let last = mesh.data(b"last");
        if mesh.rank() == 3 {
            (1..3).for_each(|rank| send(&mut mesh, rank, last.clone()));
            thread::sleep(Duration::from_millis(200));
            send(&mut mesh, 0, last);
        } else {
            assert_eq!(mesh.all_gather(b"last", within(5.0)), Ok(vec![b"last".to_vec(); 4]));
            if mesh.rank() == 0 {
                // Each of the others has left, or leaves now.
                assert!((1..4).contains(&lost(mesh.barrier(within(5.0)))));
            }
        }
    });
}

#[test]
fn a_mesh_that_is_dropped_hangs_up_though_a_duplicate_of_its_socket_lives() {
    on_meshes(2, |mut mesh| {
        if mesh.rank() == 0 {
            assert_eq!(lost(mesh.barrier(within(5.0))), 1);
            return;
        }
        let duplicates: Vec<OwnedFd> =
            mesh.connections().map(|(_, socket, _)| fcntl_dupfd_cloexec(socket, 0).unwrap()).collect();
        drop(mesh);
        thread::sleep(Duration::from_millis(300));
        assert!(duplicates.iter().all(|fd| fd.as_raw_fd() >= 0));
    });
}

// ---- split -----------------------------------------------------------------------------------

#[test]
fn pitfall_32_a_split_makes_meshes_of_some_ranks_in_the_order_given() {
    on_meshes(6, |mut mesh| {
        let rank = mesh.rank();
        let sets: [&[usize]; 2] = [&[4, 0, 2], &[1, 3]];
        let set = (rank != 5).then(|| sets[rank % 2]);
        let part = mesh.split(set, within(10.0)).unwrap();
        assert_eq!(part.is_none(), rank == 5);
        if let (Some(mut part), Some(set)) = (part, set) {
            assert_eq!((part.world_size(), part.rank()), (set.len(), set.iter().position(|m| *m == rank).unwrap()));
            let all = part.all_gather(&[rank as u8], within(10.0)).unwrap();
            assert!(all.iter().zip(set).all(|(bytes, member)| *bytes == [*member as u8]));
            let own = memfd(part.rank());
            let fds = part.all_gather_fds(own.as_fd(), within(10.0)).unwrap();
            check_memfds(&part, fds);
            // A part can be split again, down to one, while the whole goes on.
            let mut alone = part.split(Some(&[part.rank()]), within(10.0)).unwrap().unwrap();
            converse(&mut alone);
            converse(&mut part);
        }
        converse(&mut mesh);
    });
}

#[test]
fn sets_that_do_not_fit_together_are_an_error_on_every_rank() {
    let cases: [(&[&[usize]; 3], &str); 5] = [
        (&[&[0, 1], &[0, 1], &[0]], "[0]"),
        (&[&[1, 2], &[1, 2], &[1, 2]], "[1, 2]"),
        (&[&[0, 0], &[], &[]], "[0, 0]"),
        (&[&[0, 3], &[], &[]], "[0, 3]"),
        (&[&[0, 1], &[1, 0], &[]], "[1, 0]"),
    ];
    on_meshes(3, |mut mesh| {
        for (sets, named) in cases {
            let set = Some(sets[mesh.rank()]).filter(|set| !set.is_empty());
            let words = mesh.split(set, within(10.0)).err().unwrap().to_string();
            assert!(words.contains(named), "{words}");
        }
        converse(&mut mesh);
    });
}

#[test]
fn pitfall_1_a_death_in_one_part_leaves_the_other_alone() {
    on_meshes(4, |mut mesh| {
        let rank = mesh.rank();
        let set: &[usize] = if rank < 2 { &[0, 1] } else { &[2, 3] };
        let mut part = mesh.split(Some(set), within(10.0)).unwrap().unwrap();
        match rank {
            3 => {}
            2 => assert_eq!(lost(part.barrier(within(5.0))), 1),
            _ => converse(&mut part),
        }
    });
}

#[test]
fn who_fails_a_split_that_others_made_says_why() {
    let lost = Error::PeerLost { rank: 2, detail: ": its connection closed".into() };
    for failure in [lost, Error::Aborted { detail: String::new() }] {
        let (made, over) = (Arc::new(AtomicBool::new(false)), std::sync::Barrier::new(2));
        let outcomes = on_meshes(3, |mut mesh| match mesh.rank() {
            // Hears from all that they have their sockets.
            0 => {
                let part = mesh.split(Some(&[1, 0]), within(10.0));
                made.store(true, Ordering::Release);
                let outcome = part.and_then(|part| part.unwrap().barrier(within(10.0)));
                over.wait();
                outcome.map_err(|error| error.of_members(&[1, 0]))
            }
            // Does not, until its group fails.
            1 => {
                let (made, failure) = (made.clone(), failure.clone());
                let heeded = move || if made.load(Ordering::Acquire) { Err(failure.clone()) } else { Ok(()) };
                mesh.heed(Some(Box::new(heeded)));
                mesh.split(Some(&[1, 0]), within(10.0)).map(drop)
            }
            // Tells rank 0 alone.
            _ => {
                mesh.all_gather(&[], within(10.0)).unwrap();
                let nothing = vec![mesh.descriptor(None); 3];
                mesh.exchange(nothing, within(10.0)).unwrap();
                mesh.announce("split");
                let agreed = mesh.data(&[]);
                send(&mut mesh, 0, agreed);
                over.wait();
                Ok(())
            }
        });
        assert_eq!(outcomes[1], Err(failure.clone()));
        match (&failure, &outcomes[0]) {
            (Error::PeerLost { .. }, Err(Error::PeerLost { rank: 2, .. })) => {}
            (Error::Aborted { .. }, Err(Error::Peer { rank: 1, message })) => assert_eq!(*message, failure.to_string()),
            (_, outcome) => panic!("{outcome:?}"),
        }
    }
}

// ---- opening ---------------------------------------------------------------------------------

#[test]
fn pitfall_1_a_rank_that_dies_while_opening_is_named_at_once() {
    for dying in 0..4 {
        let start = Instant::now();
        on_threads(4, |mut threads| {
            if threads.rank() == dying {
                // Tells where it listens, and is gone before it dials.
                let door = Door::open().unwrap();
                let card = door.card();
                threads.all_gather(&card, within(5.0)).unwrap();
                return;
            }
            assert_eq!(lost(Mesh::open(&mut threads, within(5.0))), dying);
        });
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}

#[test]
fn a_rank_that_connects_with_a_wrong_token_is_not_seated() {
    let together = std::sync::Barrier::new(2);
    on_threads(2, |mut threads| {
        let rank = threads.rank();
        together.wait();
        if rank == 0 {
            let error = Mesh::open(&mut threads, within(2.0)).err().unwrap();
            assert!(matches!(error, Error::Timeout { rank: Some(1), .. }), "{error}");
            return;
        }
        let door = Door::open().unwrap();
        let cards = threads.all_gather(&door.card(), within(5.0)).unwrap();
        let path = String::from_utf8(cards[0][37..].to_vec()).unwrap();
        let mut caller = std::os::unix::net::UnixStream::connect(path).unwrap();
        let forged = Outgoing::control(FrameKind::Hello, 1, vec![0; 16]);
        caller.write_all(&[&forged.header().encode()[..], &forged.payload].concat()).unwrap();
        // Rank 0 hangs up on it and goes on waiting.
        assert_eq!(caller.read(&mut [0]).unwrap_or(0), 0);
        let _ = threads.barrier(within(20.0));
    });
}

#[test]
fn pitfall_35_a_card_that_is_no_card_is_an_error_of_its_rank() {
    on_threads(2, |mut threads| match threads.rank() {
        0 => {
            let error = Mesh::open(&mut threads, within(5.0)).err().unwrap();
            assert_eq!(error.to_string(), "bootstrap: rank 1 gave 7 bytes that name no socket");
        }
        _ => drop(threads.all_gather(b"\x01nonsen", within(5.0)).unwrap()),
    });
}
