//! The last calls that a rank enqueued: a ring with one writer. Peers read the ring, also after the writer's death.
//!
//! Each entry is a seqlock. The writer clears the stamp, writes the fields, then sets the new stamp. A reader accepts
//! an entry only if the stamp was equal before and after. The two fences ensure that a reader of a new field also
//! detects that the old stamp is gone.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use super::call::EnqueuedCall;

/// The number of calls that are kept.
#[cfg(loom)]
pub(super) const ENTRIES: usize = 1;
#[cfg(not(loom))]
pub(super) const ENTRIES: usize = 1024;

/// The number of digests that are kept, one per `ENTRIES` calls: they cover the last 256 Ki calls.
#[cfg(loom)]
const MARKS: usize = 1;
#[cfg(not(loom))]
const MARKS: usize = 256;

/// The last calls of one rank. Lives in memory shared with its peers; all zero means empty.
#[repr(C)]
pub(crate) struct History {
    enqueued: AtomicU64,
    /// The digest of all calls so far.
    digest: AtomicU64,
    /// The number of calls so far that the device does not count: see [`EnqueuedCall::is_counted`].
    uncounted: AtomicU64,
    entries: [HistoryEntry; ENTRIES],
    /// Every `ENTRIES`-th call, for peers whose number of calls is below the range of `entries`.
    marks: [HistoryEntry; MARKS],
}

#[repr(C)]
struct HistoryEntry {
    /// Number of the call plus one; 0 while the entry is being written.
    stamp: AtomicU64,
    call: [AtomicU64; EnqueuedCall::WORDS],
    /// When the call was enqueued, and how: see [`History::push`].
    moment: AtomicU64,
    /// The digest of all calls up to this one.
    digest: AtomicU64,
}

/// The contents of an entry.
struct EntryContents {
    call: EnqueuedCall,
    moment: u64,
    digest: u64,
}

impl HistoryEntry {
    fn write(&self, number: u64, kept: &EntryContents) {
        let EntryContents { call, moment, digest } = *kept;
        self.stamp.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.call.iter().zip(call.words()).for_each(|(kept, word)| kept.store(word, Ordering::Relaxed));
        self.moment.store(moment, Ordering::Relaxed);
        self.digest.store(digest, Ordering::Relaxed);
        self.stamp.store(number + 1, Ordering::Release);
    }

    /// Call `number`, or `None` if the entry has another call or is being written.
    fn read(&self, number: u64) -> Option<EntryContents> {
        let before = self.stamp.load(Ordering::Acquire);
        let call = EnqueuedCall::from_words(std::array::from_fn(|word: usize| self.call[word].load(Ordering::Relaxed)));
        let [moment, digest] = [&self.moment, &self.digest].map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.stamp.load(Ordering::Relaxed);
        (before == after && before == number + 1).then_some(EntryContents { call, moment, digest })
    }
}

impl History {
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// Adds a call. `moment` is the time in nanoseconds since 1970, whose lowest bit states whether a graph enqueues the call.
    /// Only the rank itself writes, from one thread at a time.
    #[inline]
    pub(crate) fn push(&self, call: EnqueuedCall, moment: u64) {
        let number = self.enqueued.load(Ordering::Relaxed);
        let digest = digest(self.digest.load(Ordering::Relaxed), call);
        self.digest.store(digest, Ordering::Relaxed);
        if !call.is_counted() {
            self.uncounted.store(self.uncounted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        let kept = EntryContents { call, moment, digest };
        self.entry(number).write(number, &kept);
        if (number + 1).is_multiple_of(ENTRIES as u64) {
            self.mark(number).write(number, &kept);
        }
        self.enqueued.store(number + 1, Ordering::Release);
    }

    /// The call with this number, or `None` if it was overwritten or is being written.
    pub(crate) fn get(&self, number: u64) -> Option<EnqueuedCall> {
        self.entry(number).read(number).map(|kept| kept.call)
    }

    /// The number of the call of operation `op` that is in progress after the device has counted `finished` calls. The first
    /// `ended` calls are not. `None` if no such call is enqueued, if several may be the call, or if the ring no longer has the
    /// calls after it.
    pub(crate) fn after(&self, finished: u64, op: u32, ended: u64) -> Option<u64> {
        let (enqueued, uncounted) = (self.enqueued(), self.uncounted.load(Ordering::Relaxed));
        if uncounted == 0 {
            return (finished < enqueued).then_some(finished);
        }
        let counted = self.counted_after(finished, enqueued, uncounted);
        let is_of = |number: &u64| self.get(*number).is_some_and(|call| call.op() == op);
        // Calls that the device does not count run concurrently with the calls that it counts.
        let apart = (ended..enqueued).rev().take(ENTRIES);
        let apart = apart.filter(|number| self.get(*number).is_some_and(|call| !call.is_counted() && call.op() == op));
        let mut found = counted.filter(is_of).into_iter().chain(apart);
        match (found.next(), found.next()) {
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => None,
            // A comparison before the call has an operation of its own.
            (None, _) => counted,
        }
    }

    /// The number of the call that the device counts next.
    fn counted_after(&self, finished: u64, enqueued: u64, uncounted: u64) -> Option<u64> {
        let mut unfinished = enqueued.checked_sub(uncounted)?.checked_sub(finished)?;
        for number in (0..enqueued).rev().take(ENTRIES) {
            if self.get(number)?.is_counted() {
                unfinished = unfinished.checked_sub(1)?;
                if unfinished == 0 {
                    return Some(number);
                }
            }
        }
        None
    }

    /// The calls that are kept, in order: of each, the number, the call and its moment.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u64, EnqueuedCall, u64)> {
        let enqueued = self.enqueued();
        let numbers = enqueued.saturating_sub(ENTRIES as u64)..enqueued;
        numbers.filter_map(|number| {
            let kept = self.entry(number).read(number)?;
            Some((number, kept.call, kept.moment))
        })
    }

    /// The digest of the first `count` calls, equal for equal calls. `None` for 0 and if no entry is left.
    pub(crate) fn digest_of(&self, count: u64) -> Option<u64> {
        let number = count.checked_sub(1)?;
        let entry = self.entry(number).read(number).or_else(|| self.mark(number).read(number));
        entry.map(|kept| kept.digest)
    }

    fn entry(&self, number: u64) -> &HistoryEntry {
        &self.entries[(number % ENTRIES as u64) as usize]
    }

    fn mark(&self, number: u64) -> &HistoryEntry {
        &self.marks[(number / ENTRIES as u64 % MARKS as u64) as usize]
    }

    #[cfg(test)]
    pub(super) fn empty() -> Self {
        let zero = || AtomicU64::new(0);
        let entry =
            |_| HistoryEntry { stamp: zero(), call: std::array::from_fn(|_| zero()), moment: zero(), digest: zero() };
        Self {
            enqueued: zero(),
            digest: zero(),
            uncounted: zero(),
            entries: std::array::from_fn(entry),
            marks: std::array::from_fn(entry),
        }
    }
}

/// The digest after one more call. Unequal calls have equal digests once in 2^64 cases.
fn digest(before: u64, call: EnqueuedCall) -> u64 {
    let mixed = |sum: u64, word: u64| (sum.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed(mixed(before.wrapping_add(1), call.bytes), call.descriptor)
}

#[cfg(test)]
#[path = "../../tests/unit/group/history.rs"]
mod tests;
