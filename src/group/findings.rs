//! The findings of kernels and of comparisons of calls, as errors: unequal calls, counts and routings, and memory outside the heap.

use std::sync::atomic::Ordering;

use super::EnqueuedCall;
use super::compare::{Compared, compare};
use super::control_page::{Finding, Page, PageMapping};
use super::health::Health;
use crate::error::Error;
use crate::kernel::args;

impl Health {
    /// The mismatch between two ranks, after rank `by` found a different call of rank `other`. If this rank has made
    /// the call, at least one of the two differs from it.
    pub(super) fn mismatch(&self, by: usize, other: usize) -> Error {
        if let Some(error) = self.counts_mismatch(by).or_else(|| self.misrouting(by)).or_else(|| self.missent()) {
            return error;
        }
        let found_by_kernel = self.pages.get(by).is_some_and(|page| page.finding() == Some(Finding::Different(other)));
        if !found_by_kernel && let Some(error) = self.differing().or_else(|| self.differing_elsewhere(by, other)) {
            return error;
        }
        // Every call is compared: its epoch is its number, unless the numbering of a rank is lost.
        let number = self.pages.get(by).map_or(u64::MAX, |page| page.epoch.load(Ordering::Relaxed).into());
        let counts = |page: &&Page| page.unnumbered.load(Ordering::Relaxed) == 0;
        let call = |rank: usize| self.pages.get(rank).map(|page| &**page).filter(counts)?.history.get(number);
        let words = |rank| call(rank).map_or_else(|| "unknown".to_owned(), |call| call.in_full());
        let told = by != self.rank;
        let (against, rank) = match call(self.rank) {
            None if told => (by, other),
            own if told && (other == self.rank || call(other) == own) => (self.rank, by),
            _ => (self.rank, other),
        };
        let [bytes, descriptor] = [0, 1].map(|word: usize| self.own().theirs[word].load(Ordering::Relaxed));
        let theirs = match (told, call(rank)) {
            (true, _) => words(rank),
            (false, noted) => {
                let seen = EnqueuedCall::of_kernel(bytes, descriptor);
                noted.filter(|noted| noted.compares_as(&seen)).unwrap_or(seen).in_full()
            }
        };
        let ours = words(against);
        Error::Mismatch { what: "the call".to_owned(), against, ours, rank, theirs }
    }

    /// The error after rank `by` found that a sender's count differs from the receiver's, or that a receiver's memory
    /// is not addressable. All ranks get the same text. `kernels/exchange/counts.cuh` defines the packing, which
    /// `kernels/exchange/pairs.cuh` uses too.
    pub(super) fn counts_mismatch(&self, by: usize) -> Option<Error> {
        const BY_SENDS: u64 = 1 << 63;
        let page = self.pages.get(by)?;
        let code = page.code.load(Ordering::Acquire);
        let of_counts = [args::kOpCounts, args::kOpPairs].contains(&page.op.load(Ordering::Relaxed));
        if code != args::kStatusMismatch || !of_counts {
            return None;
        }
        let peer = page.peer.load(Ordering::Relaxed) as usize;
        let [sent, expected] = [0, 1].map(|word: usize| page.theirs[word].load(Ordering::Relaxed));
        if expected == args::kNotReached {
            return Some(Error::unsupported(
                format!("a direct exchange into memory of rank {peer}"),
                "it is plain or adopted: if ranks know only their own counts, they can write only into symmetric memory",
            ));
        }
        let (sender, receiver) = if expected & BY_SENDS == 0 { (peer, by) } else { (by, peer) };
        Some(Error::Mismatch {
            what: format!("how much rank {sender} sends rank {receiver}"),
            against: sender,
            ours: format!("{sent} bytes"),
            rank: receiver,
            theirs: format!("{} bytes", expected & !BY_SENDS),
        })
    }

    /// The error after the receiver of a message between two ranks found that the sender's length differs. The sender
    /// may have finished already.
    pub(super) fn missent(&self) -> Option<Error> {
        let of_pairs = |page: &PageMapping| page.op.load(Ordering::Relaxed) == args::kOpPairs;
        let found = |page: &PageMapping| matches!(page.finding(), Some(Finding::Different(_))) && of_pairs(page);
        self.pages.iter().position(found).and_then(|by| self.counts_mismatch(by))
    }

    /// The error after rank `by` found tokens that no rank can accept. All ranks get the same text.
    pub(super) fn misrouting(&self, by: usize) -> Option<Error> {
        let page = self.pages.get(by)?;
        let code = page.code.load(Ordering::Acquire);
        let rank = page.peer.load(Ordering::Relaxed) as usize;
        let [first, second] = [0, 1].map(|word: usize| page.theirs[word].load(Ordering::Relaxed));
        match code {
            args::kStatusRouting => {
                let (token, experts) = (first as u32 as usize, (first >> 32) as usize);
                Some(Error::Routing { rank, token, expert: second as i64, experts })
            }
            args::kStatusCapacity if second & args::kTokensAsked != 0 => {
                let ids = (second & !args::kTokensAsked) as usize;
                Some(Error::Tokens { rank, tokens: first as usize, ids })
            }
            args::kStatusCapacity => Some(Error::Capacity { rank, rows: first as usize, capacity: second as usize }),
            _ => None,
        }
    }

    /// The error after a kernel of the program tried to access memory outside the heap.
    pub(super) fn outside_heap(&self, page: &Page) -> Error {
        let [offset, bytes] = [0, 1].map(|word: usize| page.theirs[word].load(Ordering::Relaxed));
        if bytes == args::kNoChannel {
            let limit = format!("there are {} (heap_channels)", self.heap_channels);
            return Error::invalid("the channel of a kernel's signal", offset, limit);
        }
        let rank = page.peer.load(Ordering::Relaxed);
        let what = format!("{bytes} bytes, {} from the beginning of the heap of rank {rank}", offset as i64);
        let limit = format!("the heaps of {} ranks have {} bytes each", self.pages.len(), self.heap_bytes);
        Error::invalid("what a kernel accesses", what, limit)
    }

    /// The mismatch between this rank's calls and those of the first rank that differs, if any. Compares the calls
    /// since the last comparison.
    pub(super) fn differing(&self) -> Option<Error> {
        (0..self.pages.len()).filter(|rank| *rank != self.rank).find_map(|rank| {
            let equal = &self.equal[rank];
            match compare(&self.own().history, &self.pages[rank].history, equal.load(Ordering::Relaxed)) {
                Compared::Equal(calls) => {
                    equal.fetch_max(calls, Ordering::Relaxed);
                    None
                }
                unequal => unequal.error(self.rank, rank),
            }
        })
    }

    /// The mismatch that rank `by` found between its calls and those of `other`.
    fn differing_elsewhere(&self, by: usize, other: usize) -> Option<Error> {
        let (ours, theirs) = (self.pages.get(by)?, self.pages.get(other)?);
        compare(&ours.history, &theirs.history, 0).error(by, other)
    }
}
