//! Tests of `src/group/history.rs`, whose module they are.

use super::*;

fn call(number: u64) -> EnqueuedCall {
    // Words that no kernel compares are read and written too.
    EnqueuedCall::from_words(std::array::from_fn(|word: usize| number * (2 * word as u64 + 3)))
}

#[cfg(not(loom))]
#[test]
fn keeps_the_last_entries() {
    let history = History::empty();
    for number in 0..4000 {
        history.push(call(number), 0);
    }
    assert_eq!(history.enqueued(), 4000);
    assert_eq!(history.get(3999), Some(call(3999)));
    assert_eq!(history.get(2976), Some(call(2976)));
    assert_eq!(history.get(2975), None);
    assert_eq!(history.get(4000), None);
}

/// Calls of copy engines have no number on the device.
#[cfg(not(loom))]
#[test]
fn the_call_in_progress_is_found_among_calls_that_the_device_does_not_count() {
    use crate::types::{Dtype, Reduction, WAY_COPY_ENGINES};

    let history = History::empty();
    let call = |way| EnqueuedCall::new(8, 4 + u32::from(way > 0), Dtype::F32, Reduction::Sum, way, 0);
    let after = |finished| history.after(finished, 4, 0);
    assert_eq!(after(0), None);
    // Calls 0, 3, 6, ... are copies; the device counts calls 1, 2, 4, 5, ...
    for number in 0..3000 {
        history.push(call(if number % 3 == 0 { WAY_COPY_ENGINES } else { 0 }), 0);
        if number == 1 {
            assert_eq!([0, 1].map(after), [Some(1), None]);
        }
    }
    assert_eq!([1999, 1998, 1997, 1400].map(after), [Some(2999), Some(2998), Some(2996), Some(2101)]);
    // All have ended; the call was overwritten; a number above all calls.
    assert_eq!([2000, 2, 5000].map(after), [None; 3]);
    // The only copy that has not ended waits, before or after calls that the device counts. Several copies may be the call.
    let copy = |finished, ended| history.after(finished, 5, ended);
    assert_eq!([copy(1998, 2997), copy(2000, 2997), copy(1998, 2998)], [Some(2997), Some(2997), Some(2998)]);
    assert_eq!(copy(1998, 0), None);
    (0..3).for_each(|_| history.push(call(WAY_COPY_ENGINES), 0));
    assert_eq!([2999, 3002, 3003].map(|ended| copy(2000, ended)), [None, Some(3002), None]);
    let counted = History::empty();
    (0..3000).for_each(|_| counted.push(call(0), 0));
    assert_eq!([0, 2999, 3000].map(|finished| counted.after(finished, 4, 0)), [Some(0), Some(2999), None]);
}

#[cfg(not(loom))]
#[test]
fn a_digest_is_of_all_calls_before() {
    let [one, other] = [(); 2].map(|()| Box::new(History::empty()));
    for number in 0..5000 {
        one.push(call(number), 0);
        other.push(call(if number == 700 { 0 } else { number }), 0);
    }
    assert_eq!(one.digest_of(0), None);
    // In the entries, at a mark, and where neither is left.
    for (count, kept) in [(5000, true), (4097, true), (4096, true), (1024, true), (2000, false), (5001, false)] {
        let digests = [&one, &other].map(|history| history.digest_of(count));
        assert!(digests.iter().all(|digest| digest.is_some() == kept), "{count}: {digests:?}");
        assert_eq!(digests[0] != digests[1], kept, "{count}");
    }
}

#[cfg(loom)]
#[test]
fn a_reader_never_sees_half_a_call() {
    loom::model(|| {
        let history = loom::sync::Arc::new(History::empty());
        history.push(call(0), 5);
        let writer = history.clone();
        let thread = loom::thread::spawn(move || writer.push(call(1), 6));
        // Both calls use the only entry: a reader sees each whole or not at all.
        for number in [0, 1] {
            if let Some(seen) = history.entry(number).read(number) {
                assert_eq!((seen.call, seen.moment), (call(number), number + 5));
            }
        }
        thread.join().unwrap();
        assert_eq!(history.get(1), Some(call(1)));
    });
}
