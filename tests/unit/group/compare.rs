//! Tests of `src/group/compare.rs`, whose module they are.

use super::*;

fn call(bytes: u64) -> EnqueuedCall {
    let mut words = [0; EnqueuedCall::WORDS];
    (words[0], words[1]) = (bytes, 7);
    EnqueuedCall::from_words(words)
}

/// A history of `count` calls of 4 bytes, except the calls that `others` names with their bytes.
fn history(count: u64, others: &[(u64, u64)]) -> Box<History> {
    let history = Box::new(History::empty());
    for number in 0..count {
        let bytes = others.iter().find(|(other, _)| *other == number).map_or(4, |(_, bytes)| *bytes);
        history.push(call(bytes), 0);
    }
    history
}

fn difference(number: u64, ours: u64, theirs: u64) -> Option<CallDifference> {
    Some(CallDifference { number, ours: call(ours), theirs: call(theirs) })
}

#[test]
fn calls_that_both_made_are_compared() {
    assert_eq!(compare(&history(0, &[]), &history(3, &[]), 0), Compared::Equal(0));
    assert_eq!(compare(&history(5, &[]), &history(3, &[]), 0), Compared::Equal(3));
    // Calls that only one rank has made so far may yet be equal.
    assert_eq!(compare(&history(5, &[(3, 9)]), &history(3, &[]), 0), Compared::Equal(3));
    let (ours, theirs) = (history(5, &[(1, 9)]), history(7, &[(1, 8)]));
    assert_eq!(compare(&ours, &theirs, 0), Compared::Unequal { common: 5, first: difference(1, 9, 8) });
    assert_eq!(compare(&ours, &theirs, 5), Compared::Equal(5));
}

#[test]
fn calls_in_another_order_differ() {
    let (ours, theirs) = (history(2, &[(0, 8)]), history(2, &[(1, 8)]));
    assert_eq!(compare(&ours, &theirs, 0), Compared::Unequal { common: 2, first: difference(0, 8, 4) });
}

#[test]
fn a_rank_far_ahead_is_compared_at_the_last_digest_that_both_have() {
    let entries = ENTRIES as u64;
    let (behind, ahead) = (2 * entries + 5, 9 * entries);
    assert_eq!(compare(&history(behind, &[]), &history(ahead, &[]), 0), Compared::Equal(2 * entries));
    let found = compare(&history(behind, &[(3, 8)]), &history(ahead, &[]), 0);
    assert_eq!(found, Compared::Unequal { common: 2 * entries, first: None });
    // Only the last calls differ: the difference is found once the slower rank has come nearer.
    let (ours, theirs) = (history(behind, &[(behind - 1, 8)]), history(behind + entries - 1, &[]));
    assert_eq!(compare(&ours, &theirs, 0), Compared::Unequal { common: behind, first: difference(behind - 1, 8, 4) });
}
