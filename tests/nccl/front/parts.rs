//! Parts of communicators that the real NCCL serves: parts of one host run on symmetra's kernels. The cases run as those of
//! `forward.rs`; the real library splits when all ranks of the communicator call.

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::forward::{self, CASE, Real, log_of, served, sum};
use crate::library::{self, ByValue, Comm, Id, last_error, ok};
use crate::life::{BLOCKING, MAX_CTAS, async_error, config, place};
use crate::values::Memory;
use crate::world::unique_id;

/// The id of a case with several processes.
const ID: &str = "SYMMETRA_TEST_NCCL_ID";
/// The most seconds of an opening and a split: a rank that ends leaves the others no longer.
const TIMEOUT: (&str, &str) = ("SYMMETRA_NCCL_TIMEOUT_S", "20");
const LOG: [(&str, &str); 2] = [("SYMMETRA_NCCL_LOG", "calls"), TIMEOUT];
const F32: c_int = 7;
const IN_PROGRESS: c_int = 7;
const NO_PART: c_int = -1;

/// The process of a case.
#[test]
fn case() {
    match std::env::var(CASE).as_deref() {
        Ok("mixed") => mixed(),
        Ok("early") => early(),
        Ok("maker") => maker(),
        Ok("stale") => stale(),
        Ok("killed") => killed(),
        Ok("killed_rank") => killed_rank(),
        Ok("off") => off(),
        Ok("off_rank") => off_rank(),
        Ok("short") => short(),
        Ok("wishes") => wishes(),
        Ok("other_wishes") => other_wishes(),
        Ok(other) => panic!("no case has the name {other}"),
        Err(_) => {}
    }
}

fn run(case: &str, library: &Path, variables: &[(&str, &str)]) -> String {
    log_of(forward::process("parts::case", case), library, variables)
}

fn open(id: Id, rank: usize, ranks: usize) -> Comm {
    let mut comm = 0;
    ok(library::ncclCommInitRank(&raw mut comm, ranks as c_int, ByValue(id), rank as c_int));
    assert_eq!(served(comm), 0, "the real library serves");
    comm
}

fn split(comm: Comm, color: c_int, key: c_int) -> Comm {
    let mut part = 1;
    ok(library::ncclCommSplit(comm, color, key, &raw mut part, std::ptr::null()));
    part
}

/// Sums the part's rank numbers from 1 on. Only a communicator of symmetra sums.
fn check_sum(part: Comm, [rank, ranks]: [usize; 2]) {
    assert_eq!((served(part), &place(part)[..2]), (1, &[rank as c_int, ranks as c_int][..]));
    let mut buffer = Memory::new(F32, &[rank as f64 + 1.0]);
    ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, part, 0));
    assert_eq!(buffer.values()[0], (ranks * (ranks + 1) / 2) as f64);
}

/// Runs `rank` on a thread for each rank.
fn on_threads(ranks: std::ops::Range<usize>, rank: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        let rank = &rank;
        ranks.for_each(|number| drop(scope.spawn(move || rank(number))));
    });
}

/// 22 ranks: two parts of two ranks, which symmetra serves, one of 17 ranks, and a rank without a part. The part of 17 ranks
/// has a part that symmetra serves, too. Then two splits in a group: symmetra cannot open the part of the second one.
fn mixed() {
    let id = unique_id();
    on_threads(0..22, |rank| {
        let comm = open(id, rank, 22);
        let color = match rank {
            0 => NO_PART,
            1..=4 => rank as c_int % 2,
            _ => 7,
        };
        let part = split(comm, color, -(rank as c_int));
        match rank {
            0 => assert_eq!(part, 0),
            1..=4 => {
                check_sum(part, [usize::from(rank < 3), 2]);
                check_sum(split(part, rank as c_int, 0), [0, 1]);
            }
            _ => {
                assert_eq!((served(part), place(part)[..2].to_vec()), (0, vec![21 - rank as c_int, 17]));
                ok(sum(part));
                let color = if rank < 8 { 0 } else { NO_PART };
                let of_part = split(part, color, 0);
                match color {
                    0 => check_sum(of_part, [7 - rank, 3]),
                    _ => assert_eq!(of_part, 0),
                }
            }
        }
        let [mut three, mut unlike] = [0; 2];
        let config = config(MAX_CTAS, rank as c_int + 4);
        let color = |color: c_int, ranks: usize| if rank < ranks { color } else { NO_PART };
        ok(library::ncclGroupStart());
        ok(library::ncclCommSplit(comm, color(2, 3), 0, &raw mut three, std::ptr::null()));
        ok(library::ncclCommSplit(comm, color(3, 2), 0, &raw mut unlike, config.as_ptr()));
        ok(library::ncclGroupEnd());
        match rank {
            0..=2 => check_sum(three, [rank, 3]),
            _ => assert_eq!(three, 0),
        }
        match rank {
            0..=1 => assert_eq!((served(unlike), place(unlike)[..2].to_vec()), (0, vec![rank as c_int, 2])),
            _ => assert_eq!(unlike, 0),
        }
        match rank {
            5 => abort_in_split(comm),
            _ => ok(library::ncclCommDestroy(comm)),
        }
        if part != 0 {
            ok(library::ncclCommDestroy(part));
        }
    });
}

/// An abort ends a split that waits for the other ranks.
fn abort_in_split(comm: Comm) {
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut part = 0;
            library::ncclCommSplit(comm, 0, 0, &raw mut part, std::ptr::null())
        });
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        ok(library::ncclCommAbort(comm));
        assert_eq!(waits.join().unwrap(), 6, "{}", last_error());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    });
}

#[test]
fn parts_of_one_host_run_on_symmetra() {
    let real = Real::new();
    let log = run("mixed", &real.path(), &LOG);
    let lines = [
        "of 2, rank 1, by a split: symmetra serves",
        "the real NCCL serves: 17 ranks are more than 16",
        "the real NCCL serves: symmetra did not open the part",
    ];
    for line in lines {
        assert!(log.contains(line), "{line}: {log}");
    }
    let calls = real.calls();
    let count = |call: &str| calls.iter().filter(|line| line.starts_with(call)).count();
    // Each rank calls each split, with a color for a part that stays with the real library.
    let splits = ["ncclCommSplit 7", "ncclCommSplit 3", "ncclCommSplit -1", "ncclCommSplit"];
    assert_eq!(splits.map(count), [17, 2, 5 + 17 + 22 + 20, 22 + 17 + 22 + 22]);
    assert_eq!([count("ncclAllReduce"), count("ncclCommAbort"), count("ncclCommDestroy")], [17, 1, 21 + 17]);
}

fn wait(comm: Comm) {
    let start = Instant::now();
    while async_error(comm) == IN_PROGRESS {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(async_error(comm), 0, "{}", last_error());
}

/// Openings and splits that return early. A split without the other ranks ends with an abort of the communicator.
fn early() {
    let id = unique_id();
    on_threads(0..19, |rank| {
        let (config, mut comm) = (config(BLOCKING, 0), 0);
        let code = library::ncclCommInitRankConfig(&raw mut comm, 19, ByValue(id), rank as c_int, config.as_ptr());
        assert_eq!(code, IN_PROGRESS);
        wait(comm);
        let mut part = 0;
        let color = c_int::from(rank < 2);
        assert_eq!(library::ncclCommSplit(comm, color, 0, &raw mut part, std::ptr::null()), IN_PROGRESS);
        assert_ne!(part, 0);
        wait(comm);
        wait(part);
        match color {
            1 => check_sum(part, [rank, 2]),
            _ => assert_eq!((served(part), place(part)[1]), (0, 17)),
        }
        if rank == 0 {
            let code = library::ncclCommSplit(comm, 0, 0, &raw mut part, std::ptr::null());
            assert_eq!((code, async_error(comm)), (IN_PROGRESS, IN_PROGRESS));
            assert_eq!(library::ncclCommDestroy(comm), 4, "{}", last_error());
            let start = Instant::now();
            ok(library::ncclCommAbort(comm));
            assert!(start.elapsed() < Duration::from_millis(100));
        }
    });
}

#[test]
fn splits_that_return_early() {
    let real = Real::new();
    run("early", &real.path(), &[TIMEOUT]);
    let calls = real.calls();
    let count = |call: &str| calls.iter().filter(|line| line.starts_with(call)).count();
    assert_eq!([count("ncclCommSplit 0"), count("ncclCommSplit -1")], [17, 2]);
    assert_eq!([count("ncclCommAbort"), count("ncclAllReduce")], [1, 0]);
}

fn id_of(digits: &str) -> Id {
    std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
}

fn digits(id: Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints a line for the process that started this one.
fn print(line: &str) {
    std::io::stdout().write_all(format!("\n=> {line}\n").as_bytes()).unwrap();
}

/// Another process of a case.
fn process(case: &str, id: Option<Id>) -> Command {
    let mut process = forward::process("parts::case", case);
    process.env(ID, id.map(digits).unwrap_or_default());
    process
}

/// Starts a process, and waits for a line that it prints.
fn start(mut process: Command) -> (Child, String) {
    let mut child = process.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.strip_prefix("=> ").map(str::to_owned)).unwrap();
    (child, line)
}

/// A process that makes an id and is no rank.
fn maker() {
    print(&digits(unique_id()));
    std::thread::sleep(Duration::from_secs(60));
}

/// The process that made the id ends after the opening: the real library serves the parts, on all ranks.
fn stale() {
    let (mut maker, id) = start(process("maker", None));
    let id = id_of(&id);
    let comms: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..17).map(|rank| scope.spawn(move || open(id, rank, 17))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    maker.kill().unwrap();
    maker.wait().unwrap();
    for wait in [10, 2] {
        let start = Instant::now();
        on_threads(0..17, |rank| {
            let part = split(comms[rank], rank as c_int % 2, 0);
            assert_eq!((served(part), place(part)[1]), (0, 9 - rank as c_int % 2));
            assert_eq!(place(split(part, 0, 0))[1], place(part)[1]);
        });
        assert!(start.elapsed() < Duration::from_secs(wait), "{:?}", start.elapsed());
    }
}

#[test]
fn parts_after_the_end_of_the_process_that_made_the_id() {
    let log = run("stale", &Real::new().path(), &LOG);
    assert!(log.contains("a communicator by a split: the real NCCL serves"), "{log}");
    assert!(log.contains("the process that made the id has ended"), "{log}");
}

/// Rank 16 of 17 dies during a split.
fn killed() {
    let id = unique_id();
    let process = std::thread::spawn(move || start(process("killed_rank", Some(id))).0);
    let comms: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|rank| scope.spawn(move || open(id, rank, 17))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut process = process.join().unwrap();
    on_threads(0..16, |rank| {
        if rank == 0 {
            std::thread::sleep(Duration::from_millis(300));
            Command::new("kill").args(["-9", &process.id().to_string()]).status().unwrap();
        }
        let mut part = 1;
        let code = library::ncclCommSplit(comms[rank], c_int::from(rank < 2), 0, &raw mut part, std::ptr::null());
        assert_eq!((code, part), (6, 0), "{}", last_error());
        assert!(last_error().contains("rank 16"), "{}", last_error());
    });
    process.wait().unwrap();
}

fn killed_rank() {
    let comm = open(id_of(&std::env::var(ID).unwrap()), 16, 17);
    print("open");
    split(comm, 0, 0);
}

#[test]
fn a_rank_that_is_killed_during_a_split() {
    let real = Real::new();
    let start = Instant::now();
    run("killed", &real.path(), &[TIMEOUT]);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(!real.calls().iter().any(|call| call.starts_with("ncclCommSplit")), "no rank waits in the real library");
}

/// A rank that refuses symmetra keeps its own part with the real library, and no other part.
fn off() {
    let id = unique_id();
    let mut process = process("off_rank", Some(id)).env("SYMMETRA_NCCL_SERVE", "off").spawn().unwrap();
    on_threads(0..2, |rank| {
        let comm = open(id, rank, 3);
        check_sum(split(comm, 0, 0), [rank, 2]);
        let part = split(comm, c_int::from(rank == 0), 0);
        match rank {
            0 => check_sum(part, [0, 1]),
            _ => assert_eq!((served(part), place(part)[1]), (0, 2)),
        }
    });
    assert!(process.wait().unwrap().success());
}

fn off_rank() {
    let comm = open(id_of(&std::env::var(ID).unwrap()), 2, 3);
    assert_eq!(served(split(comm, 1, 0)), 0);
    assert_eq!(place(split(comm, 0, 0))[..2], [1, 2]);
}

#[test]
fn parts_without_a_rank_that_refuses_symmetra() {
    let real = Real::new();
    let log = run("off", &real.path(), &LOG);
    assert!(log.contains("by a split: the real NCCL serves: SYMMETRA_NCCL_SERVE is off on rank 1"), "{log}");
    assert_eq!(real.calls().iter().filter(|call| call.starts_with("ncclCommSplit -1")).count(), 3);
}

/// Two ranks with unlike wishes: more texts, and limits of blocks. The communicator, its parts and a part with a config of its
/// own take the stricter of both.
fn wishes() {
    let id = unique_id();
    let mut process =
        process("other_wishes", Some(id)).env("NCCL_MAX_CTAS", "4").env_remove("NCCL_DEBUG").spawn().unwrap();
    with_wishes(id, 0);
    assert!(process.wait().unwrap().success());
}

fn other_wishes() {
    with_wishes(id_of(&std::env::var(ID).unwrap()), 1);
}

fn with_wishes(id: Id, rank: usize) {
    let mut comm = 0;
    ok(library::ncclCommInitRank(&raw mut comm, 2, ByValue(id), rank as c_int));
    check_sum(comm, [rank, 2]);
    check_sum(split(comm, 0, 0), [rank, 2]);
    let (mut part, config) = (0, config(MAX_CTAS, 8 - rank as i32));
    ok(library::ncclCommSplit(comm, 0, 0, &raw mut part, config.as_ptr()));
    check_sum(part, [rank, 2]);
    ok(library::ncclCommRevoke(comm, 0));
    check_sum(split(comm, 0, 0), [rank, 2]);
    ok(library::ncclCommSplit(comm, 0, 0, &raw mut part, config.as_ptr()));
    check_sum(part, [rank, 2]);
}

#[test]
fn ranks_with_unlike_wishes() {
    run("wishes", &Real::new().path(), &[TIMEOUT, ("NCCL_DEBUG", "INFO")]);
}

/// A part of the real library that lacks a rank, for example one that lost the meeting, is no part.
fn short() {
    let id = unique_id();
    on_threads(0..17, |rank| {
        let (comm, mut part) = (open(id, rank, 17), 1);
        let code = library::ncclCommSplit(comm, 0, 0, &raw mut part, std::ptr::null());
        assert_eq!((code, part), (6, 0));
        assert!(last_error().contains("the part of the real NCCL has 16 ranks: 17 ranks have its color"));
    });
}

#[test]
fn a_part_that_lacks_a_rank_is_aborted() {
    let real = Real::new();
    real.answer("count 16");
    run("short", &real.path(), &[TIMEOUT]);
    assert_eq!(real.calls().iter().filter(|call| *call == "ncclCommAbort").count(), 17);
}
