//! Tests of `src/group/timeline.rs`, whose module they are.

use super::*;
use crate::types::{Dtype, Reduction};

fn empty() -> Box<Timeline> {
    let zero = || AtomicU64::new(0);
    let record = || RawTimeRecord { begin_ns: zero(), number: zero(), end_ns: zero(), place: zero() };
    Box::new(Timeline {
        records: std::array::from_fn(|_| record()),
        labels: std::array::from_fn(|_| TimeLabel { bytes: zero(), descriptor: zero() }),
    })
}

impl Timeline {
    /// Writes a record as a kernel does.
    fn record(&self, number: u64, label: u16, finished: u32) {
        let record = &self.records[number as usize % RECORDS];
        let place = u64::from(label) << 48 | ((number + 1) & 0xffff) << 32 | u64::from(finished);
        let words = [number * 10, number + 1, number * 10 + 7, place];
        for (word, value) in [&record.begin_ns, &record.number, &record.end_ns, &record.place].into_iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_last_records_are_read_in_order() {
    let timeline = empty();
    assert!(timeline.read(0).is_empty());
    let call = EnqueuedCall::new(64, 0, Dtype::F32, Reduction::Sum, 0, 0);
    timeline.name(1, 64, call.kind());
    for number in 0..5000 {
        timeline.record(number, 1, number as u32 + 1);
    }
    let calls = timeline.read(0);
    assert_eq!((calls.len(), calls[0].number), (RECORDS, 5000 - RECORDS as u64));
    assert!(calls.iter().zip(&calls[1..]).all(|(one, next)| one.number + 1 == next.number));
    let last = TimedCall { number: 4999, begin_ns: 49990, end_ns: 49997, finished: 5000, call: Some(call) };
    assert_eq!(calls.last(), Some(&last));
    assert_eq!(timeline.read(4998).len(), 2);
}

/// A record of which only one half is new, and a record without a known label.
#[test]
fn half_a_record_is_none() {
    let timeline = empty();
    timeline.record(3, 9, 4);
    assert_eq!(timeline.read(0)[0].call, None);
    timeline.records[3].number.store(3 + 1 + RECORDS as u64, Ordering::Relaxed);
    assert!(timeline.read(0).is_empty());
    timeline.record(7, u16::MAX, 8);
    assert_eq!(timeline.read(0)[0].call, None);
}

/// The host writes the record of the last call as the next call does, once, and leaves later records.
#[test]
fn the_last_call_is_recorded_without_a_next_call() {
    let timeline = empty();
    let last = |recorded: u64, end_ns: u64| LastCall::of([recorded + 1 + (1 << 32), 0, 1, recorded, 40, 9, end_ns, 0]);
    timeline.complete(&last(4, 0));
    assert!(timeline.read(0).is_empty(), "the call has not ended");
    timeline.complete(&last(4, 47));
    timeline.record(4, 9, 5);
    let written = timeline.read(0);
    let expected = TimedCall { number: 4, begin_ns: 40, end_ns: 47, finished: 5, call: None };
    assert_eq!(written, [expected]);
    let empty = empty();
    empty.complete(&last(4, 47));
    assert_eq!((empty.read(0), empty.read(5).len()), (written, 0));
    // The ring has come round meanwhile.
    timeline.record(4 + RECORDS as u64, 9, 7);
    timeline.complete(&last(4, 47));
    assert_eq!(timeline.read(0)[0].number, 4 + RECORDS as u64);
}
