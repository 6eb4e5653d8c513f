//! Windows: registrations of all ranks, calls inside, and their ends.

use std::ffi::c_int;
use std::process::Command;

use crate::library::{self, Comm, last_error, ok};
use crate::world::{Rank, all, threads};

const F32: c_int = 7;
const SYMMETRIC: c_int = 1;
/// Elements of the memory of a rank.
const ELEMS: usize = 300_000;

/// Memory of the library for `ELEMS` elements.
fn allocate() -> usize {
    let mut memory = 0;
    ok(library::ncclMemAlloc(&raw mut memory, ELEMS * 4));
    memory
}

fn register_as(comm: Comm, address: usize, bytes: usize, flags: c_int) -> usize {
    let mut window = 1;
    ok(library::ncclCommWindowRegister(comm, address as *mut _, bytes, &raw mut window, flags));
    window
}

fn register(comm: Comm, address: usize, bytes: usize) -> usize {
    register_as(comm, address, bytes, SYMMETRIC)
}

fn deregister(comm: Comm, window: usize) -> c_int {
    library::ncclCommWindowDeregister(comm, window)
}

/// Sums elements of the memory in place, and checks them.
fn check_sum(Rank { comm, rank, ranks }: Rank, memory: usize, first: usize, count: usize) {
    let elements = unsafe { std::slice::from_raw_parts_mut(memory as *mut f32, ELEMS) };
    elements.iter_mut().enumerate().for_each(|(index, element)| *element = (rank + index % 7) as f32);
    let at = (memory + first * 4) as *mut _;
    ok(library::ncclAllReduce(at, at, count, F32, 0, comm, 0));
    let own = ranks * (ranks - 1) / 2;
    let expected = |index: usize| match (first..first + count).contains(&index) {
        true => (own + ranks * (index % 7)) as f32,
        false => (rank + index % 7) as f32,
    };
    let elements = unsafe { std::slice::from_raw_parts(memory as *const f32, ELEMS) };
    assert_eq!(elements.iter().enumerate().position(|(index, element)| *element != expected(index)), None);
}

/// Calls inside a window, at its start or not, and on memory that reaches beyond.
#[test]
fn calls_on_memory_of_windows() {
    threads(3, |rank| {
        let memory = allocate();
        let window = register(rank.comm, memory, ELEMS * 2);
        assert!(window > 1, "all ranks can share the memory");
        let mut address = 0;
        ok(library::ncclWinGetUserPtr(rank.comm, window, &raw mut address));
        assert_eq!(address, memory);
        for (first, count) in [(0, 1), (0, ELEMS / 2), (3, 1000), (ELEMS / 2 - 1, 1000), (ELEMS / 2, ELEMS / 2)] {
            check_sum(rank, memory, first, count);
        }
        let mut pointer = 0;
        assert_eq!(library::ncclGetLsaDevicePointer(window, 0, 0, &raw mut pointer), 5);
        assert!(last_error().contains("no device pointers"), "{}", last_error());
        ok(deregister(rank.comm, window));
        check_sum(rank, memory, 0, ELEMS);
        ok(library::ncclMemFree(memory));
    });
}

/// A range that is registered again, also as a part of a window, needs no memory: the window ends with its last
/// registration. Each registration ends once.
#[test]
fn registrations_of_a_window_are_counted() {
    threads(2, |rank| {
        let memory = allocate();
        let windows = [(0, ELEMS * 4), (0, ELEMS * 4), (400, 800)]
            .map(|(offset, bytes)| register(rank.comm, memory + offset, bytes));
        assert!(windows.iter().all(|window| *window > 1));
        let mut address = 0;
        ok(library::ncclWinGetUserPtr(rank.comm, windows[2], &raw mut address));
        assert_eq!(address, memory + 400);
        for window in windows {
            check_sum(rank, memory, 50, 5000);
            ok(deregister(rank.comm, window));
            assert_eq!(deregister(rank.comm, window), 4, "a registration ends once");
            assert_eq!(library::ncclWinGetUserPtr(rank.comm, window, &raw mut address), 4);
        }
        check_sum(rank, memory, 50, 5000);
        ok(deregister(rank.comm, 0));
        ok(library::ncclMemFree(memory));
    });
}

/// The shortest range of the ranks is shared. A rank without bytes is a failure on all ranks.
#[test]
fn sizes_that_differ() {
    threads(3, |rank| {
        let memory = allocate();
        let mut window = 1;
        let bytes = if rank.rank == 1 { 0 } else { 64 };
        let empty = library::ncclCommWindowRegister(rank.comm, memory as *mut _, bytes, &raw mut window, SYMMETRIC);
        assert_eq!((empty, window), (4, 0));
        assert!(last_error().contains("the size of rank 1's window is 0"), "{}", last_error());
        let window = register(rank.comm, memory, (rank.rank + 1) * 1000);
        assert!(window > 1);
        check_sum(rank, memory, 0, 250);
        check_sum(rank, memory, 0, ELEMS);
        let without_effect = register_as(rank.comm, memory, 100, 0);
        assert!(without_effect > 1);
        ok(deregister(rank.comm, without_effect));
        ok(deregister(rank.comm, window));
        ok(library::ncclMemFree(memory));
    });
}

/// Programs free memory with its window alive, and get the address again.
#[test]
fn memory_freed_with_its_window() {
    threads(2, |rank| {
        let mut stale = Vec::new();
        for round in 0..20 {
            let memory = allocate();
            stale.push(register(rank.comm, memory, ELEMS * 4));
            check_sum(rank, memory, round, 100_000);
            ok(library::ncclMemFree(memory));
        }
        assert!(stale.iter().all(|window| *window > 1));
        stale.iter().for_each(|window| ok(deregister(rank.comm, *window)));
    });
}

/// A window that overlaps with an earlier one, on some ranks alone, replaces the earlier one on all ranks.
#[test]
fn a_window_replaces_those_that_it_overlaps_with() {
    threads(2, |rank| {
        let [memory, other] = [(); 2].map(|()| allocate());
        let first = register(rank.comm, memory, ELEMS * 2);
        let later = if rank.rank == 0 { memory + ELEMS } else { other };
        let second = register(rank.comm, later, ELEMS * 2);
        assert!(first > 1 && second > 1);
        check_sum(rank, memory, 0, ELEMS / 4);
        check_sum(rank, other, 5, ELEMS / 2);
        ok(deregister(rank.comm, first));
        ok(deregister(rank.comm, second));
        [memory, other].iter().for_each(|memory| ok(library::ncclMemFree(*memory)));
    });
}

/// One thread registers the memory of all ranks in a group, before the calls of the group.
#[test]
fn windows_of_a_group() {
    let ranks = all(3);
    let memory = [(); 3].map(|()| allocate());
    let mut windows = [[1; 2]; 3];
    ok(library::ncclGroupStart());
    for ((rank, memory), windows) in ranks.iter().zip(&memory).zip(&mut windows) {
        for (part, window) in windows.iter_mut().enumerate() {
            let at = (memory + part * ELEMS * 2) as *mut _;
            ok(library::ncclCommWindowRegister(rank.comm, at, ELEMS * 2, window, SYMMETRIC));
            assert_eq!(*window, 0, "a window is known when the group ends");
        }
    }
    ok(library::ncclGroupEnd());
    assert!(windows.iter().flatten().all(|window| *window > 1), "{windows:?}");
    std::thread::scope(|scope| {
        for ((rank, memory), windows) in ranks.iter().zip(memory).zip(windows) {
            scope.spawn(move || {
                check_sum(*rank, memory, ELEMS / 2, ELEMS / 4);
                windows.iter().for_each(|window| ok(deregister(rank.comm, *window)));
                ok(library::ncclCommDestroy(rank.comm));
                ok(library::ncclMemFree(memory));
            });
        }
    });
}

const ALONE: &str = "SYMMETRA_TEST_NCCL_WINDOWS_ALONE";

/// Memory and descriptors of a process stay while ranks register and deregister. The process has no other tests.
#[test]
fn registrations_leave_nothing() {
    if std::env::var_os(ALONE).is_none() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "windows::registrations_leave_nothing", "--nocapture"]).env(ALONE, "1");
        let output = process.output().unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success() && texts[0].contains("1 passed"), "{texts:?}");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let resident_pages = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let ranks = all(2);
    let memory = [(); 2].map(|()| allocate());
    let rounds = |count: usize| {
        std::thread::scope(|scope| {
            for (rank, memory) in ranks.iter().zip(memory) {
                scope.spawn(move || {
                    for _ in 0..count {
                        let window = register(rank.comm, memory, ELEMS * 4);
                        assert!(window > 1);
                        ok(deregister(rank.comm, window));
                    }
                });
            }
        });
    };
    rounds(50);
    let before = [descriptors(), resident_pages()];
    rounds(ROUNDS);
    let after = [descriptors(), resident_pages()];
    assert!(after[0] <= before[0] + 2, "{} descriptors, then {}", before[0], after[0]);
    assert!(after[1] <= before[1] + 500, "{} pages, then {}", before[1], after[1]);
    ranks.iter().for_each(|rank| ok(library::ncclCommDestroy(rank.comm)));
}

/// Registrations of `registrations_leave_nothing`.
const ROUNDS: usize = 1000;
