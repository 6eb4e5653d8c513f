//! Readers of other hosts and messages that overflow: by ZeroMQ.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use symmetra::Error;
use symmetra::bootstrap::Threads;
use symmetra_ring::{BroadcastRing, Invitation, Overflow, RingConfig};

use crate::support::process::{Ranks, this, within_a_second};
use crate::support::world::{alone, bounded, until};
use crate::{check_series, ends, lost, message, ring, small, timed_out, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Whether this machine has libzmq. Without libzmq the test is skipped, with a message.
pub(crate) fn available() -> bool {
    let config = |rank: usize| at(small(), if rank == 1 { "elsewhere" } else { "here" });
    match ends(2, config).remove(0) {
        Ok(_) => true,
        Err(Error::Unsupported { reason, .. }) => {
            eprintln!("SKIPPED: {reason}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn at(mut config: RingConfig, host: &str) -> RingConfig {
    config.host = Some(host.to_owned());
    config
}

fn overflowing() -> RingConfig {
    let mut config = small();
    config.overflow = Overflow::ZeroMq;
    config
}

/// A ring whose ranks from `far` on are on other hosts.
fn split(world: usize, far: usize, config: &RingConfig) -> (symmetra_ring::Writer, Vec<symmetra_ring::Reader>) {
    let host = |rank: usize| if rank < far { "here".to_owned() } else { format!("host {}", rank / 2) };
    let mut ends = ends(world, |rank| at(config.clone(), &host(rank))).into_iter().map(Result::unwrap);
    let writer = ends.next().unwrap().into_writer().unwrap();
    (writer, ends.map(|end| end.into_reader().unwrap()).collect())
}

fn series(world: usize, far: usize, config: &RingConfig, count: u64) {
    let seed = fastrand::u64(..);
    let (mut writer, readers) = split(world, far, config);
    let readers = readers.into_iter().map(|mut reader| {
        thread::spawn(move || {
            check_series(&mut reader, seed, count, 450);
            reader
        })
    });
    let readers: Vec<_> = readers.collect();
    for number in 0..count {
        writer.send(&message(seed, number, 450)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let ended = readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| panic!("seed {seed}")));
    drop(ended.collect::<Vec<_>>());
}

#[test]
fn readers_of_other_hosts_get_every_message_whole_and_in_order() {
    if available() {
        series(2, 1, &small(), 3000);
        series(5, 2, &small(), 1000);
        series(6, 3, &overflowing(), 1000);
    }
}

#[test]
fn messages_that_overflow_keep_their_place_among_the_others() {
    if available() {
        series(4, 4, &overflowing(), 3000);
        let (mut writer, mut readers) = ring(2, &overflowing());
        let huge: Vec<u8> = (0..20_000_000).map(|index| (index * 7) as u8).collect();
        // Far more than the capacity of the ring, but the writer does not wait.
        writer.send(&huge).unwrap();
        writer.send(b"after").unwrap();
        assert!(readers[0].receive().unwrap() == huge);
        assert_eq!(readers[0].receive().unwrap(), b"after");
    }
}

unsafe extern "C" {
    // Of the C library: with its usual meaning, calls that wait go on after the handler.
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn pthread_self() -> usize;
    fn pthread_kill(thread: usize, number: i32) -> i32;
}

/// Runs a test in a process that nothing else runs in.
fn by_itself(name: &str, test: fn()) {
    if this().is_some() {
        return bounded(LIMIT, test);
    }
    if available() {
        let _alone = alone();
        Ranks::start(name, 1, "").finish(&[0]);
    }
}

/// Runs in a separate process, because the test sets a variable.
#[test]
fn a_directory_whose_name_is_not_unicode_is_said_plainly() {
    by_itself("zeromq::a_directory_whose_name_is_not_unicode_is_said_plainly", in_bytes);
}

fn in_bytes() {
    let folder = std::env::temp_dir().join(OsStr::from_bytes(b"\xff\xfe"));
    std::fs::create_dir_all(&folder).unwrap();
    // SAFETY: no other thread of this process reads variables now.
    unsafe { std::env::set_var("TMPDIR", &folder) };
    // Sockets of the system take any name.
    let (mut writer, mut readers) = ring(2, &small());
    writer.send(b"x").unwrap();
    assert_eq!(readers[0].receive().unwrap(), b"x");
    let mut refused = ends(2, |_| overflowing()).into_iter().map(|end| end.map(drop).unwrap_err());
    let words = refused.next().unwrap().to_string();
    assert!(words.contains("TMPDIR") && words.contains("UTF-8"), "{words}");
    assert!(matches!(refused.next(), Some(Error::Peer { rank: 0, .. })));
}

const USER_SIGNAL: i32 = 10;

extern "C" fn nothing(_: i32) {}

/// Of a process whose threads get signals all the time, such as a profiler's. In a process of its own, for the
/// handler's sake.
#[test]
fn signals_do_not_end_a_ring() {
    by_itself("zeromq::signals_do_not_end_a_ring", interrupted);
}

fn interrupted() {
    // SAFETY: a handler that does nothing may run at any time.
    unsafe { signal(USER_SIGNAL, nothing) };
    let (mut writer, mut readers) = split(2, 1, &small());
    // SAFETY: no preconditions.
    let target = unsafe { pthread_self() };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // SAFETY: this scope's owner, which lives.
                unsafe { pthread_kill(target, USER_SIGNAL) };
            }
        });
        // One thread is both ends, so that every call of either is interrupted now and then.
        let outcome = (|| {
            let end = within(3.0);
            while Instant::now() < end {
                writer.send(b"x")?;
                assert_eq!(readers[0].receive()?, b"x");
            }
            Ok::<_, Error>(())
        })();
        over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn a_slow_reader_of_another_host_blocks_the_writer_and_is_named() {
    if !available() {
        return;
    }
    let (mut writer, mut readers) = split(3, 2, &small());
    for _ in 0..3 {
        writer.send(b"x").unwrap();
        assert_eq!(readers[0].receive().unwrap(), b"x");
    }
    let (rank, words) = timed_out(writer.send_by(b"y", within(0.3)));
    assert!(rank == Some(2) && words.contains("connected, with 3 unread messages"), "{words}");
    (0..3).for_each(|_| assert_eq!(readers[1].receive().unwrap(), b"x"));
    let (rank, words) = timed_out(readers[1].receive_by(within(0.1)));
    assert!(rank == Some(0) && words.contains("connected and has sent 3 messages"), "{words}");
    writer.send(b"z").unwrap();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.receive().unwrap(), b"z"));
}

#[test]
fn pitfall_1_the_end_of_either_side_is_told_to_the_other() {
    if !available() {
        return;
    }
    let (mut writer, mut readers) = split(3, 2, &small());
    writer.send(b"last").unwrap();
    drop(writer);
    for reader in &mut readers {
        assert_eq!(reader.receive().unwrap(), b"last");
        let (rank, words) = lost(reader.receive());
        assert!(rank == 0 && words.contains("left the ring"), "{words}");
    }

    let (mut writer, mut readers) = split(3, 2, &small());
    writer.send(b"x").unwrap();
    drop(readers.pop());
    let start = Instant::now();
    // Its goodbye message may be in flight when the next message is sent.
    let error = loop {
        match writer.send_by(b"y", within(20.0)) {
            Ok(()) => assert_eq!(readers[0].receive().map(<[u8]>::to_vec).unwrap().len(), 1),
            Err(error) => break error,
        }
    };
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(lost::<()>(Err(error)).0, 2);
    // The other readers learn which rank the writer gave up.
    drop(writer);
    let error = loop {
        match readers[0].receive() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let (rank, words) = lost::<()>(Err(error));
    assert!(rank == 2 && words.contains("rank 0, the writer, gave it up"), "{words}");
}

/// Readers on the writer's host, 1, and on two others, 2 and 3: one is late or leaves.
#[test]
fn pitfall_1_whom_the_writer_gave_up_is_told_on_other_hosts() {
    if !available() {
        return;
    }
    let mut config = small();
    config.slots = 2;
    for culprit in 1..4 {
        let (mut writer, mut readers) = split(4, 2, &config);
        for _ in 0..2 {
            writer.send(b"x").unwrap();
            let others = (1..4).filter(|rank| *rank != culprit);
            others.for_each(|rank| assert_eq!(readers[rank - 1].receive().unwrap(), b"x"));
        }
        assert_eq!(timed_out(writer.send_by(b"y", within(1.0))).0, Some(culprit));
        drop(writer);
        for rank in (1..4).filter(|rank| *rank != culprit) {
            let (named, words) = lost(readers[rank - 1].receive());
            assert!(named == culprit && words.contains("rank 0, the writer, gave it up, after 2"), "{rank}: {words}");
        }
        (0..2).for_each(|_| assert_eq!(readers[culprit - 1].receive().unwrap(), b"x"));
        let (named, words) = lost(readers[culprit - 1].receive());
        assert!(named == 0 && words.contains("because this rank was too slow"), "{culprit}: {words}");
    }
}

/// Readers on the writer's host, 1 and 2, and on two others, 3 and 4: one is late, and another leaves because of that.
#[test]
fn the_late_reader_is_named_and_not_the_one_that_left_because_of_it() {
    if !available() {
        return;
    }
    let mut config = small();
    config.slots = 2;
    for (late, left) in [(1, 3), (3, 1), (3, 4), (1, 2)] {
        let (mut writer, mut readers) = split(5, 3, &config);
        for _ in 0..2 {
            writer.send(b"x").unwrap();
            let others = (1..5).filter(|rank| *rank != late);
            others.for_each(|rank| assert_eq!(readers[rank - 1].receive().unwrap(), b"x"));
        }
        timed_out(readers[left - 1].receive_by(within(0.05)));
        drop(readers.remove(left - 1));
        // The goodbye message may be in flight; then the writer finds the late reader itself.
        thread::sleep(Duration::from_millis(300));
        let error = writer.send_by(b"y", within(1.0)).unwrap_err();
        let named = match &error {
            Error::PeerLost { rank, .. } => Some(*rank),
            Error::Timeout { rank, .. } => *rank,
            _ => None,
        };
        assert_eq!(named, Some(late), "{late} {left}: {error}");
    }
}

#[test]
fn pitfall_1_a_killed_reader_of_another_host_is_named() {
    const NAME: &str = "zeromq::pitfall_1_a_killed_reader_of_another_host_is_named";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
            let config = at(small(), if child.rank == 1 { "elsewhere" } else { "here" });
            match BroadcastRing::create(&mut bootstrap, config).unwrap() {
                BroadcastRing::Reader(_reader) => {
                    child.say("ready");
                    child.hear();
                }
                BroadcastRing::Writer(mut writer) => {
                    (0..3).for_each(|_| writer.send(b"fills the window").unwrap());
                    child.say("full");
                    let (rank, words) = lost(writer.send_by(b"never", within(30.0)));
                    assert!(rank == 1 && words.contains("its connection closed, having taken 0 of 3"), "{words}");
                    child.say("noticed");
                }
            }
        });
    }
    if !available() {
        return;
    }
    let _alone = alone();
    within_a_second(NAME, || {
        let ranks = Ranks::start(NAME, 2, "");
        ranks.expect(&[1], "ready");
        ranks.expect(&[0], "full");
        thread::sleep(Duration::from_millis(50));
        let killed = Instant::now();
        ranks.signal(1, Signal::KILL);
        let noticed = ranks.hear(0);
        assert_eq!(noticed.words, "noticed");
        ranks.finish(&[0]);
        noticed.at - killed
    });
}

#[test]
fn pitfall_1_a_killed_writer_is_named_on_other_hosts() {
    const NAME: &str = "zeromq::pitfall_1_a_killed_writer_is_named_on_other_hosts";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
            let config = at(small(), if child.rank == 1 { "elsewhere" } else { "here" });
            match BroadcastRing::create(&mut bootstrap, config).unwrap() {
                BroadcastRing::Reader(mut reader) => {
                    assert_eq!(reader.receive().unwrap(), b"one");
                    child.say("waiting");
                    let (rank, words) = lost(reader.receive());
                    assert!(rank == 0 && words.contains("its connection closed, after 1 messages"), "{words}");
                    child.say("noticed");
                }
                BroadcastRing::Writer(mut writer) => {
                    writer.send(b"one").unwrap();
                    child.hear();
                }
            }
        });
    }
    if !available() {
        return;
    }
    let _alone = alone();
    within_a_second(NAME, || {
        let ranks = Ranks::start(NAME, 2, "");
        ranks.expect(&[1], "waiting");
        let killed = Instant::now();
        ranks.signal(0, Signal::KILL);
        let noticed = ranks.hear(1);
        assert_eq!(noticed.words, "noticed");
        ranks.finish(&[1]);
        noticed.at - killed
    });
}

/// Longer than sockets hold, to a reader that is suspended when the writer leaves, and goes on a little later.
#[test]
fn a_writer_that_leaves_waits_for_what_overflowed() {
    const NAME: &str = "zeromq::a_writer_that_leaves_waits_for_what_overflowed";
    let huge: Vec<u8> = (0..8_000_000).map(|index| (index * 7) as u8).collect();
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
            match BroadcastRing::create(&mut bootstrap, overflowing()).unwrap() {
                BroadcastRing::Reader(mut reader) => {
                    child.say("ready");
                    assert!(reader.receive().unwrap() == huge);
                    child.say("read");
                }
                BroadcastRing::Writer(mut writer) => {
                    child.hear();
                    writer.send(&huge).unwrap();
                    child.say("sent");
                    drop(writer);
                }
            }
        });
    }
    if !available() {
        return;
    }
    let _alone = alone();
    let mut ranks = Ranks::start(NAME, 2, "");
    ranks.expect(&[1], "ready");
    ranks.signal(1, Signal::STOP);
    ranks.wait_stopped(1);
    ranks.tell(&[0], "send");
    ranks.expect(&[0], "sent");
    // Beyond the time for which ZeroMQ itself keeps a connection open.
    thread::sleep(Duration::from_millis(1300));
    ranks.signal(1, Signal::CONT);
    ranks.expect(&[1], "read");
    ranks.finish(&[0, 1]);
}

#[test]
fn pitfall_17_a_killed_writer_leaves_no_file() {
    const NAME: &str = "zeromq::pitfall_17_a_killed_writer_leaves_no_file";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
            match BroadcastRing::create(&mut bootstrap, overflowing()).unwrap() {
                BroadcastRing::Reader(mut reader) => {
                    assert_eq!(reader.receive().unwrap().len(), 1000);
                    child.say("waiting");
                    assert_eq!(lost(reader.receive()).0, 0);
                }
                BroadcastRing::Writer(mut writer) => {
                    writer.send(&[1; 1000]).unwrap();
                    child.hear();
                }
            }
        });
    }
    if !available() {
        return;
    }
    let _alone = alone();
    let ranks = Ranks::start(NAME, 2, "");
    ranks.expect(&[1], "waiting");
    ranks.signal(0, Signal::KILL);
    let temporary = ranks.directory().join("tmp");
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    ranks.finish(&[1]);
}

/// The reader of a real ZeroMQ of another language. `python` is one with pyzmq.
fn guest(invitation: &Invitation, python: &str) -> std::process::Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/metadata/remote_reader.py");
    let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", serde_json::to_string(invitation).unwrap()).unwrap();
    child
}

/// A Python with pyzmq, if there is one.
fn python() -> Option<&'static str> {
    let has = |python: &&str| {
        let mut check = Command::new(python);
        check.args(["-c", "import zmq; assert zmq.has('curve')"]).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has)
}

/// A value of most kinds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    step: i8,
    logprobs: Vec<f32>,
    stop: Option<Option<u8>>,
    ids: BTreeMap<u8, u128>,
    by: Sampler,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Sampler {
    Greedy(bool, char),
}

fn measured() -> Measured {
    let logprobs = vec![f32::NEG_INFINITY, f32::INFINITY, 0.5];
    let (stop, ids, by) = (Some(None), [(7, u128::MAX)].into(), Sampler::Greedy(true, 'x'));
    Measured { step: -3, logprobs, stop, ids, by }
}

#[test]
fn a_reader_in_python_understands_the_documented_format() {
    let Some(python) = python() else {
        eprintln!("SKIPPED: no python3 with pyzmq (Debian: python3-zmq), so nothing was compared with a real peer");
        return;
    };
    if !available() {
        return;
    }
    const COUNT: u64 = 500;
    let mut ranks = Threads::new(3).unwrap();
    let (mut of_guest, mut of_reader, mut of_writer) = (ranks.remove(2), ranks.remove(1), ranks.remove(0));
    let guest = thread::spawn(move || {
        let mut child = None;
        BroadcastRing::invite(&mut of_guest, at(small(), "python"), |invitation| {
            assert!(!format!("{invitation:?}").contains(&invitation.secret_key));
            child = Some(guest(&invitation, python));
            Ok(())
        })
        .unwrap();
        child.unwrap()
    });
    let reader = thread::spawn(move || {
        let mut reader = BroadcastRing::create(&mut of_reader, at(small(), "here")).unwrap().into_reader().unwrap();
        check_series(&mut reader, 5, COUNT, 450);
        assert_eq!(reader.receive_value::<Measured>().unwrap(), measured());
        reader
    });
    let mut writer = BroadcastRing::create(&mut of_writer, at(small(), "here")).unwrap().into_writer().unwrap();
    let mut digest = Sha256::new();
    for number in 0..COUNT {
        let bytes = message(5, number, 450);
        writer.send(&bytes).unwrap();
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(&bytes);
    }
    // The same bytes, which are a value.
    writer.send_value(&measured()).unwrap();
    let bytes = symmetra::internal::encode("the value", &measured()).unwrap();
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(&bytes);
    let reader = reader.join().unwrap();
    let mut guest = guest.join().unwrap();
    drop(writer);
    drop(reader);
    let mut line = String::new();
    BufReader::new(guest.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(guest.wait().unwrap().success());
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let last = "{'step': -3, 'logprobs': [-inf, inf, 0.5], 'stop': ('some', None), \
                'ids': {7: 340282366920938463463374607431768211455}, 'by': {'Greedy': [True, 'x']}}";
    let expected = serde_json::json!({ "taken": COUNT + 1, "sha256": hex, "last": last });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), expected);
}

/// The log of the library, from every thread of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Runs in a separate process, because the test reads the log.
#[test]
fn pitfall_35_strangers_are_turned_away_and_logged_while_the_ring_works() {
    by_itself("zeromq::pitfall_35_strangers_are_turned_away_and_logged_while_the_ring_works", garbage);
}

fn garbage() {
    let log = Log::default();
    let writer_of_log = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer_of_log.clone()).init();
    let mut ranks = Threads::new(3).unwrap();
    let (mut of_probe, of_reader, of_writer) = (ranks.remove(2), ranks.remove(1), ranks.remove(0));
    // The guest's invitation contains the port; a guest with another key is a stranger like any other.
    let python = python();
    // Without a guest the ring waits in vain.
    let open = Duration::from_secs(if python.is_some() { 50 } else { 8 });
    let watched = log.clone();
    let probe = thread::spawn(move || {
        let mut address = None;
        let mut config = at(small(), "guest");
        config.open = open;
        let invited = BroadcastRing::invite(&mut of_probe, config, |invitation| {
            let endpoint = invitation.endpoint.strip_prefix("tcp://").unwrap().to_owned();
            let place: SocketAddr = endpoint.parse().unwrap();
            assert_eq!(place.ip(), Ipv4Addr::LOCALHOST);
            knock(place, 1000);
            if let Some(python) = python {
                let mut stranger = invitation.clone();
                (stranger.public_key, stranger.secret_key) = (STRANGER.0.to_owned(), STRANGER.1.to_owned());
                let mut child = guest(&stranger, python);
                let refused = || watched.text().contains("its key is unknown");
                until(Duration::from_secs(30), "the stranger is turned away", refused);
                child.kill().unwrap();
                child.wait().unwrap();
                address = Some((place, guest(&invitation, python)));
            }
            Ok(())
        });
        (invited, address)
    });
    let far = |mut bootstrap: Threads, host: &'static str| {
        thread::spawn(move || {
            let mut config = at(small(), host);
            config.open = open;
            BroadcastRing::create(&mut bootstrap, config)
        })
    };
    let (reader, writer) = (far(of_reader, "far"), far(of_writer, "here"));
    let (invited, address) = probe.join().unwrap();
    let (reader, writer) = (reader.join().unwrap(), writer.join().unwrap());
    let Some((place, mut guest)) = address else {
        // Without a guest the ring names the missing rank.
        assert_eq!(timed_out(writer).0, Some(2));
        return assert!(reader.is_err() && invited.is_err());
    };
    invited.unwrap();
    let (mut reader, mut writer) = (reader.unwrap().into_reader().unwrap(), writer.unwrap().into_writer().unwrap());
    let flood = thread::spawn(move || knock(place, 9000));
    let start = Instant::now();
    let mut messages = 0;
    while !flood.is_finished() || messages < 100 {
        writer.send(b"still here").unwrap();
        assert_eq!(reader.receive().unwrap(), b"still here");
        messages += 1;
    }
    flood.join().unwrap();
    eprintln!("{messages} messages in {:?} with 9000 unknown connections", start.elapsed());
    drop(writer);
    assert!(guest.wait().unwrap().success());
    let text = log.text();
    assert!(text.contains("turned away a connection to tcp://127.0.0.1:"), "{text}");
    assert!(text.contains("its key is unknown") && text.contains("it did not speak as a reader"), "{text}");
    assert!(text.lines().count() < 100, "{} lines", text.lines().count());
    assert!(!text.contains("panicked"));
}

/// A pair of CURVE keys that was given to no rank.
const STRANGER: (&str, &str) = ("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs");

/// Connections that send something else than the protocol, or nothing.
fn knock(place: SocketAddr, count: u32) {
    let mut random = fastrand::Rng::with_seed(count.into());
    let mut silent = Vec::new();
    for number in 0..count {
        let mut stranger = TcpStream::connect(place).unwrap();
        let mut noise = [0; 512];
        random.fill(&mut noise);
        // A refusal may close the connection while we write.
        let _ = match number % 4 {
            0 => stranger.write_all(&noise),
            1 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            // The first bytes of a ZeroMQ connection without security.
            2 => stranger.write_all(&[&b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"[..], &[0; 48]].concat()),
            _ => Ok(()),
        };
        if number % 100 == 3 {
            silent.push(stranger);
        }
    }
    for mut stranger in silent {
        let _ = stranger.set_read_timeout(Some(Duration::from_millis(1)));
        let _ = stranger.read(&mut [0; 64]);
    }
}

#[test]
fn only_one_interface_is_listened_at() {
    if !available() {
        return;
    }
    for end in ends(2, |rank| {
        let mut config = at(small(), if rank == 1 { "elsewhere" } else { "here" });
        config.bind = Some(Ipv4Addr::UNSPECIFIED.into());
        config
    }) {
        let error = end.unwrap_err().to_string();
        assert!(error.contains("bind is 0.0.0.0, but it must be the address of one interface"), "{error}");
    }
}

#[test]
fn a_guest_that_cannot_be_invited_is_named_at_once() {
    if !available() {
        return;
    }
    let mut ranks = Threads::new(3).unwrap();
    let (mut of_guest, of_reader, of_writer) = (ranks.remove(2), ranks.remove(1), ranks.remove(0));
    let start = Instant::now();
    let ends = [(of_reader, "far"), (of_writer, "here")];
    let ends = ends.map(|(mut bootstrap, host)| {
        thread::spawn(move || BroadcastRing::create(&mut bootstrap, at(small(), host)).map(drop))
    });
    let refused = Error::Unsupported { what: "a guest".to_owned(), reason: "there is no python".to_owned() };
    let invited = BroadcastRing::invite(&mut of_guest, at(small(), "python"), |_| Err(refused.clone()));
    assert_eq!(invited, Err(refused.clone()));
    for end in ends {
        assert_eq!(end.join().unwrap(), Err(Error::Peer { rank: 2, message: refused.to_string() }));
    }
    assert!(start.elapsed() < small().open / 2, "{:?}", start.elapsed());
}

#[test]
fn a_guest_cannot_be_on_the_writers_host() {
    let mut ranks = Threads::new(2).unwrap();
    let (mut of_guest, mut of_writer) = (ranks.remove(1), ranks.remove(0));
    let writer = thread::spawn(move || BroadcastRing::create(&mut of_writer, small()).map(drop));
    let invited = BroadcastRing::invite(&mut of_guest, small(), |_| panic!("invited"));
    assert!(matches!(invited, Err(Error::InvalidArgument { .. })), "{invited:?}");
    assert!(matches!(writer.join().unwrap(), Err(Error::Peer { rank: 1, .. })));
}
