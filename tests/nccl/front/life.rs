//! Openings in every form, splits, ends in any order, and aborts.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use crate::library::{self, ByValue, Comm, last_error, ok};
use crate::values::Memory;
use crate::world::{Rank, all, open, threads, unique_id};

const F32: c_int = 7;
const IN_PROGRESS: c_int = 7;

fn sum(rank: Rank) -> f64 {
    let mut buffer = Memory::new(F32, &[rank.rank as f64 + 1.0]);
    ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0));
    buffer.values()[0]
}

pub(crate) fn async_error(comm: Comm) -> c_int {
    let mut code = -1;
    ok(library::ncclCommGetAsyncError(comm, &raw mut code));
    code
}

/// The place of a rank by the library's own answers.
pub(crate) fn place(comm: Comm) -> [c_int; 3] {
    let [mut rank, mut count, mut device] = [-1; 3];
    ok(library::ncclCommUserRank(comm, &raw mut rank));
    ok(library::ncclCommCount(comm, &raw mut count));
    ok(library::ncclCommCuDevice(comm, &raw mut device));
    [rank, count, device]
}

/// An `ncclConfig_t` of NCCL 2.28, with one integer set.
pub(crate) fn config(offset: usize, value: i32) -> [u8; 80] {
    let mut config = [0; 80];
    for (at, bytes) in [(0, 80_u64), (32, 0), (48, 0)] {
        config[at..at + 8].copy_from_slice(&bytes.to_ne_bytes());
    }
    config[8..12].copy_from_slice(&0xcafe_beef_u32.to_ne_bytes());
    config[12..16].copy_from_slice(&22_807_i32.to_ne_bytes());
    for at in [16, 20, 24, 28, 40, 44, 56, 60, 64, 68, 72, 76] {
        config[at..at + 4].copy_from_slice(&i32::MIN.to_ne_bytes());
    }
    config[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    config
}

pub(crate) const BLOCKING: usize = 16;
pub(crate) const MAX_CTAS: usize = 28;

#[test]
fn a_rank_knows_its_place() {
    threads(3, |rank| {
        assert_eq!(place(rank.comm), [rank.rank as c_int, 3, 0]);
        assert_eq!(async_error(rank.comm), 0);
        assert_eq!(sum(rank), 6.0);
    });
}

/// The program polls the opening.
#[test]
fn an_opening_that_returns_early() {
    let id = unique_id();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let mut comm = 0;
                let config = config(BLOCKING, 0);
                let code = library::ncclCommInitRankConfig(&raw mut comm, 2, ByValue(id), rank, config.as_ptr());
                assert_eq!(code, IN_PROGRESS, "{}", last_error());
                let start = Instant::now();
                while async_error(comm) == IN_PROGRESS {
                    assert!(start.elapsed() < Duration::from_secs(30));
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(async_error(comm), 0);
                assert_eq!(sum(Rank { comm, rank: rank as usize, ranks: 2 }), 3.0);
                ok(library::ncclCommFinalize(comm));
                ok(library::ncclCommDestroy(comm));
            });
        }
    });
}

/// An operation during the opening is refused. An abort ends the opening for the program.
#[test]
fn an_opening_without_the_other_rank() {
    let id = unique_id();
    let mut comm = 0;
    let config = config(BLOCKING, 0);
    assert_eq!(library::ncclCommInitRankConfig(&raw mut comm, 2, ByValue(id), 0, config.as_ptr()), IN_PROGRESS);
    let mut buffer = Memory::new(F32, &[1.0]);
    assert_eq!(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, comm, 0), 4);
    assert!(last_error().contains("in progress"), "{}", last_error());
    let start = Instant::now();
    ok(library::ncclCommAbort(comm));
    // An opening has minutes; a busy machine may keep a thread from running for longer than a tenth of a second.
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(library::ncclCommAbort(comm), 4, "the handle has ended");
}

/// Parts by color, ordered by key, and a rank without a part.
#[test]
fn splits_of_splits() {
    threads(4, |rank| {
        let mut part = 1;
        let color = if rank.rank == 3 { -1 } else { 5 };
        ok(library::ncclCommSplit(rank.comm, color, -(rank.rank as c_int), &raw mut part, std::ptr::null()));
        if rank.rank == 3 {
            assert_eq!(part, 0);
            return;
        }
        let own = 2 - rank.rank;
        assert_eq!(place(part), [own as c_int, 3, 0]);
        assert_eq!(sum(Rank { comm: part, rank: own, ranks: 3 }), 6.0);
        let mut single = 0;
        ok(library::ncclCommSplit(part, own as c_int, 0, &raw mut single, config(MAX_CTAS, 4).as_ptr()));
        assert_eq!(place(single), [0, 1, 0]);
        assert_eq!(sum(Rank { comm: single, rank: 0, ranks: 1 }), 1.0);
        // The part does not need the communicator that it is of.
        ok(library::ncclCommDestroy(part));
        assert_eq!(sum(Rank { comm: single, rank: 0, ranks: 1 }), 1.0);
        ok(library::ncclCommDestroy(single));
    });
}

/// A communicator of the survivors, which alone call, twice; the excluded rank makes no call.
#[test]
fn shrinks_without_the_excluded_rank() {
    threads(4, |rank| {
        if rank.rank == 1 {
            return;
        }
        for _ in 0..2 {
            let mut part = 0;
            ok(library::ncclCommShrink(rank.comm, [1].as_ptr(), 1, &raw mut part, std::ptr::null(), 0));
            let own = [0, 9, 1, 2][rank.rank];
            assert_eq!(place(part), [own as c_int, 3, 0]);
            assert_eq!(sum(Rank { comm: part, rank: own, ranks: 3 }), 6.0);
            ok(library::ncclCommDestroy(part));
        }
    });
}

/// Two communicators, used in opposite orders by the ranks' sends, and ended in opposite orders.
#[test]
fn ends_in_unlike_order() {
    let ids = [unique_id(), unique_id()];
    std::thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let mut comms: Vec<Rank> = ids.iter().map(|id| open(*id, rank, 2)).collect();
                assert!(comms.iter().all(|comm| sum(*comm) == 3.0));
                if rank == 1 {
                    comms.reverse();
                }
                for comm in comms {
                    ok(library::ncclCommDestroy(comm.comm));
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
}

/// A rank that has ended its communicator is an error of later operations of its peers, not of idle communicators.
#[test]
fn an_idle_communicator_outlives_its_peers() {
    let ranks = all(2);
    ok(library::ncclCommDestroy(ranks[1].comm));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(async_error(ranks[0].comm), 0);
    let mut buffer = Memory::new(F32, &[1.0]);
    assert_eq!(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, ranks[0].comm, 0), 6);
    assert_eq!(async_error(ranks[0].comm), 6);
    assert!(last_error().contains("rank 1"), "{}", last_error());
    ok(library::ncclCommDestroy(ranks[0].comm));
}

/// An abort of another thread ends a call that waits for a peer.
#[test]
fn an_abort_ends_a_wait() {
    let ranks = all(2);
    let waiting = ranks[0].comm;
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut buffer = Memory::new(F32, &[1.0]);
            library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, waiting, 0)
        });
        std::thread::sleep(Duration::from_millis(100));
        ok(library::ncclCommAbort(waiting));
        assert_eq!(waits.join().unwrap(), 6, "{}", last_error());
    });
    ok(library::ncclCommAbort(ranks[1].comm));
}

/// A revoke ends a call under way, and allows no more operations. Splits and shrinks still work.
#[test]
fn a_revoked_communicator_is_split_and_shrunk() {
    let ranks = all(3);
    let waiting = ranks[0].comm;
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut buffer = Memory::new(F32, &[1.0]);
            library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, waiting, 0)
        });
        std::thread::sleep(Duration::from_millis(50));
        ok(library::ncclCommRevoke(waiting, 0));
        assert_eq!(waits.join().unwrap(), 6, "{}", last_error());
    });
    // The text of the last failure is that of the process.
    let refusals = std::sync::Mutex::new(());
    let run = |rank: &Rank| {
        let comm = rank.comm;
        let one_rank = refusals.lock().unwrap();
        assert_eq!(library::ncclCommRevoke(comm, 1), 4);
        assert!(last_error().contains("the flags of the revoke is 1"), "{}", last_error());
        let expected = if rank.rank == 0 { 4 } else { 0 };
        assert_eq!(library::ncclCommRevoke(comm, 0), expected, "{}", last_error());
        let mut buffer = Memory::new(F32, &[1.0]);
        assert_eq!(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, comm, 0), 5);
        assert!(last_error().contains("revoked"), "{}", last_error());
        assert_eq!(library::ncclCommFinalize(comm), 5);
        if rank.rank == 0 {
            assert_eq!(async_error(comm), 0, "the revoke is no failure");
        }
        drop(one_rank);
        // Ranks 2 and 1, in the order of their keys; then ranks 0 and 2.
        let mut part = 0;
        let (color, key) = if rank.rank == 0 { (-1, 0) } else { (5, -(rank.rank as c_int)) };
        ok(library::ncclCommSplit(comm, color, key, &raw mut part, std::ptr::null()));
        assert_eq!(part == 0, rank.rank == 0);
        if part != 0 {
            assert_eq!(place(part)[..2], [2 - rank.rank as c_int, 2]);
            assert_eq!(sum(Rank { comm: part, rank: rank.rank, ranks: 2 }), 5.0);
            ok(library::ncclCommDestroy(part));
        }
        if rank.rank != 1 {
            ok(library::ncclCommShrink(comm, [1].as_ptr(), 1, &raw mut part, std::ptr::null(), 0));
            assert_eq!(sum(Rank { comm: part, rank: rank.rank, ranks: 2 }), 4.0);
            ok(library::ncclCommDestroy(part));
        }
        ok(library::ncclCommDestroy(comm));
    };
    std::thread::scope(|scope| ranks.iter().for_each(|rank| drop(scope.spawn(|| run(rank)))));
    ok(library::ncclCommRevoke(0, 0));
}

/// Communicators opened and ended one after the other leave neither threads nor memory.
#[test]
fn two_hundred_communicators() {
    let threads_of_process = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let round = || {
        let ranks = all(2);
        std::thread::scope(|scope| {
            ranks.iter().for_each(|rank| drop(scope.spawn(move || assert_eq!(sum(*rank), 3.0))));
        });
        ranks.iter().for_each(|rank| ok(library::ncclCommDestroy(rank.comm)));
    };
    round();
    let before = threads_of_process();
    (0..200).for_each(|_| round());
    let start = Instant::now();
    // Other tests of this process start threads too.
    while threads_of_process() > before + 40 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} threads, {before} before", threads_of_process());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A finalized communicator makes no calls, and may be finalized once.
#[test]
fn after_the_finalize() {
    threads(2, |rank| {
        assert_eq!(sum(rank), 3.0);
        ok(library::ncclCommFinalize(rank.comm));
        let mut buffer = Memory::new(F32, &[1.0]);
        assert_eq!(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0), 5);
        assert!(last_error().contains("finalized"), "{}", last_error());
        assert_eq!(library::ncclCommFinalize(rank.comm), 4);
        assert_eq!(place(rank.comm), [rank.rank as c_int, 2, 0]);
    });
}

/// Memory of the library, freed once, and memory of others.
#[test]
fn memory_of_the_library() {
    let [mut one, mut none] = [0; 2];
    ok(library::ncclMemAlloc(&raw mut one, 1000));
    ok(library::ncclMemAlloc(&raw mut none, 0));
    assert!(one != 0 && none != 0 && one != none);
    threads(2, |rank| {
        let mut handle = 0;
        ok(library::ncclCommRegister(rank.comm, one as *mut _, 1000, &raw mut handle));
        ok(library::ncclCommDeregister(rank.comm, handle));
        assert_eq!(library::ncclCommDeregister(rank.comm, handle), 5);
    });
    ok(library::ncclMemFree(one));
    assert_eq!(library::ncclMemFree(one), 1);
    ok(library::ncclMemFree(none));
    ok(library::ncclMemFree(0));
}
