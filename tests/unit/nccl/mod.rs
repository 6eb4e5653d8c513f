//! The life of a communicator, over a fake library with NCCL's functions and no devices (`tests/nccl/fake.cc`).

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::opening::meet;
use super::session::{NcclSession, RankOfWorld};
use super::{Communicator, Library, UniqueId, Window};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

const ENOUGH: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(80);
const PLACE: RankOfWorld = RankOfWorld { rank: 1, world_size: 4 };

/// A fake library in its own folder.
pub(crate) struct Fake(TempDir);

impl Fake {
    pub(crate) fn new(flags: &[&str]) -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nccl/fake.cc");
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-shared", "-fPIC", source, "-o"]).arg(fake.path()).args(flags);
        assert!(command.status().unwrap().success(), "{command:?}");
        fake
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("libnccl.so.2")
    }

    fn library(&self) -> Result<Library> {
        Library::find(DeviceKind::Cuda, Some(self.path().as_os_str()))
    }

    /// Sets the return values of its functions from now on.
    pub(crate) fn answers(&self, lines: &str) {
        let fresh = self.0.path().join("fresh");
        std::fs::write(&fresh, lines).unwrap();
        std::fs::rename(fresh, self.0.path().join("answers")).unwrap();
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.0.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Fails unless the calls become `expected`: another thread aborts, which may take a while.
    fn made<'a>(&self, expected: impl AsRef<[&'a str]>) {
        let expected = expected.as_ref();
        self.wait_for(|calls| calls == expected);
        assert_eq!(self.calls(), expected);
    }

    /// Waits until the calls are `so`, and fails after a deadline.
    fn wait_for(&self, so: impl Fn(&[String]) -> bool) {
        let start = Instant::now();
        while !so(&self.calls()) && start.elapsed() < ENOUGH {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn open(&self, limit: Duration) -> Result<NcclSession> {
        let id = UniqueId::from_bytes(&[b'x'; UniqueId::BYTES]);
        NcclSession::open(&self.library()?, &Device::host()?, PLACE, id, limit)
    }

    pub(crate) fn communicator(&self, limit: Duration) -> Result<Communicator> {
        self.open(limit).map(|session| Communicator(session.into()))
    }
}

const JOINED: &str = "ncclCommInitRankConfig 1 of 4 by x, not blocking";

/// Whether an error is NCCL's own, with this code and all of `words`.
fn is_nccl(error: &Error, expected: i32, words: &[&str]) -> bool {
    let text = error.to_string();
    matches!(error, Error::Nccl { code, .. } if *code == expected) && words.iter().all(|word| text.contains(word))
}

#[test]
fn it_opens_works_and_ends_in_order() {
    let fake = Fake::new(&[]);
    let library = fake.library().unwrap();
    assert_eq!(library.version().to_string(), "2.28.9");
    assert_eq!(library.name(), format!("NCCL 2.28.9, {}", fake.path().display()));
    let session = fake.open(ENOUGH).unwrap();
    session.check().unwrap();
    session.finish().unwrap();
    assert_eq!(session.check(), Err(Error::Closed));
    drop(session);
    fake.made([JOINED, "ncclCommFinalize", "ncclCommDestroy"]);
}

#[test]
fn what_goes_on_in_the_background_is_waited_for() {
    let fake = Fake::new(&[]);
    fake.answers("ncclCommInitRankConfig 7\nncclCommFinalize 7\nstate 7\n");
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            fake.answers("ncclCommFinalize 7\n");
        });
        let session = fake.open(ENOUGH).unwrap();
        assert!(start.elapsed() >= SHORT);
        session.finish().unwrap();
    });
    fake.made([JOINED, "ncclCommFinalize", "ncclCommDestroy"]);
}

#[test]
fn pitfall_06_what_does_not_end_is_aborted_at_the_deadline() {
    let fake = Fake::new(&[]);
    fake.answers("ncclCommInitRankConfig 7\nstate 7\n");
    let error = fake.open(SHORT).map(drop).unwrap_err();
    let Error::Timeout { waited, .. } = &error else { panic!("{error:?}") };
    assert!(*waited >= SHORT && *waited < ENOUGH, "{waited:?}");
    let words = format!(": ncclCommInitRankConfig of rank 1 of 4, in NCCL 2.28.9, {}", fake.path().display());
    assert!(error.to_string().ends_with(&words), "{error}");
    fake.made([JOINED, "ncclCommAbort"]);

    // Once at the end of an open communicator, once in an operation.
    for what in ["ncclCommFinalize", "ncclAllReduce"] {
        let fake = Fake::new(&[]);
        let session = fake.open(SHORT).unwrap();
        fake.answers(&format!("{what} 7\nstate 7\n"));
        let error = match what {
            "ncclAllReduce" => all_reduce(&session).unwrap_err(),
            _ => session.finish().unwrap_err(),
        };
        assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains(what), "{error}");
        assert_eq!(session.check(), Err(error.clone()));
        assert_eq!(session.finish(), Err(error));
        drop(session);
        fake.made([JOINED, what, "ncclCommAbort"]);
    }
}

fn all_reduce(session: &NcclSession) -> Result<()> {
    let call = session.library.symbols().ncclAllReduce;
    let none = std::ptr::null_mut();
    // SAFETY: the fake library uses none of these.
    #[allow(unsafe_code)]
    session.call("ncclAllReduce", |comm| unsafe { call(none, none, 0, 0, 0, comm, none) })
}

#[test]
fn pitfall_01_what_fails_in_the_background_ends_it_for_good() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    all_reduce(&session).unwrap();
    fake.answers("state 6\n");
    let error = session.check().unwrap_err();
    let path = fake.path().display().to_string();
    let words = ["an operation: remote process exited (what came last)", "NCCL 2.28.9", &path];
    assert!(is_nccl(&error, 6, &words), "{error}");
    fake.answers("");
    assert_eq!(session.check(), Err(error.clone()));
    assert_eq!(all_reduce(&session), Err(error.clone()));
    assert_eq!(session.finish(), Err(error));
    drop(session);
    fake.made([JOINED, "ncclAllReduce", "ncclCommAbort"]);
}

#[test]
fn calls_that_fail_say_which_and_abort() {
    for (answers, expected, calls) in [
        ("ncclCommInitRankConfig 2\n", 2, &[JOINED, "ncclCommAbort"][..]),
        ("ncclCommInitRankConfig 5\n", 5, &[JOINED, "ncclCommAbort"]),
        ("ncclCommInitRankConfig 7\nstate 3\n", 3, &[JOINED, "ncclCommAbort"]),
        ("ncclCommInitRankConfig 7\nncclCommGetAsyncError 3\n", 3, &[JOINED, "ncclCommAbort"]),
        ("ncclCommInitRankConfig 1\nno_handle 1\n", 1, &[JOINED]),
        ("no_handle 1\n", 0, &[JOINED]),
    ] {
        let fake = Fake::new(&[]);
        fake.answers(answers);
        let error = fake.open(ENOUGH).map(drop).unwrap_err();
        assert!(is_nccl(&error, expected, &["ncclComm", "in NCCL 2.28.9"]), "{answers}: {error}");
        fake.made(calls);
    }
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    fake.answers("ncclAllReduce 4\n");
    assert!(is_nccl(&all_reduce(&session).unwrap_err(), 4, &["ncclAllReduce"]));
    fake.answers("");
    all_reduce(&session).unwrap();
    fake.answers("ncclAllReduce 1\n");
    let error = all_reduce(&session).unwrap_err();
    assert!(is_nccl(&error, 1, &["ncclAllReduce"]), "{error}");
    let aborted = session.abort(Error::Closed);
    assert_eq!(aborted, error, "the first end counts");
    fake.made([JOINED, "ncclAllReduce", "ncclAllReduce", "ncclAllReduce", "ncclCommAbort"]);
}

#[test]
fn pitfall_03_aborted_from_another_thread_while_it_waits() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    fake.answers("ncclAllReduce 7\nstate 7\n");
    let start = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| all_reduce(&session));
        while !fake.calls().contains(&"ncclAllReduce".to_owned()) {
            assert!(start.elapsed() < ENOUGH);
            std::thread::yield_now();
        }
        let error = Error::Aborted { detail: String::new() };
        assert_eq!(session.abort(error.clone()), error);
        assert_eq!(waiting.join().unwrap(), Err(error));
    });
    assert!(start.elapsed() < ENOUGH);
    fake.made([JOINED, "ncclAllReduce", "ncclCommAbort"]);
}

fn sum(communicator: &Communicator) -> Result<()> {
    let (none, stream) = (std::ptr::null_mut(), Stream::new(&Device::host()?)?);
    // SAFETY: the fake library uses none of these.
    #[allow(unsafe_code)]
    unsafe {
        communicator.all_reduce(none, none, 0, Dtype::F32, Reduction::Sum, &stream)
    }
}

const SUM_IN_GROUP: &str = "ncclAllReduce in a group";

#[test]
fn a_group_is_closed_whatever_fails_in_it() {
    for (code, aborted) in [(1, true), (4, false)] {
        let fake = Fake::new(&[]);
        let communicator = fake.communicator(ENOUGH).unwrap();
        fake.answers(&format!("ncclAllReduce {code}\n"));
        let error = communicator.group(|| sum(&communicator).and_then(|()| sum(&communicator))).unwrap_err();
        assert!(is_nccl(&error, code, &["ncclAllReduce"]), "{error}");
        fake.answers("");
        assert_eq!(sum(&communicator), if aborted { Err(error) } else { Ok(()) });
        let last = if aborted { "ncclCommAbort" } else { "ncclAllReduce" };
        fake.made([JOINED, "ncclGroupStart", SUM_IN_GROUP, "ncclGroupEnd", last]);
    }
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(ENOUGH).unwrap();
    let panics = std::panic::AssertUnwindSafe(|| communicator.group(|| panic!("in a group")));
    assert!(std::panic::catch_unwind(panics).is_err());
    sum(&communicator).unwrap();
    fake.made([JOINED, "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce"]);
}

#[test]
fn pitfall_03_an_abort_waits_for_the_end_of_a_group() {
    // By another thread.
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(ENOUGH).unwrap();
    std::thread::scope(|scope| {
        let grouped = communicator.group(|| {
            scope.spawn(|| communicator.abort());
            std::thread::sleep(SHORT);
            sum(&communicator)
        });
        grouped.unwrap();
    });
    assert!(matches!(communicator.check(), Err(Error::Aborted { .. })));
    fake.made([JOINED, "ncclGroupStart", SUM_IN_GROUP, "ncclGroupEnd", "ncclCommAbort"]);

    // By the group's own thread.
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(ENOUGH).unwrap();
    let grouped = communicator.group(|| {
        communicator.abort();
        sum(&communicator)
    });
    assert!(matches!(grouped, Err(Error::Aborted { .. })), "{grouped:?}");
    assert_eq!(communicator.check(), grouped);
    fake.made([JOINED, "ncclGroupStart", "ncclGroupEnd", "ncclCommAbort"]);
}

/// The calls of a group go on in the background after the group's end.
#[test]
fn a_group_is_waited_for_at_its_end() {
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(SHORT).unwrap();
    fake.answers("ncclAllReduce 7\nncclGroupEnd 7\nstate 7\n");
    let error = communicator.group(|| sum(&communicator).and_then(|()| sum(&communicator))).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains("ncclGroupEnd"), "{error}");
    let calls = [JOINED, "ncclGroupStart", SUM_IN_GROUP, SUM_IN_GROUP, "ncclGroupEnd", "ncclCommAbort"];
    fake.made(calls);
}

#[test]
fn windows_are_registered_and_given_back() {
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(ENOUGH).unwrap();
    drop(Window::new(&communicator, 100).unwrap());
    fake.answers("ncclCommWindowRegister 4\n");
    let error = Window::new(&communicator, 100).unwrap_err();
    assert!(is_nccl(&error, 4, &["ncclCommWindowRegister"]), "{error}");
    let calls = ["ncclMemAlloc", "ncclCommWindowRegister", "ncclCommWindowDeregister", "ncclMemFree"];
    assert_eq!(fake.calls()[1..], [&calls[..], &[calls[0], calls[1], calls[3]]].concat());
    fake.answers("");
    communicator.close().unwrap();
}

#[test]
fn what_a_window_that_is_given_up_was_to_have_is_left_to_nccl() {
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(SHORT).unwrap();
    fake.answers("ncclCommWindowRegister 7\nstate 7\n");
    let error = Window::new(&communicator, 100).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(communicator.close(), Err(error));
    fake.made([JOINED, "ncclMemAlloc", "ncclCommWindowRegister", "ncclCommAbort"]);
}

/// NCCL's abort waits for graphs that hold its operations; the caller may own them.
#[test]
fn pitfall_03_an_abort_does_not_wait_for_graphs() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    fake.answers("graphs 1\n");
    let start = Instant::now();
    let error = session.abort(Error::Closed);
    assert_eq!((session.check(), all_reduce(&session)), (Err(error.clone()), Err(error)));
    drop(session);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    fake.made([JOINED, "ncclCommAbort"]);
    fake.answers("");
}

/// Libraries release what an abort uses when the process ends.
#[test]
fn pitfall_03_the_end_of_the_process_waits_for_aborts() {
    const LIBRARY: &str = "SYMMETRA_TEST_NCCL_LIBRARY";
    if let Some(path) = std::env::var_os(LIBRARY) {
        let library = Library::find(DeviceKind::Cuda, Some(&path)).unwrap();
        let id = UniqueId::from_bytes(&[b'x'; UniqueId::BYTES]);
        let session = NcclSession::open(&library, &Device::host().unwrap(), PLACE, id, ENOUGH).unwrap();
        session.abort(Error::Closed);
        return;
    }
    for dropped in [true, false] {
        let fake = Fake::new(&[]);
        fake.answers("graphs 1\n");
        let name = "nccl::tests::pitfall_03_the_end_of_the_process_waits_for_aborts";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args([name, "--exact"]).env(LIBRARY, fake.path()).spawn().unwrap();
        let start = Instant::now();
        while !fake.calls().contains(&"ncclCommAbort".to_owned()) {
            assert!(start.elapsed() < ENOUGH);
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(child.try_wait().unwrap(), None, "the abort goes on");
        if dropped {
            fake.answers("");
        }
        assert!(child.wait().unwrap().success());
        assert!(start.elapsed() < ENOUGH);
        let gone = if dropped { &["graphs are gone"][..] } else { &[] };
        fake.made([&[JOINED, "ncclCommAbort"], gone].concat());
    }
}

/// Waits for a kernel that ends only when it is aborted.
fn watch(fake: &Fake, session: &NcclSession, limit: Duration, well: impl Fn() -> Result<()>) -> Result<()> {
    let late = |waited| Error::exchange_timeout(Some(2), waited, "a kernel");
    session.watch(limit, || Ok(fake.calls().contains(&"ncclCommAbort".to_owned())), well, late)
}

#[test]
fn pitfall_04_a_kernel_that_does_not_end_is_aborted_at_the_deadline() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    all_reduce(&session).unwrap();
    let error = watch(&fake, &session, SHORT, || Ok(())).unwrap_err();
    let Error::Timeout { waited, rank: Some(2), .. } = &error else { panic!("{error:?}") };
    assert!(*waited >= SHORT && *waited < ENOUGH, "{waited:?}");
    assert_eq!((session.check(), all_reduce(&session)), (Err(error.clone()), Err(error.clone())));
    drop(session);
    fake.made([JOINED, "ncclAllReduce", "ncclCommAbort"]);
}

#[test]
fn pitfall_01_a_kernel_is_aborted_when_the_group_or_nccl_or_the_stream_fails() {
    let lost = Error::PeerLost { rank: 3, detail: String::new() };
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    let looks = std::cell::Cell::new(0);
    let well = || {
        looks.set(looks.get() + 1);
        if looks.get() < 3 { Ok(()) } else { Err(lost.clone()) }
    };
    let start = Instant::now();
    assert_eq!(watch(&fake, &session, ENOUGH, well), Err(lost.clone()));
    assert_eq!(session.check(), Err(lost));
    fake.made([JOINED, "ncclCommAbort"]);

    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    fake.answers("state 6\n");
    let error = watch(&fake, &session, ENOUGH, || Ok(())).unwrap_err();
    assert!(is_nccl(&error, 6, &["remote process exited"]), "{error}");
    fake.made([JOINED, "ncclCommAbort"]);

    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    let broken = Error::Device { code: 700, message: "a kernel".to_owned() };
    let late = |waited| Error::exchange_timeout(None, waited, "a kernel");
    assert_eq!(session.watch(ENOUGH, || Err(broken.clone()), || Ok(()), late), Err(broken));
    fake.made([JOINED, "ncclCommAbort"]);
    assert!(start.elapsed() < ENOUGH);
}

#[test]
fn pitfall_03_a_wait_for_a_kernel_ends_when_another_thread_aborts() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    let error = Error::Aborted { detail: String::new() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watch(&fake, &session, ENOUGH, || Ok(())));
        std::thread::sleep(SHORT);
        assert_eq!(session.abort(error.clone()), error);
        assert_eq!(waiting.join().unwrap(), Err(error.clone()));
    });
    fake.made([JOINED, "ncclCommAbort"]);
}

#[test]
fn a_kernel_that_ends_is_waited_for_and_nothing_is_aborted() {
    let fake = Fake::new(&[]);
    let session = fake.open(ENOUGH).unwrap();
    let start = Instant::now();
    let late = |waited| Error::exchange_timeout(None, waited, "a kernel");
    session.watch(ENOUGH, || Ok(start.elapsed() >= SHORT), || Ok(()), late).unwrap();
    assert!(start.elapsed() >= SHORT && start.elapsed() < ENOUGH);
    session.finish().unwrap();
    fake.made([JOINED, "ncclCommFinalize", "ncclCommDestroy"]);
}

#[test]
fn what_is_no_library_of_use_is_named() {
    let missing = Library::find(DeviceKind::Cuda, Some(OsStr::new("/nowhere/libnccl.so.2"))).unwrap_err();
    let words = missing.to_string();
    assert!(words.starts_with("NCCL is not supported: /nowhere/libnccl.so.2 cannot be loaded: "), "{words}");
    let other = Library::find(DeviceKind::Hip, Some(OsStr::new("libc.so.6"))).unwrap_err().to_string();
    assert!(other.starts_with("RCCL is not supported: libc.so.6 lacks a function: "), "{other}");
    assert!(other.contains("ncclGetVersion"), "{other}");
    let cpu = Library::find(DeviceKind::Host, None).unwrap_err();
    assert!(matches!(cpu, Error::Unsupported { .. }), "{cpu}");
    // Without a path all usual places are searched; on a machine with RCCL this finds it.
    if let Err(error) = Library::find(DeviceKind::Hip, None) {
        let words = error.to_string();
        assert!(words.contains("no librccl.so.1 or librccl.so of a vendor"), "{words}");
    }

    let fake = Fake::new(&["-DWITHOUT_FINALIZE"]);
    let lacks = fake.library().unwrap_err().to_string();
    assert!(lacks.contains(&fake.path().display().to_string()) && lacks.contains("ncclCommFinalize"), "{lacks}");
    // The version is reported also for a library that lacks newer functions.
    fake.answers("version 2708\n");
    let old = fake.library().unwrap_err().to_string();
    assert!(old.contains("is version 2.7.8, but it must be 2.14.0 or newer"), "{old}");
}

#[test]
fn a_library_that_serves_the_names_with_symmetra_is_not_used() {
    let front = Fake::new(&["-Wl,--defsym=symmetra_nccl_front=ncclGetVersion"]);
    // The search goes on, and may find the library of another test or of the machine.
    match front.library() {
        Ok(library) => assert!(!library.name().contains(&front.path().display().to_string()), "{library:?}"),
        Err(error) => assert!(error.to_string().contains("no libnccl.so.2 or libnccl.so of a vendor"), "{error}"),
    }
    assert_eq!(front.calls(), [""; 0]);
}

fn everybody(libraries: Vec<Result<Library>>, limit: Duration) -> Vec<Result<()>> {
    let world_size = libraries.len();
    let (told, all_told) = (Mutex::new(vec![Vec::new(); world_size]), Barrier::new(world_size));
    let exchange = |rank: usize, bytes: &[u8]| {
        told.lock().unwrap()[rank] = bytes.to_vec();
        all_told.wait();
        let all = told.lock().unwrap().clone();
        all_told.wait();
        Ok(all)
    };
    let run = |rank: usize, library: Result<Library>| {
        let place = RankOfWorld { rank, world_size };
        meet(library, &Device::host()?, place, limit, &mut |bytes| exchange(rank, bytes))?.finish()
    };
    std::thread::scope(|scope| {
        let ranks = libraries.into_iter().enumerate();
        let ranks: Vec<_> = ranks.map(|(rank, library)| scope.spawn(move || run(rank, library))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_agree_on_an_identity() {
    let fakes = [Fake::new(&[]), Fake::new(&[]), Fake::new(&[])];
    let outcomes = everybody(fakes.iter().map(Fake::library).collect(), ENOUGH);
    assert_eq!(outcomes, [Ok(()), Ok(()), Ok(())]);
    for (rank, fake) in fakes.iter().enumerate() {
        let joined = format!("ncclCommInitRankConfig {rank} of 3 by i, not blocking");
        let calls = fake.calls();
        let begin = usize::from(rank == 0);
        assert_eq!(calls[begin..], [joined.as_str(), "ncclCommFinalize", "ncclCommDestroy"], "rank {rank}");
        assert_eq!(calls[..begin], ["ncclGetUniqueId"][..begin]);
    }
}

#[test]
fn pitfall_05_one_rank_cannot_take_part() {
    // Without the library.
    let fakes = [Fake::new(&[]), Fake::new(&[])];
    let missing = Library::find(DeviceKind::Cuda, Some(OsStr::new("/nowhere/libnccl.so.2")));
    let outcomes = everybody(vec![fakes[0].library(), missing], ENOUGH);
    assert!(
        matches!(&outcomes[0], Err(Error::Peer { rank: 1, message }) if message.contains("/nowhere")),
        "{outcomes:?}"
    );
    assert!(matches!(&outcomes[1], Err(Error::Unsupported { .. })), "{outcomes:?}");
    fakes[0].made(["ncclGetUniqueId"]);

    // With another version.
    fakes[1].answers("version 22000\n");
    let outcomes = everybody(fakes.iter().map(Fake::library).collect(), ENOUGH);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), "ranks 0 and 1 disagree on the version of NCCL: 2.28.9 and 2.20.0");
    }

    // One rank does not finish closing: the others leave as well.
    let fakes = [Fake::new(&[]), Fake::new(&[])];
    fakes[0].answers("ncclCommInitRankConfig 7\nstate 7\n");
    let outcomes = everybody(fakes.iter().map(Fake::library).collect(), SHORT);
    assert!(matches!(&outcomes[0], Err(Error::Timeout { .. })), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(Error::Peer { rank: 0, .. })), "{outcomes:?}");
    let aborted = |calls: &[String]| calls.last().is_some_and(|call| call == "ncclCommAbort");
    fakes.iter().for_each(|fake| fake.wait_for(aborted));
    assert!(fakes.iter().all(|fake| aborted(&fake.calls())));
}

#[test]
fn ranks_on_the_cpu_are_refused_by_all() {
    let fake = Fake::new(&[]);
    let exchange = Mutex::new(0);
    let opened = Communicator::open(fake.library(), &Device::host().unwrap(), 0, 1, ENOUGH, |bytes| {
        *exchange.lock().unwrap() += 1;
        Ok(vec![bytes.to_vec()])
    });
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("NCCL on Device(host")), "{error}");
    assert_eq!((*exchange.lock().unwrap(), fake.calls()), (1, vec![]), "the others were told");
}

fn is_refused<T: std::fmt::Debug>(what: &str, outcome: Result<T>) {
    match outcome {
        Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("made before fork()"), "{error}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// `tests/source/forks.rs` reads the name of the type.
#[test]
#[allow(unsafe_code)]
fn pitfall_33_a_forked_child_is_refused_and_harms_nobody() {
    let fake = Fake::new(&[]);
    let communicator = fake.communicator(ENOUGH).unwrap();
    // SAFETY: the child takes no lock that a thread of this process may hold, and ends without a return.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            is_refused("Communicator: check", communicator.check());
            is_refused("Communicator: finish", communicator.finish());
            communicator.abort();
            // SAFETY: the child's copy, which the child drops alone.
            drop(unsafe { std::ptr::read(&communicator) });
        }));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = -1;
    // SAFETY: waits for the child, and writes one number.
    assert_eq!(unsafe { libc::waitpid(forked, &raw mut status, 0) }, forked);
    assert_eq!(status, 0);
    fake.made([JOINED]);
    communicator.check().unwrap();
    communicator.finish().unwrap();
    fake.made([JOINED, "ncclCommFinalize", "ncclCommDestroy"]);
}
