//! Ranks as threads.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Threads};

use crate::{timed_out, within};

#[test]
fn pitfall_1_a_dropped_or_panicked_thread_is_named_at_once() {
    for panics in [false, true] {
        let mut ranks = Threads::new(4).unwrap();
        let gone = ranks.remove(2);
        let start = Instant::now();
        thread::scope(|scope| {
            let waiting: Vec<_> =
                ranks.into_iter().map(|mut rank| scope.spawn(move || rank.barrier(within(10.0)))).collect();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(50));
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _gone = gone;
                    if panics {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                }));
                assert_eq!(result.is_err(), panics);
            });
            for thread in waiting {
                let error = thread.join().unwrap().unwrap_err();
                let end = if panics { "its thread panicked" } else { "it was dropped" };
                assert_eq!(error.to_string(), format!("rank 2 is gone: {end}"));
            }
        });
        assert!(start.elapsed() < Duration::from_secs(8));
    }
}

#[test]
fn threads_that_miss_the_deadline_are_named_and_find_out() {
    let mut ranks = Threads::new(3).unwrap();
    let mut late = ranks.remove(1);
    let together = Barrier::new(2);
    thread::scope(|scope| {
        let wait = |mut rank: Threads| {
            together.wait();
            rank.barrier(within(1.5))
        };
        let waiting: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || wait(rank))).collect();
        for thread in waiting {
            assert_eq!(timed_out(thread.join().unwrap()).0, Some(1));
        }
    });
    assert!(late.barrier(within(10.0)).is_err());
}

#[test]
fn threads_may_leave_right_after_the_last_result() {
    for _ in 0..50 {
        thread::scope(|scope| {
            for mut rank in Threads::new(8).unwrap() {
                scope.spawn(move || rank.barrier(within(10.0)).unwrap());
            }
        });
    }
}
