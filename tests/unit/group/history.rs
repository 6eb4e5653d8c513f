//! Tests of `src/group/history.rs`, whose module they are.

use super::*;

fn call(number: u64) -> Call {
    Call { bytes: number * 3, descriptor: number * 7 }
}

#[cfg(not(loom))]
#[test]
fn keeps_the_last_entries() {
    let history = History::empty();
    for number in 0..1000 {
        history.push(call(number));
    }
    assert_eq!(history.enqueued(), 1000);
    assert_eq!(history.get(999), Some(call(999)));
    assert_eq!(history.get(744), Some(call(744)));
    assert_eq!(history.get(743), None);
    assert_eq!(history.get(1000), None);
}

#[cfg(loom)]
#[test]
fn a_reader_never_sees_half_a_call() {
    loom::model(|| {
        let history = loom::sync::Arc::new(History::empty());
        history.push(call(0));
        let writer = history.clone();
        let thread = loom::thread::spawn(move || writer.push(call(1)));
        // Both calls use the only entry: a reader sees each whole or not at all.
        for number in [0, 1] {
            if let Some(seen) = history.get(number) {
                assert_eq!(seen, call(number));
            }
        }
        thread.join().unwrap();
        assert_eq!(history.get(1), Some(call(1)));
    });
}
