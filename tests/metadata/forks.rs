//! Ends of a ring in a child that a rank forks. `tests/source/forks.rs` reads the names of the types.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use symmetra::Error;
use symmetra_ring::{BroadcastRing, Overflow, Reader, RingConfig, Writer};

use crate::support::process::{Child, Ranks, this};
use crate::support::world::{alone, bounded};
use crate::zeromq::available;
use crate::{small, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `body` in a forked child, which must end without an error within some seconds.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the C library keeps its heap usable in a child of many threads, and the child takes no other lock that a
    // thread of this process may hold.
    let child = match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            std::process::exit(i32::from(!done))
        }
        child => Pid::from_raw(child).expect("fork"),
    };
    let start = Instant::now();
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            Some((_, status)) => return assert_eq!(status.exit_status(), Some(0), "{status:?}"),
            None if start.elapsed() > Duration::from_secs(20) => {
                kill_process(child, Signal::KILL).unwrap();
                panic!("the forked child hangs");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A copy of an end, as a forked child has one.
fn copy<T>(end: &T) -> T {
    // SAFETY: made in a forked child, which ends without the other copy's drop.
    unsafe { std::ptr::read(end) }
}

fn refused<T: Debug>(what: &str, outcome: symmetra::Result<T>) {
    match outcome {
        Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("made before fork()"), "{error}"),
        other => panic!("{what}: {other:?}"),
    }
}

fn write(mut writer: Writer) {
    writer.send(b"one").unwrap();
    in_child(|| {
        let mut writer = copy(&writer);
        refused("Writer: send", writer.send(b"child"));
        refused("Writer: send a value", writer.send_value(&1));
        drop(writer);
    });
    for message in [&b"two"[..], b"three", &[7; 250]] {
        writer.send_by(message, within(30.0)).unwrap();
    }
}

fn read(mut reader: Reader) {
    assert_eq!(reader.receive().unwrap(), b"one");
    in_child(|| {
        let mut reader = copy(&reader);
        refused("Reader: receive", reader.receive());
        refused("Reader: receive a value", reader.receive_value::<u8>());
        drop(reader);
    });
    for message in [&b"two"[..], b"three", &[7; 250]] {
        assert_eq!(reader.receive().unwrap(), message);
    }
    match reader.receive() {
        Err(Error::PeerLost { rank: 0, detail }) => assert!(detail.contains("left the ring"), "{detail}"),
        other => panic!("{other:?}"),
    }
}

/// One rank's settings: all on one host, overflowing by ZeroMQ, and on hosts of their own.
fn settings(part: &str, rank: usize) -> RingConfig {
    let mut config = small();
    match part {
        "overflow" => config.overflow = Overflow::ZeroMq,
        "hosts" => config.host = Some(format!("host {rank}")),
        _ => {}
    }
    config
}

fn end_of(child: &Child) -> BroadcastRing {
    let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
    BroadcastRing::create(&mut bootstrap, settings(&child.part, child.rank)).unwrap()
}

#[test]
fn pitfall_33_a_forked_child_is_refused_and_the_ring_goes_on() {
    const NAME: &str = "forks::pitfall_33_a_forked_child_is_refused_and_the_ring_goes_on";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            match end_of(&child) {
                BroadcastRing::Writer(writer) => write(writer),
                BroadcastRing::Reader(reader) => read(reader),
            }
            child.say("done");
        });
    }
    for part in ["near", "overflow", "hosts"] {
        if part == "near" || available() {
            let _alone = alone();
            let ranks = Ranks::start(NAME, 3, part);
            ranks.expect(&[0, 1, 2], "done");
            ranks.finish(&[0, 1, 2]);
        }
    }
}
