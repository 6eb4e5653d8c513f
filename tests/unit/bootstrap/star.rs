//! How rank 0 answers peers that know the protocol and violate it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::*;
use crate::bootstrap::channel::Channel;
use crate::bootstrap::cipher::{Cipher, TAG_BYTES};
use crate::bootstrap::endpoint::Setback;
use crate::bootstrap::frame::{Frame, FrameKind, HEADER_BYTES, MAX_FRAME_BYTES, Outgoing};
use crate::bootstrap::handshake::{self, MAX_VERDICT_BYTES};
use crate::bootstrap::notice::read_notice;

const SECRET: Secret = [7; 16];

fn within(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

fn join(endpoint: &Endpoint, rank: usize, world_size: usize, seconds: f64) -> Star {
    Star::join(endpoint, SECRET, rank, world_size, within(seconds)).unwrap()
}

/// Rank 0's listener, with its address.
fn door() -> (SocketAddr, Endpoint, OwnedFd) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (address, Endpoint::Tcp(vec![address]), listener.into())
}

/// Runs `strangers` while rank 0 of a world of two forms it, then lets rank 1 join.
fn while_forming(strangers: impl FnOnce(SocketAddr)) {
    let (address, endpoint, listener) = door();
    thread::scope(|scope| {
        let rank0 = scope.spawn(|| Star::listen(endpoint.clone(), listener, SECRET, 2, within(10.0)).unwrap());
        strangers(address);
        let mut rank1 = join(&endpoint, 1, 2, 10.0);
        let mut rank0 = rank0.join().unwrap();
        let theirs = scope.spawn(move || rank0.all_gather(b"zero", within(10.0)));
        let all = vec![b"zero".to_vec(), b"one".to_vec()];
        assert_eq!(rank1.all_gather(b"one", within(10.0)), Ok(all.clone()));
        assert_eq!(theirs.join().unwrap(), Ok(all));
    });
}

/// A rank that waits for the start looks for another cause to give up.
#[test]
fn a_rank_heeds_while_it_waits_for_the_others() {
    let (_, endpoint, listener) = door();
    thread::scope(|scope| {
        let rank0 = scope.spawn(|| Star::listen(endpoint.clone(), listener, SECRET, 3, within(20.0)).err());
        let start = Instant::now();
        let heeded = move || match start.elapsed() < Duration::from_millis(500) {
            true => Ok(()),
            false => Err(Error::PeerLost { rank: 2, detail: ": it died".to_owned() }),
        };
        let limit = WaitLimit { deadline: within(20.0), heeded: Some(Box::new(heeded)) };
        let error = Star::join(&endpoint, SECRET, 1, 3, limit).err().unwrap();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert!(rank0.join().unwrap().is_some() && start.elapsed() < Duration::from_secs(10));
    });
}

struct Forger(Channel);

impl Forger {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(Channel::new(socket.into(), MAX_VERDICT_BYTES))
    }

    fn ask(&mut self, frame: Outgoing) -> Option<Frame> {
        self.0.queue(frame);
        self.0.receive_by(within(2.0)).ok().flatten()
    }

    /// Says hello, and returns the cipher of the connection.
    fn greet(&mut self) -> Cipher {
        let (noise, hello) = handshake::hello(&SECRET, 0).unwrap();
        let challenge = self.ask(hello).unwrap();
        assert_eq!(challenge.header.kind, FrameKind::Challenge);
        handshake::read_challenge(&SECRET, noise, &challenge.payload).ok().flatten().unwrap()
    }

    /// A newcomer that knows the secret, up to its claim.
    fn proved(address: SocketAddr) -> Self {
        let mut forger = Self::connect(address);
        let cipher = forger.greet();
        forger.0.seal(Some(cipher));
        forger
    }

    fn refused(&mut self, frame: Outgoing) -> String {
        let verdict = self.ask(frame).expect("no answer");
        assert_eq!(verdict.header.kind, FrameKind::Verdict);
        handshake::read_verdict(&verdict.payload).unwrap_err()
    }
}

#[test]
fn pitfall_35_ranks_out_of_range_and_rank_0_are_refused_in_words() {
    while_forming(|address| {
        for (rank, words) in
            [(2, "rank 2 is not in 0..2"), (1 << 30, "is not in 0..2"), (0, "rank 0 was claimed before")]
        {
            let answer = Forger::proved(address).refused(handshake::claim(rank, 2));
            assert!(answer.contains(words), "{answer}");
        }
    });
}

#[test]
fn pitfall_35_a_claim_without_the_secret_or_of_another_connection_ends_it_unanswered() {
    while_forming(|address| {
        // Rank 0 reads encrypted frames only.
        let mut plain = Forger::connect(address);
        plain.greet();
        assert!(plain.ask(handshake::claim(1, 2)).is_none());
        // Bytes that were right in one connection are sent in another.
        let recorded = Forger::connect(address).greet();
        let mut replayed = Forger::connect(address);
        replayed.greet();
        replayed.0.seal(Some(recorded));
        assert!(replayed.ask(handshake::claim(1, 2)).is_none());
    });
}

#[test]
fn another_version_is_told_both_versions() {
    while_forming(|address| {
        let mut hello = handshake::hello(&SECRET, 0).unwrap().1;
        hello.payload = [&99u32.to_le_bytes()[..], &[0; 100]].concat().into();
        let answer = Forger::connect(address).refused(hello);
        assert_eq!(answer, "protocol version 99, but rank 0 speaks version 4");
    });
}

#[test]
fn pitfall_35_frames_out_of_turn_and_out_of_bounds_end_a_connection_unanswered() {
    while_forming(|address| {
        assert!(Forger::connect(address).ask(handshake::claim(1, 2)).is_none());
        let again = handshake::hello(&SECRET, 0).unwrap().1;
        assert!(Forger::proved(address).ask(again).is_none());
        let long = Outgoing::control(FrameKind::Hello, 0, vec![1; 257]);
        assert!(Forger::connect(address).ask(long).is_none());
        // The first frames of an all-gather, sent before anything was proved.
        assert!(Forger::connect(address).ask(Outgoing::data(1, 0, (*b"data").into())).is_none());
    });
}

#[test]
fn pitfall_1_a_rank_that_dies_before_the_world_is_complete_is_named() {
    let (address, endpoint, listener) = door();
    let join = |rank| {
        let mut forger = Forger::proved(address);
        assert_eq!(forger.ask(handshake::claim(rank, 4)).unwrap().header.kind, FrameKind::Verdict);
        forger
    };
    thread::scope(|scope| {
        let rank0 = scope.spawn(|| Star::listen(endpoint, listener, SECRET, 4, within(20.0)).map(drop));
        let mut rank1 = join(1);
        drop(join(2));
        let lost = Error::PeerLost { rank: 2, detail: ": its connection closed".into() };
        assert_eq!(rank0.join().unwrap(), Err(lost.clone()));
        let told = rank1.0.receive_by(within(5.0)).unwrap().unwrap();
        let detail = ": its connection closed; found by rank 0".into();
        assert_eq!(read_notice(0, &told.payload), Error::PeerLost { rank: 2, detail });
    });
}

/// A world of three whose rank 2 sends `bytes` instead of taking part, encrypted or plain; returns the errors of the others.
fn with_a_mad_rank(bytes: &[u8], encrypted: bool) -> [Error; 2] {
    let (address, endpoint, listener) = door();
    thread::scope(|scope| {
        let gather = |mut star: Star| star.all_gather(b"", within(5.0)).unwrap_err();
        let theirs = endpoint.clone();
        let rank0 = move || gather(Star::listen(theirs, listener, SECRET, 3, within(5.0)).unwrap());
        let rank1 = move || gather(join(&endpoint, 1, 3, 5.0));
        let sane: [ScopedJoinHandle<'_, Error>; 2] = [scope.spawn(rank0), scope.spawn(rank1)];
        let mut mad = Forger::proved(address);
        assert_eq!(mad.ask(handshake::claim(2, 3)).unwrap().header.kind, FrameKind::Verdict);
        assert_eq!(mad.0.receive_by(within(5.0)).unwrap().unwrap().header.kind, FrameKind::Start);
        let mut sent = bytes.to_vec();
        if encrypted {
            sent.clear();
            mad.0.cipher().unwrap().seal(bytes, &mut sent).unwrap();
        }
        let mut socket = TcpStream::from(mad.0.as_fd().try_clone_to_owned().unwrap());
        socket.write_all(&sent).unwrap();
        sane.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn a_rank_that_sends_nonsense_is_named_to_everybody() {
    let frame = |sequence| Outgoing::data(2, sequence, [].into()).header().encode().to_vec();
    let mut huge = frame(0);
    huge[16..24].copy_from_slice(&(MAX_FRAME_BYTES as u64 + 1).to_le_bytes());
    let unopened = "rank 2 sent bytes that the connection's key does not open: they were changed on the way";
    let cases: [(Vec<u8>, &str); 4] = [
        (vec![b'?'; HEADER_BYTES + TAG_BYTES], unopened),
        (vec![b'?'; HEADER_BYTES], "rank 2 sent bytes [3f, 3f, 3f, 3f] instead of the magic"),
        (frame(5), "expected data of rank 2 in exchange 0, got data of rank 2 in exchange 5"),
        (huge, "rank 2 sent a data frame of 67108865 bytes, at most 67108864 are allowed"),
    ];
    for (bytes, words) in cases {
        let [at_rank0, at_rank1] = with_a_mad_rank(&bytes, words != unopened);
        assert!(matches!(&at_rank0, Error::Bootstrap { message } if message.contains(words)), "{at_rank0}");
        assert!(matches!(&at_rank1, Error::Peer { rank: 0, message } if message.contains(words)), "{at_rank1}");
    }
}

#[test]
fn pitfall_35_another_user_is_turned_away_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can become another user
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("open.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let endpoint = Endpoint::Unix(path.clone());
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            // This thread alone becomes another user, until it ends.
            let somebody = rustix::process::Uid::from_raw(54321);
            rustix::thread::set_thread_res_uid(somebody, somebody, somebody).unwrap();
            match endpoint.dial(within(2.0)) {
                Err(Setback::Final(error)) => assert!(error.to_string().contains("it runs as user 0"), "{error}"),
                _ => panic!("it trusts another user"),
            }
            std::os::unix::net::UnixStream::connect(&path).unwrap().read(&mut [0])
        });
        for _ in 0..2 {
            assert!(endpoint.accept(listener.as_fd()).unwrap().is_none());
        }
        assert_eq!(stranger.join().unwrap().unwrap_or(0), 0);
    });
    assert!(endpoint.dial(within(2.0)).is_ok());
    assert!(endpoint.accept(listener.as_fd()).unwrap().is_some());
}

#[test]
fn pitfall_1_a_rank_that_comes_after_another_died_is_told_who() {
    let (address, endpoint, listener) = door();
    thread::scope(|scope| {
        let rank0 = scope.spawn(|| Star::listen(endpoint.clone(), listener, SECRET, 3, within(20.0)).err().unwrap());
        let mut rank1 = Forger::proved(address);
        let welcome = rank1.ask(handshake::claim(1, 3)).unwrap();
        assert!(handshake::read_verdict(&welcome.payload).is_ok());
        drop(rank1);
        thread::sleep(Duration::from_millis(300));
        let start = std::time::Instant::now();
        let rank2 = Star::join(&endpoint, SECRET, 2, 3, within(20.0)).err().unwrap();
        for error in [rank2, rank0.join().unwrap()] {
            assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    });
}

#[test]
fn pitfall_35_the_words_of_a_stranger_that_listens_are_escaped_and_cut() {
    let (listener, words) = (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), "\u{1b}[31mred\n".repeat(300));
    let endpoint = Endpoint::Tcp(vec![listener.local_addr().unwrap()]);
    thread::scope(|scope| {
        scope.spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut stranger = Forger(Channel::new(socket.into(), MAX_VERDICT_BYTES));
            assert!(stranger.ask(handshake::refusal(&words)).is_some(), "a hello came");
        });
        let words = Star::join(&endpoint, SECRET, 1, 2, within(10.0)).err().unwrap().to_string();
        assert!(words.contains("refused this rank: \\u{1b}[31mred\\n"), "{words}");
        assert!(words.len() < 500 && !words.contains(char::is_control), "{words}");
    });
}
