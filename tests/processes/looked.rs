//! An observer reads groups after calls that the device does not count, and after a close.

use symmetra::observe::{ObservedGroup, RankState, look};

use crate::LIMIT;
use crate::support::process::apart;
use crate::support::world::{Gate, meet, open, until};
use crate::support::{Rank, config, is_host, threads};

const COPIES: &str = "looked::a_call_after_copies_is_named";
const CLOSED: &str = "looked::ranks_that_have_closed_have_left";

/// The only group of this process.
fn group() -> Option<ObservedGroup> {
    look(Some(std::process::id())).ok()?.groups.pop()
}

/// Copy engines make a collective without a count of the device. That call and the call after it have the numbers of the
/// history.
#[test]
fn a_call_after_copies_is_named() {
    if !is_host() || !apart(COPIES) {
        return;
    }
    let late = Gate::new(3);
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let (own, all) = (communicator.symmetric::<f32>(32).unwrap(), communicator.symmetric::<f32>(96).unwrap());
        let wait_for_verdict = |expected: &str| {
            if rank.rank() == 2 {
                until(LIMIT, expected, || group().is_some_and(|group| group.verdict.words.starts_with(expected)));
            }
        };
        for number in 0..2 {
            wait_for_verdict(&format!("rank 2 has not made all-gather {number}, for which 2 ranks have waited "));
            communicator.low_contention_all_gather(&own, &all, stream).unwrap().wait(stream).unwrap();
            rank.finish();
        }
        wait_for_verdict("rank 2 has not made all-reduce 2, for which 2 ranks have waited ");
        communicator.all_reduce_in_place(&own, stream).unwrap();
        late.pass();
        rank.finish();
    });
}

/// Ranks keep the pages of a closed group as long as memory of the group lives. They have left all the same.
#[test]
fn ranks_that_have_closed_have_left() {
    if !is_host() || !apart(CLOSED) {
        return;
    }
    let closed = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &config()).unwrap();
        let kept = rank.communicator.symmetric::<f32>(32).unwrap();
        rank.communicator.close().unwrap();
        closed.pass();
        let ObservedGroup { ranks, verdict, .. } = group().unwrap();
        assert_eq!((verdict.words.as_str(), verdict.broken), ("all ranks have left", false));
        assert!(ranks.iter().all(|rank| rank.state == RankState::Left), "{ranks:?}");
        closed.pass();
        drop(kept);
    });
}
