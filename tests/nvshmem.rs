//! Memory of NVSHMEM as operands, over a library with NVSHMEM's functions and no devices (`tests/nvshmem/fake.cc`). Ranks
//! are processes.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use half::bf16;
use symmetra::nvshmem::{Library, Session};
use symmetra::{AdoptedSlice, Algorithm, AllReduceOptions, Communicator, Error, Queue, Reduction, Result};

use support::data::{assert_same, mix};
use support::extent::full;
use support::process::{Child, Ranks, this};
use support::world::{alone, bounded};
use support::{Data, Rank, Sample, config, threads};

const LIMIT: Duration = Duration::from_secs(150);
const LIBRARY: &str = "SYMMETRA_NVSHMEM_LIBRARY";
const MULTICAST: &str = "NVSHMEM_DISABLE_NVLS";
/// The unit of NVSHMEM's heap, of which memory that is mapped is a multiple: a page of the host device.
const GRANULARITY: (&str, &str) = ("NVSHMEM_CUMEM_GRANULARITY", "4K");

/// The library, compiled once for this process.
fn compiled() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fake.so");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvshmem/fake.cc");
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-shared", "-fPIC", source, "-pthread", "-ldl", "-o"]).arg(&path);
        assert!(command.status().unwrap().success(), "{command:?}");
        (directory, path)
    });
    path
}

/// Ranks with a library in the folder that they share.
struct World(Ranks);

impl World {
    fn start(test: &str, world: usize, part: &str, answers: &str) -> Self {
        Self::start_with(test, world, part, answers, |_| Vec::new())
    }

    /// Starts ranks, each with some variables instead of the defaults.
    fn start_with(
        test: &str,
        world: usize,
        part: &str,
        answers: &str,
        others: impl Fn(usize) -> Vec<(&'static str, &'static str)>,
    ) -> Self {
        let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
        let library = directory.path().join("libnvshmem_host.so.3");
        std::fs::copy(compiled(), &library).unwrap();
        std::fs::write(directory.path().join("answers"), answers).unwrap();
        let usual = [(LIBRARY, library.to_str().unwrap()), (MULTICAST, "1")];
        let variables = |rank: usize| {
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            usual.into_iter().chain(others(rank)).map(owned).collect()
        };
        Self(Ranks::start_in(directory, test, world, part, variables))
    }

    /// The calls of a PE so far, by name.
    fn calls(&self, pe: i32) -> Vec<String> {
        let calls = std::fs::read_to_string(self.0.directory().join("calls")).unwrap_or_default();
        calls.lines().filter_map(|line| line.strip_prefix(&format!("{pe} "))).map(str::to_owned).collect()
    }
}

/// Changes the library's answers from now on.
fn answers(child: &Child, lines: &str) {
    let fresh = child.directory().join(format!("fresh{}", child.rank));
    std::fs::write(&fresh, lines).unwrap();
    std::fs::rename(fresh, child.directory().join("answers")).unwrap();
}

/// Runs `part` in every rank of worlds of these sizes, to its good end.
fn run(test: &str, worlds: &[usize], part: impl Fn(&Child)) {
    if let Some(child) = this() {
        bounded(LIMIT, || part(&child));
        return child.say("done");
    }
    let _alone = alone();
    for &world in worlds {
        let world_of = World::start(test, world, "", "");
        let everyone: Vec<usize> = (0..world).collect();
        world_of.0.expect(&everyone, "done");
        world_of.0.finish(&everyone);
    }
}

fn open(rank: &Rank) -> Result<Session> {
    Session::open(Library::find(None), &rank.communicator)
}

fn value(rank: usize, index: usize) -> i64 {
    (mix((rank * 1_000_003 + index) as u64) >> 8) as i64
}

/// Elements of a part of a message.
const COUNT: usize = 1001;
const INPUT: usize = 37;
const OUTPUT: usize = 5;
const UNTOUCHED: i64 = -77;

#[derive(Clone, Copy, Debug)]
enum Call {
    AllReduce(Algorithm),
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
}

impl Call {
    /// Elements of input and output, in parts of `COUNT`.
    fn parts(self, world: usize) -> [usize; 2] {
        match self {
            Self::AllReduce(_) | Self::Broadcast => [1, 1],
            Self::AllGather => [1, world],
            Self::ReduceScatter => [world, 1],
            Self::AllToAll => [world, world],
        }
    }

    fn enqueue<'op>(
        self,
        communicator: &'op Communicator,
        [from, to]: [AdoptedSlice<'op, i64>; 2],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        match self {
            Self::AllReduce(algorithm) => communicator.all_reduce_with(algorithm, from, to, queue),
            Self::AllGather => communicator.all_gather(from, to, queue),
            Self::ReduceScatter => communicator.reduce_scatter(from, to, Reduction::Sum, queue),
            Self::AllToAll => communicator.all_to_all(from, to, queue),
            Self::Broadcast => communicator.broadcast(to, 1, queue),
        }
    }

    /// The output of a rank.
    fn effect(self, rank: usize, world: usize) -> Vec<i64> {
        let part = |from: usize, number: usize| (0..COUNT).map(move |index| value(from, number * COUNT + index));
        let sum = |number: usize| {
            (0..COUNT).map(move |index| (0..world).map(|from| value(from, number * COUNT + index)).sum())
        };
        match self {
            Self::AllReduce(_) => sum(0).collect(),
            Self::AllGather => (0..world).flat_map(|from| part(from, 0)).collect(),
            Self::ReduceScatter => sum(rank).collect(),
            Self::AllToAll => (0..world).flat_map(|from| part(from, rank)).collect(),
            Self::Broadcast => part(1, 0).collect(),
        }
    }
}

/// Every operation on slices, eager and in graphs, writes the values of a model and nothing outside the slices.
fn operations(rank: &Rank, session: &Session) {
    let Rank { communicator, stream, .. } = rank;
    let (own, world) = (rank.rank(), rank.world());
    let room = world * COUNT + 64;
    let mut filled = vec![UNTOUCHED; room];
    (0..world * COUNT).for_each(|index| filled[INPUT + index] = value(own, index));
    let [input, output] = [0; 2].map(|_| session.symmetric::<i64>(room).unwrap());
    input.write(&filled, stream).unwrap();
    let reduces = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(symmetra::Dtype::I64));
    let others = [Call::AllGather, Call::ReduceScatter, Call::AllToAll, Call::Broadcast];
    for call in reduces.map(Call::AllReduce).chain(others) {
        for captured in [false, true] {
            let [sent, got] = call.parts(world).map(|parts| parts * COUNT);
            let mut expected = vec![UNTOUCHED; room];
            if matches!(call, Call::Broadcast) && own == 1 {
                expected[OUTPUT..OUTPUT + got].copy_from_slice(&filled[INPUT..INPUT + got]);
            }
            output.write(&expected, stream).unwrap();
            communicator.group().barrier().unwrap();
            let slices = || [input.slice(INPUT..INPUT + sent).unwrap(), output.slice(OUTPUT..OUTPUT + got).unwrap()];
            if captured {
                let graph = stream.capture(|capture| call.enqueue(communicator, slices(), capture)).unwrap();
                graph.launch(stream).unwrap();
            } else {
                call.enqueue(communicator, slices(), stream).unwrap();
            }
            rank.finish();
            expected[OUTPUT..OUTPUT + got].copy_from_slice(&call.effect(own, world));
            assert!(output.read(stream).unwrap() == expected, "{call:?}, captured: {captured}");
            assert!(input.read(stream).unwrap() == filled, "{call:?} wrote the input");
        }
    }
}

/// All-reduces of one type by every algorithm, on its memory alone and with symmetric memory on the other side.
fn reductions<T: Sample>(rank: &Rank, session: &Session) {
    const ROOM: usize = 3000;
    let Rank { communicator, stream, .. } = rank;
    let data = Data::<T>::new(91 + T::DTYPE as u64, rank.world(), ROOM);
    let own = &data.inputs[rank.rank()];
    let [input, output] = [0; 2].map(|_| session.symmetric::<T>(ROOM).unwrap());
    let symmetric = communicator.symmetric::<T>(ROOM).unwrap();
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Auto]).filter(|way| way.carries(T::DTYPE)) {
        for (start, count) in [(0, ROOM), (3, 1), (17, 1021)] {
            input.write(own, stream).unwrap();
            symmetric.write(own, stream).unwrap();
            communicator.group().barrier().unwrap();
            let expected = data.expected(algorithm, Reduction::Sum, start, count);
            let options = AllReduceOptions::default().algorithm(algorithm);
            let part = input.slice(start..start + count).unwrap();
            let outcome = output.slice(..count).unwrap();
            communicator.all_reduce_with(options, part, outcome, stream).unwrap();
            communicator.all_reduce_with(options, part, symmetric.slice(..count).unwrap(), stream).unwrap();
            rank.finish();
            let context = (algorithm, start, count, T::DTYPE);
            assert_same(&output.read(stream).unwrap()[..count], &expected, &context);
            assert_same(&symmetric.read(stream).unwrap()[..count], &expected, &context);
        }
    }
}

#[test]
fn collectives_on_its_memory_equal_a_model() {
    let worlds: &[usize] = if full() { &[2, 3, 4, 5, 6, 7, 8] } else { &[2, 3] };
    run("collectives_on_its_memory_equal_a_model", worlds, |child| {
        let rank = child.open(&config());
        let session = open(&rank).unwrap();
        operations(&rank, &session);
        reductions::<f32>(&rank, &session);
        reductions::<bf16>(&rank, &session);
        reductions::<i32>(&rank, &session);
        reductions::<u8>(&rank, &session);
        session.close().unwrap();
        assert_eq!(session.memory_bytes(), 0);
        rank.communicator.clone().close().unwrap();
    });
}

/// The report of a rank about an outcome: `fine`, or the kind and the text of the error.
fn said<T>(outcome: Result<T>) -> String {
    let Err(error) = outcome else { return "fine".to_owned() };
    let kind = format!("{error:?}");
    format!("{}: {error}", kind.split([' ', '{']).next().unwrap())
}

/// Opens a session in every rank, and checks that the report of each rank contains the expected words.
fn refused(
    test: &str,
    answers: &str,
    others: impl Fn(usize) -> Vec<(&'static str, &'static str)>,
    expected: &[&[&str]],
) {
    if let Some(child) = this() {
        bounded(LIMIT, || {
            let rank = child.open(&config());
            child.say(&said(open(&rank)));
            // No other rank is affected.
            rank.communicator.group().barrier().unwrap();
            rank.communicator.clone().close().unwrap();
        });
        return;
    }
    let _alone = alone();
    let world = World::start_with(test, expected.len(), "", answers, others);
    for (rank, words) in expected.iter().enumerate() {
        let said = world.0.hear(rank).words;
        assert!(words.iter().all(|words| said.contains(words)), "rank {rank}: {said}");
    }
    assert!((-1..4).all(|pe| world.calls(pe).is_empty()), "nothing is called before all ranks are admitted");
    world.0.finish(&(0..expected.len()).collect::<Vec<_>>());
}

/// NVSHMEM would use NVLink multicast, unasked.
#[test]
fn multicast_must_be_off_on_every_rank() {
    let on = |rank| if rank == 1 { vec![(MULTICAST, "0")] } else { Vec::new() };
    let reason = "NVSHMEM_DISABLE_NVLS is `0`, and must be 1";
    let expected: [&[&str]; 3] = [&["Peer: rank 1", reason], &["Unsupported", reason], &["Peer: rank 1", reason]];
    refused("multicast_must_be_off_on_every_rank", "", on, &expected);
}

#[test]
fn a_rank_without_the_library_is_named_by_all() {
    let missing = |rank| if rank == 2 { vec![(LIBRARY, "/nowhere/libnvshmem_host.so.3")] } else { Vec::new() };
    let reason = "/nowhere/libnvshmem_host.so.3 cannot be loaded";
    let expected: [&[&str]; 3] = [&["Peer: rank 2", reason], &["Peer: rank 2", reason], &["Unsupported", reason]];
    refused("a_rank_without_the_library_is_named_by_all", "", missing, &expected);
}

#[test]
fn an_old_version_is_refused() {
    let reason = "is version 2.4.5, but it must be 3.0.0 or newer, below 4.0.0";
    let expected: [&[&str]; 2] = [&["Unsupported", reason], &["Unsupported", reason]];
    refused("an_old_version_is_refused", "major: * 2", |_| Vec::new(), &expected);
}

/// Its structures may be others.
#[test]
fn a_version_that_is_not_known_is_refused() {
    let reason = "is version 4.4.5, but it must be 3.0.0 or newer, below 4.0.0";
    let expected: [&[&str]; 2] = [&["Unsupported", reason], &["Unsupported", reason]];
    refused("a_version_that_is_not_known_is_refused", "major: * 4", |_| Vec::new(), &expected);
}

/// Ranks with other versions of the library, each in its own folder.
#[test]
fn versions_that_differ_are_refused() {
    const TEST: &str = "versions_that_differ_are_refused";
    if this().is_some() {
        return refused(TEST, "", |_| Vec::new(), &[]);
    }
    let other = tempfile::tempdir().unwrap();
    let path = other.path().join("libnvshmem_host.so.3");
    std::fs::copy(compiled(), &path).unwrap();
    std::fs::write(other.path().join("answers"), "minor: * 7").unwrap();
    let path: &'static str = path.to_str().unwrap().to_owned().leak();
    let differ = move |rank| if rank == 1 { vec![(LIBRARY, path)] } else { Vec::new() };
    let words: &[&str] = &["Mismatch: ranks 0 and 1 disagree on the version of NVSHMEM: 3.4.5 and 3.7.5"];
    refused(TEST, "", differ, &[words; 2]);
}

#[test]
fn ranks_that_share_a_process_are_refused() {
    let path = compiled().as_os_str();
    threads(2, &config(), |rank| {
        let error = Session::open(Library::find(Some(path)), &rank.communicator).map(drop).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("ranks 0 and 1 are threads of one process"), "{error}");
    });
}

#[test]
fn a_library_without_the_functions_is_refused() {
    let error = Library::find(Some("libc.so.6".as_ref())).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("libc.so.6 lacks a function"), "{error}");
}

/// Checks that an error contains all of `words`.
fn says<T>(outcome: Result<T>, words: &[&str]) {
    let said = said(outcome);
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
}

#[test]
fn what_cannot_be_allocated_leaves_the_session_well() {
    run("what_cannot_be_allocated_leaves_the_session_well", &[3], |child| {
        let rank = child.open(&config());
        let session = open(&rank).unwrap();
        let own = rank.rank();
        // Compared before the allocation.
        let what = "Mismatch: ranks 0 and 2 disagree on the bytes of memory of NVSHMEM: 400 and 404";
        says(session.symmetric::<f32>(if own == 2 { 101 } else { 100 }), &[what]);
        says(session.symmetric::<f32>(if own == 1 { usize::MAX } else { 100 }), &["Mismatch: ranks 0 and 1"]);
        says(session.symmetric::<f32>(usize::MAX), &["InvalidArgument", "the number of elements"]);
        // More than the heap has.
        says(session.symmetric::<u8>(65 << 20), &["OutOfMemory", "68157440 bytes in the heap of NVSHMEM"]);
        assert_eq!(session.memory_bytes(), 0);
        // A pair of ranks that is not connected.
        rank.communicator.group().barrier().unwrap();
        if own == 0 {
            answers(child, "nvshmem_ptr: 1 2");
        }
        rank.communicator.group().barrier().unwrap();
        says(session.symmetric::<f32>(100), &["Unsupported", "NVSHMEM gives rank 1 no address of rank 2's memory"]);
        rank.communicator.group().barrier().unwrap();
        if own == 0 {
            answers(child, "");
        }
        rank.communicator.group().barrier().unwrap();
        // No other rank is affected.
        let empty = session.symmetric::<f32>(0).unwrap();
        assert!(empty.is_empty() && empty.as_raw().is_null());
        operations(&rank, &session);
        drop(empty);
        session.close().unwrap();
        says(session.symmetric::<f32>(1), &["Closed"]);
        says(session.close(), &["Closed"]);
        rank.communicator.clone().close().unwrap();
    });
}

#[test]
fn an_allocation_that_fails_on_one_rank_ends_the_session() {
    const TEST: &str = "an_allocation_that_fails_on_one_rank_ends_the_session";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let rank = child.open(&config());
            let session = open(&rank).unwrap();
            let first = said(session.symmetric::<f32>(100));
            child.say(&first);
            // Nothing of NVSHMEM is called any more.
            assert_eq!(said(session.symmetric::<f32>(100)), first);
            assert_eq!(said(session.reclaim()), first);
            assert_eq!(said(session.close()), first);
            drop(session);
            says(open(&rank), &["it was given up after an error"]);
            // The group goes on.
            rank.communicator.clone().close().unwrap();
        });
    }
    let _alone = alone();
    let world = World::start(TEST, 3, "", "nvshmem_malloc: 1 1");
    let memory = "out of memory: 400 bytes in the heap of NVSHMEM";
    for (rank, kind) in [(0, "Peer: rank 1"), (1, "OutOfMemory"), (2, "Peer: rank 1")] {
        let said = world.0.hear(rank).words;
        assert!(said.starts_with(kind) && said.contains(memory), "rank {rank}: {said}");
    }
    for pe in 0..3 {
        assert_eq!(world.calls(pe), ["nvshmemx_hostlib_init_attr", "nvshmem_malloc"]);
    }
    world.0.finish(&[0, 1, 2]);
}

#[test]
fn an_initialisation_that_fails_is_said_by_all() {
    const TEST: &str = "an_initialisation_that_fails_is_said_by_all";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let rank = child.open(&config());
            child.say(&said(open(&rank)));
            says(open(&rank), &["it was given up after an error"]);
            rank.communicator.clone().close().unwrap();
        });
    }
    let _alone = alone();
    // Every rank's fails: one that does not return would wait for the others.
    let world = World::start(TEST, 2, "", "nvshmemx_hostlib_init_attr: * 4");
    for rank in 0..2 {
        let said = world.0.hear(rank).words;
        assert!(said.starts_with("Device: device error 4: nvshmemx_hostlib_init_attr of NVSHMEM failed"), "{said}");
    }
    world.0.finish(&[0, 1]);
}

/// The library would read and write more of an id of another version than this build has.
#[test]
fn an_id_of_a_version_that_is_not_known_is_said_by_all() {
    const TEST: &str = "an_id_of_a_version_that_is_not_known_is_said_by_all";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let rank = child.open(&config());
            child.say(&said(open(&rank)));
            rank.communicator.clone().close().unwrap();
        });
    }
    let _alone = alone();
    let world = World::start(TEST, 2, "", "id version: * 131200");
    for (rank, kind) in ["Unsupported", "Peer: rank 0"].into_iter().enumerate() {
        let said = world.0.hear(rank).words;
        let reason = "unique ids are of version 0x20080, but they must be 0x10080";
        assert!(said.starts_with(kind) && said.contains(reason), "rank {rank}: {said}");
    }
    assert!((0..2).all(|pe| world.calls(pe).is_empty()), "no processing element was initialised");
    world.0.finish(&[0, 1]);
}

/// The steps of a session, and for each the function of NVSHMEM during which one rank is lost.
const STEPS: [(&str, &str); 4] = [
    ("open", "nvshmemx_hostlib_init_attr"),
    ("allocate", "nvshmem_malloc"),
    ("free", "nvshmem_free"),
    ("close", "nvshmemx_hostlib_finalize"),
];

/// Goes through a session to its end; reports the outcome of the step in which a rank is lost.
fn step(child: &Child, config: &symmetra::Config) {
    let rank = child.open(config);
    let part = child.part.as_str();
    let mut session = None;
    let outcome = open(&rank).map(|open| session = Some(open)).and_then(|()| {
        let session = session.as_ref().unwrap();
        let buffer = session.symmetric::<f32>(100)?;
        drop(buffer);
        if part == "free" { session.reclaim() } else { session.close() }
    });
    child.say(&said(outcome));
    assert_eq!(child.hear(), "go on");
    // Nothing of NVSHMEM is called any more, and nothing waits.
    if let Some(session) = session {
        assert!(session.close().is_err());
    }
    assert!(open(&rank).is_err());
    assert!(rank.communicator.clone().close().is_err());
    child.say("alive");
}

/// The others learn of the death at once, and live.
#[test]
fn pitfall_03_a_rank_is_killed_in_a_call() {
    const TEST: &str = "pitfall_03_a_rank_is_killed_in_a_call";
    if let Some(child) = this() {
        return bounded(LIMIT, || step(&child, &config()));
    }
    let _alone = alone();
    for (part, name) in STEPS {
        let mut world = World::start(TEST, 3, part, &format!("kill {name}: 1 0"));
        for rank in [0, 2] {
            let said = world.0.hear(rank).words;
            assert!(said.starts_with("PeerLost: rank 1 is gone"), "{part}: rank {rank}: {said}");
        }
        assert_eq!(world.calls(1).last().map(String::as_str), Some(name), "{part}");
        let before = [0, 2].map(|pe| world.calls(pe));
        world.0.tell(&[0, 2], "go on");
        world.0.expect(&[0, 2], "alive");
        assert_eq!(before, [0, 2].map(|pe| world.calls(pe)), "{part}: called after the death");
        world.0.finish(&[0, 2]);
    }
}

/// A rank that is stopped in a call is named when the deadline has passed.
#[test]
fn pitfall_06_a_call_ends_at_the_deadline() {
    const TEST: &str = "pitfall_06_a_call_ends_at_the_deadline";
    if let Some(child) = this() {
        let mut config = config();
        config.deadlines.open = Duration::from_secs(6);
        return bounded(LIMIT, || step(&child, &config));
    }
    let _alone = alone();
    let mut world = World::start(TEST, 3, "allocate", "stop nvshmem_malloc: 1 0");
    for rank in [0, 2] {
        let said = world.0.hear(rank).words;
        let right = said.starts_with("Timeout: exchange 0: timed out after") && said.contains("waiting for rank 1");
        assert!(right && said.contains("nvshmem_malloc of rank"), "rank {rank}: {said}");
    }
    world.0.tell(&[0, 2], "go on");
    world.0.expect(&[0, 2], "alive");
    world.0.finish(&[0, 2]);
}

#[test]
fn memory_of_dropped_buffers_is_used_again() {
    run("memory_of_dropped_buffers_is_used_again", &[2], |child| {
        let rank = child.open(&config());
        let session = open(&rank).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let mut addresses = std::collections::BTreeSet::new();
        for round in 0..1000 {
            // 48 of 64 MiB: two do not fit.
            let buffer = session.symmetric::<i32>(12 << 20).unwrap();
            assert_eq!(session.memory_bytes(), 48 << 20);
            addresses.insert(buffer.as_raw() as usize);
            if round % 100 == 0 {
                let part = buffer.slice(..1000).unwrap();
                communicator.all_reduce_with(Algorithm::Auto, part, part, stream).unwrap();
                rank.finish();
            }
        }
        assert_eq!(addresses.len(), 1);
        session.reclaim().unwrap();
        assert_eq!(session.memory_bytes(), 0);
        // One rank keeps its buffer: the memory stays everywhere, and the session cannot be closed.
        let buffer = session.symmetric::<i32>(100).unwrap();
        let kept = (child.rank == 0).then_some(buffer);
        session.reclaim().unwrap();
        assert_eq!(session.memory_bytes(), 400);
        let expected = ["Unsupported: to close a session of NVSHMEM", "Peer: rank 0 failed"][child.rank];
        says(session.close(), &[expected, "buffers of it are still there: 1"]);
        drop(kept);
        session.close().unwrap();
        rank.communicator.clone().close().unwrap();
    });
}

#[test]
fn a_process_has_one_session_at_a_time() {
    run("a_process_has_one_session_at_a_time", &[2], |child| {
        let rank = child.open(&config());
        for _ in 0..5 {
            let session = open(&rank).unwrap();
            says(open(&rank), &["Unsupported: another session of NVSHMEM", "another session joins it"]);
            let joined = Session::join(Library::find(None), &rank.communicator).unwrap();
            says(session.close(), &["Unsupported", "sessions that joined it are still there: 1"]);
            let buffer = joined.symmetric::<i32>(10).unwrap();
            drop(buffer);
            joined.close().unwrap();
            session.close().unwrap();
        }
        says(Session::join(Library::find(None), &rank.communicator), &["Unsupported: to join NVSHMEM"]);
        // A session that is dropped leaves NVSHMEM as it is.
        drop(open(&rank).unwrap());
        says(open(&rank), &["its session was dropped without close()"]);
        rank.communicator.clone().close().unwrap();
    });
}

/// The functions of NVSHMEM that a program calls itself.
struct Program {
    unique_id: unsafe extern "C" fn(*mut u8) -> i32,
    set: unsafe extern "C" fn(i32, i32, *const u8, *mut u64) -> i32,
    init: unsafe extern "C" fn(u32, *mut u64) -> i32,
    malloc: unsafe extern "C" fn(usize) -> *mut i64,
    free: unsafe extern "C" fn(*mut i64),
    finalize: unsafe extern "C" fn(),
}

impl Program {
    fn load() -> Self {
        // SAFETY: the library of this test, which does nothing when it is loaded. It stays loaded.
        let library = unsafe { libloading::Library::new(std::env::var_os(LIBRARY).unwrap()) };
        let library = Box::leak(Box::new(library.unwrap()));
        fn symbol<T: Copy>(library: &libloading::Library, name: &str) -> T {
            // SAFETY: the types are those of `fake.cc`.
            *unsafe { library.get::<T>(name.as_bytes()) }.unwrap()
        }
        Self {
            unique_id: symbol(library, "nvshmemx_get_uniqueid"),
            set: symbol(library, "nvshmemx_set_attr_uniqueid_args"),
            init: symbol(library, "nvshmemx_hostlib_init_attr"),
            malloc: symbol(library, "nvshmem_malloc"),
            free: symbol(library, "nvshmem_free"),
            finalize: symbol(library, "nvshmemx_hostlib_finalize"),
        }
    }

    /// Initialises NVSHMEM, this rank as the processing element `pe`.
    fn start(&self, rank: &Rank, pe: usize) {
        // The sizes and versions of the header, by offset.
        let (mut id, mut attr) = ([0u8; 128], [0u64; 18]);
        let version = |bytes: u64| (1 << 16) + bytes;
        (attr[0], attr[2], attr[3]) = (version(144), version(128), version(24));
        id[..4].copy_from_slice(&(version(128) as i32).to_ne_bytes());
        if rank.rank() == 0 {
            // SAFETY: writes 128 bytes.
            assert_eq!(unsafe { (self.unique_id)(id.as_mut_ptr()) }, 0);
        }
        let id = rank.communicator.group().all_gather_bytes(&id).unwrap().remove(0);
        // SAFETY: reads 128 and writes 144 bytes.
        let set = unsafe { (self.set)(pe as i32, rank.world() as i32, id.as_ptr(), attr.as_mut_ptr()) };
        assert_eq!(set, 0);
        // SAFETY: reads both.
        assert_eq!(unsafe { (self.init)(1 << 3, attr.as_mut_ptr()) }, 0);
    }
}

/// A range of memory of the caller.
fn of(rank: &Rank, address: *mut i64, len: usize) -> symmetra::Ref<'static, i64> {
    // SAFETY: the tests free nothing that they use.
    unsafe { symmetra::Ref::from_raw(&rank.device, address, len) }.unwrap()
}

fn adopt(session: &Session, memory: symmetra::Ref<'static, i64>) -> Result<symmetra::Adopted<'static, i64>> {
    // SAFETY: the tests adopt one allocation of all ranks, or are refused.
    unsafe { session.adopt(memory) }
}

/// The program initialises NVSHMEM with ranks in another order and allocates; a session of all ranks, and one of a part of
/// them.
#[test]
fn a_session_joins_the_programs_nvshmem() {
    run("a_session_joins_the_programs_nvshmem", &[3], |child| {
        let rank = child.open(&config());
        let Rank { communicator, stream, device } = &rank;
        let (own, world) = (rank.rank(), rank.world());
        let program = Program::load();
        program.start(&rank, (own + 1) % world);
        says(open(&rank), &["Unsupported: to initialise NVSHMEM", "a session joins it"]);
        let session = Session::join(Library::find(None), communicator).unwrap();
        operations(&rank, &session);
        // SAFETY: every processing element asks for as many bytes.
        let memory = unsafe { (program.malloc)(8 * COUNT) };
        let adopted = adopt(&session, of(&rank, memory, COUNT)).unwrap();
        let expected: Vec<i64> = (0..COUNT).map(|index| (0..world).map(|from| value(from, index)).sum()).collect();
        for algorithm in [Algorithm::Auto, Algorithm::TwoShotZeroCopy] {
            let filled: Vec<i64> = (0..COUNT).map(|index| value(own, index)).collect();
            adopted.memory().write(&filled, stream).unwrap();
            communicator.group().barrier().unwrap();
            communicator.all_reduce_with(algorithm, &adopted, &adopted, stream).unwrap();
            rank.finish();
            assert!(adopted.memory().read(stream).unwrap() == expected, "{algorithm}");
        }
        // Memory that is not NVSHMEM's, on one rank, or that ends outside the heap.
        let plain = symmetra::DeviceBuffer::<i64>::new(device, COUNT).unwrap();
        let one = of(&rank, if own == 1 { plain.as_raw() } else { memory }, COUNT);
        says(adopt(&session, one), &[if own == 1 { "InvalidArgument" } else { "Peer: rank 1 failed" }]);
        says(adopt(&session, of(&rank, memory, 1 << 40)), &["InvalidArgument", "1099511627776 i64 at"]);
        let shorter = of(&rank, memory, COUNT - own);
        says(adopt(&session, shorter), &["Mismatch: ranks 0 and 1", "1001 i64 and 1000 i64"]);
        assert_eq!(adopt(&session, of(&rank, memory, 0)).unwrap().memory().len(), 0);
        assert!(adopt(&session, of(&rank, std::ptr::null_mut(), 0)).unwrap().memory().is_empty());
        // Ranks 0 and 2 alone reach each other's memory, and cannot allocate.
        if let Some(part) = communicator.split((own != 1).then_some(0), 0).unwrap() {
            let some = Session::join(Library::find(None), &part).unwrap();
            says(some.symmetric::<i64>(1), &["Unsupported", "a call of all 3 processing elements", "has 2 ranks"]);
            adopted.memory().write(&vec![own as i64 + 1; COUNT], stream).unwrap();
            part.group().barrier().unwrap();
            let both = adopt(&some, of(&rank, memory, COUNT)).unwrap();
            part.all_reduce_with(Algorithm::TwoShotZeroCopy, &both, &both, stream).unwrap();
            part.synchronize(stream).unwrap();
            assert!(both.memory().read(stream).unwrap() == vec![4; COUNT]);
            drop(both);
            some.close().unwrap();
            part.close().unwrap();
        }
        drop(adopted);
        session.close().unwrap();
        communicator.group().barrier().unwrap();
        // SAFETY: allocated above; nothing uses the memory any more.
        unsafe { (program.free)(memory) };
        // SAFETY: every processing element ends.
        unsafe { (program.finalize)() };
        rank.communicator.clone().close().unwrap();
    });
}

/// A kernel that uses NVSHMEM's functions reads what a collective wrote into a symmetric buffer.
#[test]
fn symmetric_buffers_are_mapped_into_the_heap() {
    const TEST: &str = "symmetric_buffers_are_mapped_into_the_heap";
    if let Some(child) = this() {
        return bounded(LIMIT, || map(&child));
    }
    let _alone = alone();
    World::start_with(TEST, 2, "", "", |_| vec![GRANULARITY]).0.finish(&[0, 1]);
}

fn map(child: &Child) {
    let rank = child.open(&config());
    let Rank { communicator, stream, .. } = &rank;
    let session = open(&rank).unwrap();
    let buffer = communicator.symmetric::<i64>(COUNT).unwrap();
    let mapped = session.map(communicator).unwrap();
    let address = mapped.address_of(&buffer).unwrap();
    assert_ne!(address, buffer.as_raw());
    buffer.write(&vec![child.rank as i64 + 1; COUNT], stream).unwrap();
    communicator.group().barrier().unwrap();
    communicator.all_reduce_in_place(&buffer, stream).unwrap();
    rank.finish();
    assert!(of(&rank, address, COUNT).read(stream).unwrap() == vec![3; COUNT]);
    assert_eq!(session.memory_bytes(), 0);
    let last = communicator.symmetric::<i64>(3).unwrap();
    let between = last.as_raw() as usize - buffer.as_raw() as usize;
    assert_eq!(mapped.address_of(&last).unwrap() as usize - address as usize, between);
    let other = communicator.split(Some(0), 0).unwrap().unwrap();
    let foreign = other.symmetric::<i64>(1).unwrap();
    says(mapped.address_of(&foreign), &["InvalidArgument", "it is not of the mapped communicator"]);
    says(session.close(), &["Unsupported", "still there: 1"]);
    drop(mapped);
    session.close().unwrap();
    drop((foreign, last));
    other.close().unwrap();
    rank.communicator.clone().close().unwrap();
}

/// NVSHMEM rounds memory up to its granularity, cannot map memory that does not exist, and then unmaps its heap.
#[test]
fn memory_that_nvshmem_would_round_up_is_refused_before_nvshmem_is_called() {
    const TEST: &str = "memory_that_nvshmem_would_round_up_is_refused_before_nvshmem_is_called";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let rank = child.open(&config());
            let session = open(&rank).unwrap();
            child.say(&said(session.map(&rank.communicator).map(drop)));
            // The session is usable.
            drop(session.symmetric::<i64>(COUNT).unwrap());
            session.close().unwrap();
            rank.communicator.clone().close().unwrap();
        });
    }
    let _alone = alone();
    let unset =
        ["Unsupported", "no multiple of NVSHMEM's granularity of 536870912", "NVSHMEM_CUMEM_GRANULARITY=2097152"];
    let other = ["InvalidArgument", "NVSHMEM_CUMEM_GRANULARITY", "half a page"];
    for (part, value, words) in [("unset", None, &unset), ("other", Some("half a page"), &other)] {
        let variables = |_| value.map(|value| (GRANULARITY.0, value)).into_iter().collect();
        let world = World::start_with(TEST, 2, part, "", variables);
        for rank in 0..2 {
            let said = world.0.hear(rank).words;
            assert!(words.iter().all(|word| said.contains(word)), "rank {rank}, {part}: {said}");
            assert!(
                !world.calls(rank as i32).iter().any(|call| call == "nvshmemx_buffer_register_symmetric"),
                "{part}"
            );
        }
        world.0.finish(&[0, 1]);
    }
}

#[test]
fn a_refused_mapping_ends_the_session() {
    const TEST: &str = "a_refused_mapping_ends_the_session";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let rank = child.open(&config());
            let session = open(&rank).unwrap();
            child.say(&said(session.map(&rank.communicator).map(drop)));
            says(session.symmetric::<i64>(1), &["Unsupported", "NVSHMEM refuses to register it"]);
            says(session.close(), &["Unsupported", "NVSHMEM refuses to register it"]);
            rank.communicator.clone().close().unwrap();
        });
    }
    let _alone = alone();
    let world = World::start_with(TEST, 2, "", "nvshmemx_buffer_register_symmetric: * 7", |_| vec![GRANULARITY]);
    for rank in 0..2 {
        let said = world.0.hear(rank).words;
        assert!(
            said.starts_with("Unsupported") && said.contains("NVSHMEM refuses to register it"),
            "rank {rank}: {said}"
        );
        assert_eq!(world.calls(rank as i32).last().map(String::as_str), Some("nvshmemx_buffer_register_symmetric"));
    }
    world.0.finish(&[0, 1]);
}

fn is_refused<T: std::fmt::Debug>(what: &str, outcome: Result<T>) {
    match outcome {
        Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("made before fork()"), "{error}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// `tests/source/forks.rs` reads the names of the types.
#[test]
fn pitfall_33_a_forked_child_is_refused_and_harms_nobody() {
    run("pitfall_33_a_forked_child_is_refused_and_harms_nobody", &[2], |child| {
        let rank = child.open(&config());
        let session = open(&rank).unwrap();
        let buffer = session.symmetric::<i32>(100).unwrap();
        if child.rank == 0 {
            // SAFETY: the child takes no lock that a thread of this process may hold, and ends without a return.
            let forked = unsafe { libc::fork() };
            if forked == 0 {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    is_refused("Session: memory", session.symmetric::<i32>(8));
                    is_refused("Session: close", session.close());
                    let whole = buffer.slice(..).unwrap();
                    is_refused("Buffer: call", rank.communicator.all_reduce_in_place(whole, &rank.stream));
                    // SAFETY: the child's copies, which the child drops alone.
                    drop(unsafe { std::ptr::read(&buffer) });
                    // SAFETY: as above.
                    drop(unsafe { std::ptr::read(&session) });
                }));
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(done.is_err())) };
            }
            let mut status = -1;
            // SAFETY: waits for the child, and writes one number.
            assert_eq!(unsafe { libc::waitpid(forked, &raw mut status, 0) }, forked);
            assert_eq!(status, 0);
        }
        let whole = buffer.slice(..).unwrap();
        rank.communicator.all_reduce_in_place(whole, &rank.stream).unwrap();
        rank.communicator.synchronize(&rank.stream).unwrap();
        drop(buffer);
        session.close().unwrap();
        assert_eq!(session.memory_bytes(), 0);
        rank.communicator.clone().close().unwrap();
    });
}
