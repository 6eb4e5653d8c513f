//! Which library serves a communicator, and what goes on to the real NCCL: a library with NCCL's names and no devices, which
//! records the calls (`tests/nccl/fake.cc`). Each case runs in a process of its own, because a process reads the variables
//! once and loads one real library.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::bad_input;
use crate::library::{self, ByValue, Comm, last_error, ok};
use crate::values::Memory;
use crate::world::unique_id;

pub(crate) const CASE: &str = "SYMMETRA_TEST_NCCL_CASE";
const F32: c_int = 7;

/// The real library of a test.
pub(crate) struct Real(TempDir);

impl Real {
    pub(crate) fn new() -> Self {
        static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
        let folder = TempDir::new().unwrap();
        let built = BUILT.get_or_init(|| {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/nccl/fake.cc");
            let file = folder.path().join("built.so");
            let mut compiler = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
            compiler.args(["-std=c++17", "-shared", "-fPIC", "-pthread", source, "-o"]).arg(&file);
            assert!(compiler.status().unwrap().success());
            std::fs::read(file).unwrap()
        });
        std::fs::write(folder.path().join("libnccl.so.2"), built).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("libnccl.so.2")
    }

    /// Sets the answer of a function.
    pub(crate) fn answer(&self, line: &str) {
        std::fs::write(self.0.path().join("answers"), line).unwrap();
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The process of a case: `test` runs the case that the variable names.
pub(crate) fn process(test: &str, case: &str) -> Command {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]).env(CASE, case);
    process
}

/// Runs a case in a process with variables, and returns its log.
fn run(case: &str, library: &Path, variables: &[(&str, &str)]) -> String {
    log_of(process("forward::case", case), library, variables)
}

/// Runs a process with variables, and returns its log.
pub(crate) fn log_of(mut process: Command, library: &Path, variables: &[(&str, &str)]) -> String {
    process.env("SYMMETRA_NCCL_LIBRARY", library);
    let output = process.envs(variables.iter().copied()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}{}", String::from_utf8_lossy(&output.stdout));
    log
}

/// The process of a case.
#[test]
fn case() {
    match std::env::var(CASE).as_deref() {
        Ok("foreign") => foreign(),
        Ok("foreign_steps") => foreign_steps(),
        Ok("seventeen") => seventeen(),
        Ok("unserved") => unserved(),
        Ok("absent") => absent(),
        Ok(other) => panic!("no case has the name {other}"),
        Err(_) => {}
    }
}

pub(crate) fn served(comm: Comm) -> c_int {
    library::symmetra_nccl_served(comm)
}

pub(crate) fn sum(comm: Comm) -> c_int {
    let mut buffer = Memory::new(F32, &[1.0]);
    library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, comm, 0)
}

/// An id of the real library, or `SYMMETRA_NCCL_SERVE=off`: every call goes on, groups once.
fn foreign() {
    let id = unique_id();
    assert_eq!(id, [b'i'; 128]);
    let mut comm = 0;
    ok(library::ncclCommInitRank(&raw mut comm, 1, ByValue(id), 0));
    assert_eq!(served(comm), 0);
    ok(library::ncclGroupStart());
    ok(library::ncclGroupStart());
    ok(sum(comm));
    ok(sum(comm));
    ok(library::ncclGroupEnd());
    ok(library::ncclGroupEnd());
    ok(sum(comm));
    let mut part = 0;
    ok(library::ncclCommSplit(comm, 5, -2, &raw mut part, std::ptr::null()));
    assert_eq!(served(part), 0);
    ok(library::ncclCommDestroy(comm));
}

#[test]
fn without_service_every_call_goes_to_the_real_library() {
    let real = Real::new();
    run("foreign", &real.path(), &[("SYMMETRA_NCCL_SERVE", "off")]);
    assert_eq!(
        real.calls(),
        [
            "ncclGetUniqueId",
            "ncclCommInitRankConfig 0 of 1 by i, without a config",
            "ncclGroupStart",
            "ncclAllReduce in a group",
            "ncclAllReduce in a group",
            "ncclGroupEnd",
            "ncclAllReduce",
            "ncclCommSplit 5 by -2",
            "ncclCommDestroy",
        ]
    );
}

/// Steps of all ranks of a communicator of the real library belong to the group of the real library, which runs them together.
fn foreign_steps() {
    let mut comms = [0; 2];
    ok(library::ncclCommInitAll(comms.as_mut_ptr(), 2, std::ptr::null()));
    assert_eq!((served(comms[1]), library::team_world(comms[1])), (0, library::Team([2, 1, 1])));
    assert_eq!((library::team_world(0), library::ncclLLA2ACalcSlots(16, 3)), (library::Team([0; 3]), 48));
    let mut version = 0;
    ok(library::ncclGetVersion(&raw mut version));
    assert_eq!(version, 22_999);
    let mut comm = 0;
    ok(library::ncclCommInitRank(&raw mut comm, 1, ByValue(unique_id()), 0));
    let (mut part, mut window, mut memory, mut buffer) = (0, 0, 0, Memory::new(F32, &[1.0]));
    ok(library::ncclMemAlloc(&raw mut memory, 64));
    ok(library::ncclMemFree(memory));
    ok(library::ncclGroupStart());
    ok(library::ncclCommSplit(comm, 5, 0, &raw mut part, std::ptr::null()));
    ok(library::ncclCommWindowRegister(comm, buffer.start(), 4, &raw mut window, 0));
    ok(library::ncclGroupEnd());
    ok(library::ncclGroupStart());
    ok(sum(comm));
    ok(library::ncclGroupSimulateEnd(std::ptr::null_mut()));
    // A config of a later version: the real library gets the bytes that this library knows, and their number.
    let mut config = [0_u8; 200];
    config[..96].copy_from_slice(&bad_input::config(200, 0xcafe_beef, &[]));
    ok(library::ncclCommInitRankConfig(&raw mut comm, 1, ByValue(unique_id()), 0, config.as_ptr()));
}

#[test]
fn steps_of_all_ranks_are_in_the_group_of_the_real_library() {
    let real = Real::new();
    real.answer("version 22999");
    run("foreign_steps", &real.path(), &[("SYMMETRA_NCCL_SERVE", "off")]);
    assert_eq!(
        real.calls(),
        [
            "ncclCommInitAll of 2",
            "ncclGetUniqueId",
            "ncclCommInitRankConfig 0 of 1 by i, without a config",
            "ncclMemAlloc",
            "ncclMemFree",
            "ncclGroupStart",
            "ncclCommSplit 5 by 0 in a group",
            "ncclCommWindowRegister in a group",
            "ncclGroupEnd",
            "ncclGroupStart",
            "ncclAllReduce in a group",
            "ncclGroupSimulateEnd",
            "ncclGetUniqueId",
            "ncclCommInitRankConfig 0 of 1 by i, a config of 96 bytes",
        ]
    );
}

#[test]
fn ids_of_a_variable_go_to_the_real_library() {
    let real = Real::new();
    run("foreign", &real.path(), &[("NCCL_COMM_ID", "127.0.0.1:29500")]);
    assert!(real.calls().contains(&"ncclCommInitRankConfig 0 of 1 by i, without a config".to_owned()));
}

/// 17 ranks are more than symmetra serves. The ranks meet, and the real library opens by an id of rank 0.
fn seventeen() {
    let id = unique_id();
    std::thread::scope(|scope| {
        for rank in 0..17 {
            scope.spawn(move || {
                let mut comm = 0;
                ok(library::ncclCommInitRank(&raw mut comm, 17, ByValue(id), rank));
                assert_eq!(served(comm), 0);
                ok(sum(comm));
                ok(library::ncclCommDestroy(comm));
                assert_eq!(sum(comm), 4, "the handle has ended");
            });
        }
    });
}

#[test]
fn the_real_library_serves_seventeen_ranks() {
    let real = Real::new();
    let log = run("seventeen", &real.path(), &[("SYMMETRA_NCCL_LOG", "calls")]);
    assert!(log.contains("the real NCCL serves: 17 ranks are more than 16"), "{log}");
    let calls = real.calls();
    let count = |call: &str| calls.iter().filter(|line| line.starts_with(call)).count();
    assert_eq!([count("ncclGetUniqueId"), count("ncclCommInitRankConfig"), count("ncclAllReduce")], [1, 17, 17]);
    assert_eq!(count("ncclCommDestroy"), 17);
}

/// With `SYMMETRA_NCCL_SERVE=only` the real library serves nothing, and all ranks get the reason.
fn unserved() {
    let id = unique_id();
    std::thread::scope(|scope| {
        for rank in 0..17 {
            scope.spawn(move || {
                let mut comm = 0;
                assert_eq!(library::ncclCommInitRank(&raw mut comm, 17, ByValue(id), rank), 5);
                assert_eq!(comm, 0);
            });
        }
    });
    assert!(last_error().contains("17 ranks are more than 16"), "{}", last_error());
}

#[test]
fn ranks_that_accept_no_other_library() {
    let real = Real::new();
    run("unserved", &real.path(), &[("SYMMETRA_NCCL_SERVE", "only")]);
    assert_eq!(real.calls(), [""; 0]);
}

/// Without a real library, an id of one is refused with a text.
fn absent() {
    let mut comm = 0;
    assert_eq!(library::ncclCommInitRank(&raw mut comm, 1, ByValue([b'i'; 128]), 0), 5);
    assert!(last_error().contains("the real NCCL"), "{}", last_error());
    assert_eq!(sum(0x1001), 5, "{}", last_error());
}

#[test]
fn without_a_real_library() {
    let folder = TempDir::new().unwrap();
    run("absent", &folder.path().join("libnccl.so.2"), &[]);
}

/// The library itself is not the real one.
#[test]
fn the_library_does_not_find_itself() {
    run("absent", &library::path(), &[]);
}
