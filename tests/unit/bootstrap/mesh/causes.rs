//! The named rank and the kind of error when something other than a plain death ends an exchange.

use std::os::fd::FromRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socketpair};

use super::*;
use crate::bootstrap::channel::{Channel, farewell};
use crate::bootstrap::endpoint::Endpoint;
use crate::bootstrap::frame::MAX_FRAME_BYTES;

#[test]
fn a_rank_that_leaves_without_a_word_is_not_blamed_if_the_group_knows_whom_it_lost() {
    let left = Barrier::new(2);
    on_meshes(3, |mut mesh| match mesh.rank() {
        0 => {
            // Rank 1 records in memory that it lost rank 2, and leaves after this rank has looked there.
            let looks = AtomicUsize::new(0);
            mesh.heed(Some(Box::new(move || match looks.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(Error::PeerLost { rank: 2, detail: ": as rank 1 tells".into() }),
            })));
            left.wait();
            assert_eq!(lost(mesh.barrier(within(5.0))), 2);
        }
        1 => {
            // No word goes out.
            mesh.failed = Some(Error::Closed);
            drop(mesh);
            left.wait();
        }
        _ => assert!(mesh.barrier(within(5.0)).is_err()),
    });
}

/// A descriptor that the system refuses to send.
#[allow(unsafe_code)]
fn refused() -> Arc<OwnedFd> {
    // SAFETY: nothing is open under this number, and the value is never dropped, so nothing is closed.
    let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(1 << 30) });
    std::mem::forget(fd.clone());
    fd
}

#[test]
fn pitfall_5_a_send_that_the_system_refuses_is_no_death() {
    on_meshes(4, |mut mesh| {
        let own = Arc::new(OwnedFd::from(memfd(mesh.rank())));
        let mut frames = vec![mesh.descriptor(Some(&own)); 4];
        if mesh.rank() == 1 {
            frames[2] = mesh.descriptor(Some(&refused()));
        }
        // A rank that has all frames of this exchange learns of the failure in the next exchange.
        let outcome = mesh.exchange(frames, within(5.0)).map(drop).and_then(|()| mesh.barrier(within(5.0)));
        match (mesh.rank(), outcome.unwrap_err()) {
            (1, Error::System { errno: 9, message }) => assert!(message.contains("rank 2"), "{message}"),
            (0 | 2 | 3, Error::Peer { rank: 1, message }) => assert!(message.contains("system error 9"), "{message}"),
            (rank, other) => panic!("rank {rank}: {other}"),
        }
    });
}

/// As when the user has too many descriptors on the way for a moment.
#[test]
#[allow(unsafe_code)]
fn a_farewell_that_the_system_refuses_at_first_is_sent_again() {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let [mut near, mut far] = [near, far].map(|socket| Channel::new(socket, MAX_FRAME_BYTES));
    let file = memfd(0);
    // Numbers that nothing else takes.
    let number = fcntl_dupfd_cloexec(&file, 900).unwrap().as_raw_fd();
    // SAFETY: nothing is open under this number yet, and the value is never dropped, so nothing is closed.
    let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(number) });
    std::mem::forget(fd.clone());
    let notice = Outgoing { fd: Some(fd), ..Outgoing::control(FrameKind::Notice, 0, vec![1]) };
    thread::scope(|scope| {
        let opened = scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            fcntl_dupfd_cloexec(&file, number).unwrap()
        });
        farewell(std::iter::once(&mut near), &notice);
        assert_eq!(opened.join().unwrap().as_raw_fd(), number);
    });
    let frame = far.receive_by(within(5.0)).unwrap().expect("the notice");
    assert_eq!((frame.header.kind, frame.payload), (FrameKind::Notice, vec![1]));
}

#[test]
fn a_listener_whose_queue_is_full_is_dialled_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("full.sock");
    let listener = UnixListener::bind(&path).unwrap();
    listen(&listener, 0).unwrap();
    let endpoint = Endpoint::Unix(path);
    let dialled: Vec<_> = std::iter::from_fn(|| endpoint.dial(within(0.0)).ok()).collect();
    assert!(!dialled.is_empty(), "the queue has room for one");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            (0..dialled.len()).for_each(|_| drop(listener.accept().unwrap()));
        });
        let start = Instant::now();
        assert!(endpoint.dial(within(10.0)).is_ok());
        assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
    });
}

/// Like ranks whose directories for temporary files are different mounts.
#[test]
fn ranks_that_live_and_cannot_reach_each_others_sockets_are_told_of_the_directory() {
    on_threads(2, |mut threads| {
        if threads.rank() == 0 {
            let error = Mesh::open(&mut threads, within(5.0)).err().unwrap();
            let words = error.to_string();
            assert!(matches!(error, Error::Bootstrap { .. }), "{words}");
            assert!(words.contains("all ranks live") && words.contains("TMPDIR"), "{words}");
            return;
        }
        let card = Door::open().unwrap().card(); // its socket is gone
        threads.all_gather(&card, within(5.0)).unwrap();
        threads.all_gather(&[super::super::open::IN_ITS_WAKE], within(5.0)).unwrap();
    });
}
