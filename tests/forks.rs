//! Ranks that fork, and ranks in PID namespaces of their own.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "forks/objects.rs"]
mod objects;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use symmetra::bootstrap::{Bootstrap, Local};
use symmetra::{Device, DeviceBuffer, Error, Event, Graph, Stream, SymmetricBuffer};

use support::process::{Child, Ranks, this, within_a_second, words};
use support::world::{alone, bounded};
use support::{Rank, config, fits, is_host};

const LIMIT: Duration = Duration::from_secs(120);
/// How long a forked child may take.
const CHILD: Duration = Duration::from_secs(20);

/// Runs `body` in a forked child, which ends with code 0 if `body` returns. Returns its process id to the parent.
fn fork(body: impl FnOnce()) -> Pid {
    // SAFETY: the C library keeps its heap usable in a child of many threads, and the child takes no other lock that a
    // thread of this process may hold.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // With the handlers of a normal end.
            std::process::exit(i32::from(!done))
        }
        child => Pid::from_raw(child).expect("fork"),
    }
}

/// Waits for a forked child to end in good order.
fn expect_good_end(child: Pid) {
    let mut ended = None;
    let start = Instant::now();
    while ended.is_none() && start.elapsed() < CHILD {
        ended = waitpid(Some(child), WaitOptions::NOHANG).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    match ended {
        Some((_, status)) => assert_eq!(status.exit_status(), Some(0), "{status:?}"),
        None => {
            kill_process(child, Signal::KILL).unwrap();
            panic!("the forked child hangs");
        }
    }
}

fn refused<T: std::fmt::Debug>(what: &str, outcome: symmetra::Result<T>) {
    match outcome {
        Err(error @ Error::Unsupported { .. }) => {
            let words = error.to_string();
            assert!(words.contains("made before fork()") && words.contains("in the parent process"), "{what}: {words}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// The objects of a rank.
struct Things {
    rank: Rank,
    buffer: SymmetricBuffer<i32>,
    plain: DeviceBuffer<i32>,
    event: Event,
    graph: Graph<'static>,
    local: Local,
}

impl Things {
    fn of(child: &Child) -> Self {
        let local = child.meet("again", child.rank, child.world).unwrap();
        let rank = child.open(&config());
        let Rank { communicator, stream, device } = &rank;
        let buffer = communicator.symmetric(1000).unwrap();
        buffer.write(&[1; 1000], stream).unwrap();
        let plain = DeviceBuffer::from_slice(&[1; 1000], stream).unwrap();
        let event = Event::new(device).unwrap();
        stream.record(&event).unwrap();
        let graph = stream.capture(|_| Ok(())).unwrap();
        rank.finish();
        Self { rank, buffer, plain, event, graph, local }
    }

    /// Every use is refused, and dropping all does not hang.
    fn are_refused(mut self) {
        let Rank { communicator, stream, device } = &self.rank;
        refused("device", device.synchronize());
        refused("new stream", Stream::new(device));
        refused("new memory", DeviceBuffer::<i32>::new(device, 8));
        refused("synchronize", stream.synchronize());
        refused("done", stream.is_done());
        refused("record", stream.record(&self.event));
        refused("capture", stream.capture(|_| Ok(())));
        refused("event", self.event.synchronize());
        refused("read", self.plain.read(stream));
        refused("graph", self.graph.launch(stream));
        refused("call", communicator.all_reduce_in_place(&self.buffer, stream));
        refused("symmetric", communicator.symmetric::<i32>(8));
        refused("communicator", communicator.synchronize(stream));
        refused("barrier", communicator.group().barrier());
        refused("split", communicator.split(Some(0), 0));
        refused("bootstrap", self.local.barrier(Instant::now() + CHILD));
        communicator.abort();
        refused("close", communicator.clone().close());
        drop(self);
        // Objects that the child creates itself work.
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        assert_eq!(DeviceBuffer::from_slice(&[7; 9], &stream).unwrap().read(&stream).unwrap(), [7; 9]);
    }

    fn still_work(mut self) {
        let Rank { communicator, stream, .. } = &self.rank;
        self.local.barrier(Instant::now() + CHILD).unwrap();
        communicator.all_reduce_in_place(&self.buffer, stream).unwrap();
        self.graph.launch(stream).unwrap();
        communicator.synchronize(stream).unwrap();
        assert_eq!(self.buffer.read(stream).unwrap(), [2; 1000]);
        drop(self.buffer);
        communicator.clone().close().unwrap();
    }
}

#[test]
fn pitfall_33_a_forked_child_is_refused_and_harms_nobody() {
    const NAME: &str = "pitfall_33_a_forked_child_is_refused_and_harms_nobody";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let things = Things::of(&child);
            if child.rank == 0 {
                // Both hold them now.
                let things = std::mem::ManuallyDrop::new(things);
                // SAFETY: the copy is used in the forked child alone, the other in this process alone.
                let copy = unsafe { std::ptr::read(&*things) };
                let mut copy = std::mem::ManuallyDrop::new(copy);
                // SAFETY: taken once.
                let forked = fork(|| unsafe { std::mem::ManuallyDrop::take(&mut copy) }.are_refused());
                expect_good_end(forked);
                std::mem::ManuallyDrop::into_inner(things).still_work();
            } else {
                things.still_work();
            }
            child.say("done");
        });
    }
    if fits(2) {
        let _alone = alone();
        let ranks = Ranks::start(NAME, 2, "");
        ranks.expect(&[0, 1], "done");
        ranks.finish(&[0, 1]);
    }
}

/// A rank forks and is killed; its child has copies of its sockets.
fn outlived(child: &Child) {
    let rank = child.open(&config());
    let part = rank.communicator.split(Some(0), 0).unwrap().unwrap();
    if child.rank == 0 {
        // It ends by itself, long after the test.
        fork(|| std::thread::sleep(CHILD));
    }
    child.say("ready");
    if child.rank == 0 {
        std::thread::sleep(LIMIT);
    }
    let (communicator, stream) = (if child.part == "split" { &part } else { &rank.communicator }, &rank.stream);
    let error = match child.part.as_str() {
        "host" => communicator.group().barrier().unwrap_err(),
        _ => {
            let buffer = DeviceBuffer::from_slice(&[1i32; 100], stream).unwrap();
            communicator
                .all_reduce_in_place(&buffer, stream)
                .and_then(|()| communicator.synchronize(stream))
                .unwrap_err()
        }
    };
    child.say(&error.to_string());
}

#[test]
fn pitfall_01_the_death_of_a_rank_is_noticed_while_its_forked_child_lives() {
    const NAME: &str = "pitfall_01_the_death_of_a_rank_is_noticed_while_its_forked_child_lives";
    if let Some(child) = this() {
        return bounded(LIMIT, || outlived(&child));
    }
    for part in ["device", "host", "split"] {
        if !fits(2) {
            return;
        }
        let _alone = alone();
        within_a_second(part, || {
            let ranks = Ranks::start(NAME, 2, part);
            ranks.expect(&[0, 1], "ready");
            std::thread::sleep(Duration::from_millis(100));
            let death = Instant::now();
            ranks.signal(0, Signal::KILL);
            let said = ranks.hear(1);
            assert!(said.words.starts_with("rank 0 is gone"), "{part}: {}", said.words);
            ranks.finish(&[1]);
            said.at.duration_since(death)
        });
    }
}

/// A command that runs another one in a PID namespace, if this process may make one.
fn namespace() -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [
        &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"],
        &["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"],
    ];
    WAYS.into_iter().find(|way| {
        let (streams, arguments) = (Stdio::null, [&way[1..], &["true"]].concat());
        Command::new(way[0]).args(arguments).stderr(streams()).status().is_ok_and(|status| status.success())
    })
}

#[test]
fn pitfall_17_ranks_in_pid_namespaces_of_their_own_meet_and_notice_deaths() {
    const NAME: &str = "pitfall_17_ranks_in_pid_namespaces_of_their_own_meet_and_notice_deaths";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            assert_eq!(std::process::id(), 1, "no namespace of its own");
            let rank = child.open(&config());
            let buffer = DeviceBuffer::from_slice(&[1i32; 100], &rank.stream).unwrap();
            rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
            rank.finish();
            assert_eq!(buffer.read(&rank.stream).unwrap(), [3; 100]);
            child.say("reduced");
            if child.rank == 2 {
                std::thread::sleep(LIMIT);
            }
            let call = rank.communicator.all_reduce_in_place(&buffer, &rank.stream);
            let error = call.and_then(|()| rank.communicator.synchronize(&rank.stream)).unwrap_err();
            child.say(&error.to_string());
        });
    }
    let Some(by) = namespace().filter(|_| is_host()) else {
        eprintln!("skipped: this process may not make PID namespaces, or works on GPUs");
        return;
    };
    let _alone = alone();
    within_a_second(NAME, || {
        let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
        let ranks = Ranks::start_by(|_| words(by), directory, NAME, 3, "", |_| Vec::new());
        ranks.expect(&[0, 1, 2], "reduced");
        std::thread::sleep(Duration::from_millis(100));
        let death = Instant::now();
        ranks.signal(2, Signal::KILL);
        let took = [0, 1].map(|rank| {
            let said = ranks.hear(rank);
            assert!(said.words.starts_with("rank 2 is gone"), "{}", said.words);
            said.at.duration_since(death)
        });
        ranks.finish(&[0, 1]);
        took.into_iter().max().unwrap()
    });
}
