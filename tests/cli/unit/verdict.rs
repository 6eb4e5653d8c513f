//! Tests of `crates/cli/src/launch/verdict.rs`, whose module they are.

use super::*;

const INTERRUPT: i32 = 2;
const KILL: i32 = 9;
const TERMINATE: i32 = 15;

/// A process that ended with this status.
fn status(code: i32) -> std::io::Result<ExitStatus> {
    Ok(ExitStatus::from_raw(code << 8))
}

/// A process that this signal killed.
fn killed(signal: i32) -> std::io::Result<ExitStatus> {
    Ok(ExitStatus::from_raw(signal))
}

fn of(verdict: LaunchVerdict) -> (String, u8) {
    let failure = verdict.failure().unwrap();
    (failure.message().unwrap(), failure.code())
}

#[test]
fn a_rank_that_failed_by_itself_comes_before_ranks_that_saw_it_fail() {
    let mut verdict = LaunchVerdict::default();
    assert_eq!(verdict.end(1, status(1), true).unwrap(), "rank 1 ended with status 1");
    assert!(verdict.any() && !verdict.has_cause());
    verdict.end(3, status(1), true);
    verdict.end(0, status(101), false);
    assert!(verdict.has_cause());
    verdict.send(TERMINATE);
    verdict.end(2, killed(TERMINATE), false);
    let words = "rank 0 ended with status 101; then ranks 1 and 3 ended with status 1, \
                 rank 2 was killed by SIGTERM of this command";
    assert_eq!(of(verdict), (words.to_owned(), 101));
}

/// All ranks saw another fail, such as a rank that hangs: the first is named, also if another rank had to be ended.
#[test]
fn the_first_of_those_that_saw_another_fail_comes_before_those_that_were_ended() {
    let mut verdict = LaunchVerdict::default();
    verdict.end(2, status(3), true);
    verdict.end(1, status(4), true);
    verdict.send(TERMINATE);
    verdict.end(0, status(5), false);
    let words = "rank 2 ended with status 3; then rank 1 ended with status 4, rank 0 ended with status 5";
    assert_eq!(of(verdict), (words.to_owned(), 3));
}

#[test]
fn ranks_that_a_signal_ended_alike_are_one_failure() {
    let mut verdict = LaunchVerdict::default();
    verdict.send(INTERRUPT);
    assert_eq!(verdict.end(0, status(0), false), None);
    for rank in [3, 1, 2] {
        verdict.end(rank, killed(INTERRUPT), false);
    }
    assert_eq!(of(verdict), ("ranks 1, 2 and 3 were killed by SIGINT of this command".to_owned(), 130));
}

#[test]
fn a_signal_of_others_is_named_as_such() {
    let mut verdict = LaunchVerdict::default();
    verdict.end(0, killed(KILL), false);
    verdict.send(TERMINATE);
    verdict.end(1, Err(std::io::Error::other("no child")), false);
    let words = "rank 0 was killed by SIGKILL; then rank 1 ended in an unknown way (no child)";
    assert_eq!(of(verdict), (words.to_owned(), 137));
}

#[test]
fn ranks_that_succeed_are_no_failure() {
    let mut verdict = LaunchVerdict::default();
    verdict.send(TERMINATE);
    verdict.end(0, status(0), true);
    assert!(!verdict.any() && verdict.failure().is_none());
}
