//! Tests of `src/backend/host/final_exchange.rs`, whose module they are.

use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;

#[test]
fn a_group_that_fails_while_groups_open_leaves_the_bootstrap_to_them() {
    let last = Threads::new(2).unwrap().into_iter().map(|bootstrap| FinalExchange::new(Box::new(bootstrap)));
    let rank = |(rank, last): (usize, Arc<FinalExchange>)| {
        let deadline = until(Duration::from_secs(20));
        if rank == 0 {
            assert_eq!(last.say(b"a group failed", deadline), None);
        }
        let opened = last.lock().all_gather(&[rank as u8], deadline);
        last.opened();
        (opened, last.say(&[10 + rank as u8], deadline))
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = last.enumerate().map(|last| scope.spawn(move || rank(last))).collect();
        for outcome in ranks.into_iter().map(|rank| rank.join().unwrap()) {
            assert_eq!(outcome, (Ok(vec![vec![0], vec![1]]), Some(Ok(vec![vec![10], vec![11]]))));
        }
    });
}
