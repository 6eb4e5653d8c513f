//! A rank that is killed: the other rank gets an error that names the rank, within a second.

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::library::{self, Id, last_error, ok};
use crate::values::Memory;
use crate::world::{Rank, open, unique_id};

const CASE: &str = "SYMMETRA_TEST_NCCL_KILLED";
const F32: c_int = 7;

fn all_reduce(rank: Rank) -> c_int {
    let mut buffer = Memory::new(F32, &[1.0]);
    library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0)
}

/// The process of rank 1: makes one call and sleeps.
#[test]
fn rank_that_sleeps() {
    let Ok(digits) = std::env::var(CASE) else { return };
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    let id: Id = std::array::from_fn(byte);
    ok(all_reduce(open(id, 1, 2)));
    std::io::stdout().write_all(b"one call is done\n").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_rank_is_named() {
    let id = unique_id();
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "killed::rank_that_sleeps", "--nocapture"]).env(CASE, digits);
    let mut child = process.stdout(Stdio::piped()).spawn().unwrap();
    let rank = open(id, 0, 2);
    ok(all_reduce(rank));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("one call is done")));
    let killed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        child.kill().unwrap();
        let at = Instant::now();
        child.wait().unwrap();
        at
    });
    assert_eq!(all_reduce(rank), 6, "{}", last_error());
    let waited = killed.join().unwrap().elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    let mut code = 0;
    ok(library::ncclCommGetAsyncError(rank.comm, &raw mut code));
    assert_eq!(code, 6);
    assert_eq!(all_reduce(rank), 6);
    assert!(last_error().contains("rank 1 is gone"), "{}", last_error());
    let mut part = 0;
    ok(library::ncclCommShrink(rank.comm, [1].as_ptr(), 1, &raw mut part, std::ptr::null(), 1));
    ok(all_reduce(Rank { comm: part, rank: 0, ranks: 1 }));
    ok(library::ncclCommDestroy(part));
    ok(library::ncclCommAbort(rank.comm));
}
