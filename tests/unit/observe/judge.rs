//! Tests of `src/observe/judge.rs`, whose module they are.

use super::*;
use crate::observe::{ObservedCall, ProcessState};

/// An idle rank that has made three calls and as many exchanges.
fn idle(rank: usize) -> ObservedRank {
    ObservedRank {
        rank,
        world_rank: None,
        process: 100 + rank as u32,
        process_state: ProcessState::Running,
        host: "here".to_owned(),
        device: Some("host"),
        state: RankState::Idle,
        enqueued: 3,
        pairs: 0,
        ended: Some(3),
        host_calls: 3,
        call: None,
        wait: None,
        gave_up: None,
        detail: None,
    }
}

fn waiting(rank: usize, place: WaitPlace, call: Option<u64>, ranks: &[usize]) -> ObservedRank {
    let operation = if place == WaitPlace::Kernel { "all-reduce" } else { "barrier" }.to_owned();
    let wait = ObservedWait { place, operation, call, ranks: ranks.to_vec(), seconds: 1.0 + rank as f64 };
    let call =
        call.map(|number| ObservedCall { number, operation: "all-gather", bytes: 8, dtype: "f32", algorithm: None });
    ObservedRank { state: RankState::Waiting, enqueued: 4, host_calls: 4, wait: Some(wait), call, ..idle(rank) }
}

fn in_state(state: RankState, rank: ObservedRank) -> ObservedRank {
    ObservedRank { state, ..rank }
}

fn judged(ranks: &mut [ObservedRank], world_size: usize) -> (String, Vec<usize>) {
    let verdict = judge(ranks, world_size, false);
    (verdict.words, verdict.culprits)
}

#[test]
fn the_rank_that_has_not_made_the_call_is_named() {
    let mut ranks = [0, 1, 2].map(|rank| waiting(rank, WaitPlace::Kernel, Some(3), &[(rank + 1) % 4]));
    let mut ranks = [&mut ranks[..], &mut [idle(3)]].concat();
    let verdict = judge(&mut ranks, 4, false);
    assert_eq!(verdict.words, "rank 3 has not made all-gather 3, for which 3 ranks have waited 3.0 s");
    assert_eq!((verdict.culprits, verdict.waiting, verdict.seconds, verdict.broken), (vec![3], 3, 3.0, false));
    ranks[3] = in_state(RankState::Stopped, idle(3));
    let verdict = judge(&mut ranks, 4, false);
    assert!(
        verdict.words.starts_with("rank 3 (process 103 is stopped) has not made all-gather 3"),
        "{}",
        verdict.words
    );
    assert!(verdict.broken);
    ranks[3] = ObservedRank { process_state: ProcessState::Unseen, ..idle(3) };
    let words = judge(&mut ranks, 4, false).words;
    assert!(
        words.starts_with("rank 3 (process 103 is in a PID namespace that is not visible) has not made"),
        "{words}"
    );
}

/// Ranks that wait for each other in a ring: the rank at the end of the chain, which does not wait, is named.
#[test]
fn a_rank_that_has_made_the_call_is_named_by_the_chain() {
    let mut ranks = [0, 1].map(|rank| waiting(rank, WaitPlace::Kernel, Some(3), &[rank + 1])).to_vec();
    ranks.push(ObservedRank { enqueued: 4, ..in_state(RankState::Dead, idle(2)) });
    let words = "2 ranks have waited 2.0 s in all-gather 3 for rank 2 (process 102 has ended)".to_owned();
    assert_eq!(judged(&mut ranks, 3), (words, vec![2]));
    // A circle, in which no rank is to blame.
    let mut ranks = [0, 1].map(|rank| waiting(rank, WaitPlace::Kernel, None, &[1 - rank]));
    assert_eq!(judged(&mut ranks, 2), ("2 ranks have waited 2.0 s in all-reduce for rank 0".to_owned(), vec![0]));
}

#[test]
fn exchanges_wait_for_the_ranks_that_have_not_begun_them() {
    let mut ranks = [waiting(0, WaitPlace::Host, None, &[]), idle(1), waiting(2, WaitPlace::Host, None, &[])];
    let words = "rank 1 has not made the exchange `barrier`, for which 2 ranks have waited 3.0 s".to_owned();
    assert_eq!(judged(&mut ranks, 3), (words, vec![1]));
    assert_eq!(ranks[2].wait.as_ref().unwrap().ranks, [1]);
    // All have begun it.
    ranks[1] = in_state(RankState::Stopped, ObservedRank { host_calls: 4, ..idle(1) });
    let words = "2 ranks have waited 3.0 s in the exchange `barrier` for rank 1 (process 101 is stopped)".to_owned();
    assert_eq!(judged(&mut ranks, 3), (words, vec![1]));
    // A rank that has left does not begin it.
    ranks[1] = in_state(RankState::Left, idle(1));
    assert_eq!(judged(&mut ranks, 3), ("2 ranks have waited 3.0 s in the exchange `barrier`".to_owned(), vec![]));
}

#[test]
fn ranks_that_have_not_begun_to_open_are_named() {
    let mut ranks = [in_state(RankState::Opening, waiting(1, WaitPlace::Open, None, &[]))];
    let words = "ranks 0, 2 and 3 have not begun to open the group, for which rank 1 has waited 2.0 s".to_owned();
    assert_eq!(judged(&mut ranks, 4), (words, vec![0, 2, 3]));
    // Ranks of other hosts are not visible, and may wait as long.
    let verdict = judge(&mut ranks, 4, true);
    let words = "rank 1 has waited 2.0 s in open; ranks 0, 2 and 3 are not on this host, or not started";
    assert_eq!((verdict.words.as_str(), verdict.culprits), (words, Vec::new()));
}

#[test]
fn groups_without_waits_are_described() {
    let of =
        |ranks: &mut [ObservedRank]| (judge(ranks, ranks.len(), false).words, judge(ranks, ranks.len(), false).broken);
    assert_eq!(of(&mut [idle(0)]), ("1 rank is idle".to_owned(), false));
    assert_eq!(of(&mut [idle(0), in_state(RankState::Left, idle(1))]), ("1 rank is idle".to_owned(), false));
    assert_eq!(of(&mut [in_state(RankState::Left, idle(0))]), ("all ranks have left".to_owned(), false));
    let mut busy = [idle(0), in_state(RankState::InCall, idle(1))];
    assert_eq!(of(&mut busy), ("2 ranks, 1 with calls that may be in progress; no rank waits".to_owned(), false));
    let mut stopped = [idle(0), in_state(RankState::Stopped, idle(1))];
    assert_eq!(of(&mut stopped), ("rank 1 is stopped; no rank waits".to_owned(), true));
    let mut dead = [idle(0), in_state(RankState::Dead, idle(1))];
    assert_eq!(of(&mut dead), ("rank 1 (process 101 has ended): ended without leaving the group".to_owned(), true));
    let failed = ObservedRank { detail: Some("rank 1 is gone".to_owned()), ..in_state(RankState::Failed, idle(0)) };
    let words = "the group has failed: rank 1 is gone; rank 1 (process 101 has ended)".to_owned();
    assert_eq!(of(&mut [failed, in_state(RankState::Dead, idle(1))]), (words, true));
}

/// The waits in which the devices gave up follow the failure, in the words of waits in progress.
#[test]
fn a_failed_group_has_the_wait_in_which_its_devices_gave_up() {
    let gave_up = |rank: usize| {
        let waited = waiting(rank, WaitPlace::Kernel, Some(3), &[2]);
        let detail = Some("rank 2 is late".to_owned());
        ObservedRank { state: RankState::Failed, gave_up: waited.wait.clone(), wait: None, detail, ..waited }
    };
    let mut ranks = [gave_up(0), gave_up(1), in_state(RankState::Stopped, idle(2))];
    let verdict = judge(&mut ranks, 3, false);
    let waited = "rank 2 (process 102 is stopped) has not made all-gather 3, for which 2 ranks have waited 2.0 s";
    assert_eq!(verdict.words, format!("the group has failed: rank 2 is late; {waited}"));
    assert_eq!((verdict.culprits, verdict.waiting, verdict.broken), (vec![2], 0, true));
    assert_eq!(last_wait(&ranks), Some((waited.to_owned(), vec![2])));
    // A dead rank is named once, and so is a dead rank for which no device waited.
    ranks[2].state = RankState::Dead;
    let waited = waited.replace("is stopped", "has ended");
    assert_eq!(judged(&mut ranks, 3), (format!("the group has failed: rank 2 is late; {waited}"), vec![2]));
    let mut ranks = [gave_up(0), in_state(RankState::Dead, idle(1)), in_state(RankState::Dead, idle(2))];
    ranks[1].enqueued = 4;
    let (words, culprits) = judged(&mut ranks, 3);
    assert!(words.ends_with(", for which rank 0 has waited 1.0 s; rank 1 (process 101 has ended)"), "{words}");
    assert_eq!(culprits, [1, 2]);
    assert_eq!(last_wait(&[idle(0), idle(1)]), None);
}

#[test]
fn a_wait_is_unhealthy_when_patience_ends() {
    let mut ranks = [waiting(0, WaitPlace::Kernel, Some(3), &[1]), idle(1)];
    let verdict = judge(&mut ranks, 2, false);
    assert!(verdict.is_healthy(Duration::from_millis(1001)) && !verdict.is_healthy(Duration::from_secs(1)));
}
