//! The times of a rank's calls in its control page: a ring of records, which kernels write, and the labels by which a record
//! names its call.
//!
//! A label is a number for an operation, a size, a type and an algorithm. Kernels receive it with their waits, so a record has
//! its call also if a graph runs the call, any number of times.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::EnqueuedCall;
use crate::kernel::args;

/// Labels of a rank. Calls of further kinds have no label.
pub(super) const LABELS: usize = 1024;

/// Records of a rank.
const RECORDS: usize = args::kTimeRecords as usize;

/// The part of a control page that has times. All zero means empty.
#[repr(C, align(16))]
pub(crate) struct Timeline {
    records: [RawTimeRecord; RECORDS],
    labels: [TimeLabel; LABELS],
}

/// The host's view of `args::TimeRecord`.
#[repr(C)]
struct RawTimeRecord {
    begin_ns: AtomicU64,
    number: AtomicU64,
    end_ns: AtomicU64,
    place: AtomicU64,
}

/// The kind of a call.
#[repr(C)]
struct TimeLabel {
    bytes: AtomicU64,
    /// The descriptor of the calls and [`NAMED`]. Written last; 0: the label is not used yet.
    descriptor: AtomicU64,
}

/// Marks the descriptor of a label that is used, whose other bits may be 0.
const NAMED: u64 = 1 << 63;

const _: () = assert!(std::mem::offset_of!(args::Progress, times) == 2 * size_of::<u64>());
const _: () = assert!(size_of::<RawTimeRecord>() == size_of::<args::TimeRecord>());

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedCall {
    /// The number of records of the rank before this one.
    pub(crate) number: u64,
    /// When the call began and ended, in nanoseconds of the device's clock.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// The low 32 bits of the number of collectives that the rank had finished after the call.
    pub(crate) finished: u32,
    /// The call, without the properties that are only hashed; `None` for a call without a label.
    pub(crate) call: Option<EnqueuedCall>,
}

/// The times that a rank's device keeps of its last call, until the next call records them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCall {
    /// The number of collectives that the device has finished.
    done: u64,
    /// The number of records so far.
    recorded: u64,
    begin_ns: u64,
    label: u64,
    /// 0: the call has not ended, or is recorded.
    end_ns: u64,
}

impl LastCall {
    /// The times in the words of `args::Progress`.
    pub(crate) fn of(progress: [u64; size_of::<args::Progress>() / 8]) -> Self {
        let [done, _, _, recorded, begin_ns, label, end_ns, _] = progress;
        Self { done, recorded, begin_ns, label, end_ns }
    }
}

impl Timeline {
    /// The offset of the records in the timeline, in bytes.
    pub(super) const RECORDS_OFFSET: usize = std::mem::offset_of!(Self, records);

    /// The records from number `from` on that are kept and complete, in order.
    pub(super) fn read(&self, from: u64) -> Vec<TimedCall> {
        let mut calls: Vec<TimedCall> = self.records.iter().filter_map(|record| self.call(record)).collect();
        calls.retain(|call| call.number >= from);
        calls.sort_by_key(|call| call.number);
        calls
    }

    /// `None` for a record that the device is writing.
    fn call(&self, record: &RawTimeRecord) -> Option<TimedCall> {
        let read = || {
            [&record.begin_ns, &record.number, &record.end_ns, &record.place].map(|word| word.load(Ordering::Relaxed))
        };
        let first = read();
        fence(Ordering::Acquire);
        let [begin_ns, number, end_ns, place] = first;
        // Each half has the number, and a half is written as a whole.
        let complete = first == read() && number > 0 && place >> 32 & 0xffff == number & 0xffff;
        let label = usize::try_from(place >> 48).ok().and_then(|label| self.labels.get(label.checked_sub(1)?));
        let call = label.and_then(|label| match label.descriptor.load(Ordering::Acquire) {
            0 => None,
            descriptor => Some(EnqueuedCall::of_kernel(label.bytes.load(Ordering::Relaxed), descriptor & !NAMED)),
        });
        complete.then(|| TimedCall { number: number - 1, begin_ns, end_ns, finished: place as u32, call })
    }

    /// Writes the record of the last call, which the next call would write in the same way. No call is in progress.
    pub(super) fn complete(&self, last: &LastCall) {
        let LastCall { done, recorded, begin_ns, label, end_ns } = *last;
        let number = recorded.wrapping_add(1);
        let Some(record) = self.records.get((recorded % RECORDS as u64) as usize) else { return };
        if end_ns == 0 || record.number.load(Ordering::Relaxed) >= number {
            return;
        }
        record.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        record.begin_ns.store(begin_ns, Ordering::Relaxed);
        record.end_ns.store(end_ns, Ordering::Relaxed);
        let place = label << 48 | (number & 0xffff) << 32 | done & u64::from(u32::MAX);
        record.place.store(place, Ordering::Relaxed);
        record.number.store(number, Ordering::Release);
    }

    /// Names the calls of a label, which is above 0. Only the rank itself writes.
    pub(super) fn name(&self, label: u16, bytes: u64, descriptor: u64) {
        if let Some(entry) = self.labels.get(usize::from(label).wrapping_sub(1)) {
            entry.bytes.store(bytes, Ordering::Relaxed);
            entry.descriptor.store(descriptor | NAMED, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/timeline.rs"]
mod tests;
