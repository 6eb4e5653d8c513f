//! Adopted memory of this rank, by address: an operand inside it needs no registration of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::arena::Arena;
use super::registration::Registration;

/// The adopted memory of one rank.
#[derive(Default)]
pub(crate) struct Pools {
    /// Length of `pools`. A call of a rank without pools reads only this field.
    count: AtomicUsize,
    adopted: Mutex<Adoptions>,
}

#[derive(Default)]
struct Adoptions {
    /// Number of the next adoption.
    next: u64,
    /// In the order of their addresses.
    pools: Vec<Pool>,
}

struct Pool {
    /// The number of the adoption, in an order that is equal on all ranks.
    number: u64,
    start: usize,
    bytes: usize,
    /// The last end of this pool and of all pools before it.
    last_end: usize,
    /// `None` if some rank's memory cannot be shared.
    registration: Option<Weak<Registration>>,
}

impl Pool {
    fn end(&self) -> usize {
        self.start.saturating_add(self.bytes)
    }
}

impl Adoptions {
    /// Finds the last ends again, after a pool was added or removed.
    fn find_ends(&mut self) {
        let mut last = 0;
        for pool in &mut self.pools {
            last = last.max(pool.end());
            pool.last_end = last;
        }
    }
}

/// The location of an operand in adopted memory.
#[derive(Clone)]
pub(crate) struct Pooled {
    /// Number of the adoption, equal on all ranks.
    pub(crate) number: u64,
    pub(crate) offset_bytes: u64,
    /// `None` if some rank's memory cannot be shared: the operand is pushed.
    pub(crate) registration: Option<Arc<Registration>>,
}

impl Pools {
    /// The pool that contains these bytes entirely; if there are several, the first adopted. Does not allocate.
    pub(crate) fn find(&self, address: *const u8, bytes: usize) -> Option<Pooled> {
        // Relaxed: a thread that adopted memory reads its own writes, and other threads synchronise by other means.
        if self.count.load(Ordering::Relaxed) == 0 || bytes == 0 {
            return None;
        }
        let start = address as usize;
        let end = start.checked_add(bytes)?;
        let adopted = self.adopted.lock();
        let before = adopted.pools.partition_point(|pool| pool.start <= start);
        let candidates = adopted.pools.iter().take(before).rev().take_while(|pool| pool.last_end >= end);
        // A registration that ends at the same time is none any more.
        let alive =
            |pool: &&Pool| pool.registration.as_ref().is_none_or(|registration| registration.strong_count() > 0);
        let pool = candidates.filter(|pool| pool.end() >= end).filter(alive).min_by_key(|pool| pool.number)?;
        let registration = match &pool.registration {
            Some(registration) => Some(registration.upgrade()?),
            None => None,
        };
        Some(Pooled { number: pool.number, offset_bytes: (start - pool.start) as u64, registration })
    }

    fn add(&self, start: usize, bytes: usize, registration: Option<&Arc<Registration>>) -> u64 {
        let mut adopted = self.adopted.lock();
        let number = adopted.next;
        adopted.next += 1;
        let place = adopted.pools.partition_point(|pool| pool.start <= start);
        let pool = Pool { number, start, bytes, last_end: 0, registration: registration.map(Arc::downgrade) };
        adopted.pools.insert(place, pool);
        adopted.find_ends();
        self.count.store(adopted.pools.len(), Ordering::Relaxed);
        number
    }

    fn remove(&self, number: u64) {
        let mut adopted = self.adopted.lock();
        adopted.pools.retain(|pool| pool.number != number);
        adopted.find_ends();
        self.count.store(adopted.pools.len(), Ordering::Relaxed);
    }
}

/// While this exists, operands inside the adopted memory are found.
pub(super) struct PoolEntry {
    arena: Weak<Arena>,
    pools: Weak<Pools>,
    number: u64,
}

impl PoolEntry {
    /// All ranks make their entries in the same order.
    pub(super) fn new(
        arena: &Arc<Arena>,
        pools: &Arc<Pools>,
        address: *mut u8,
        bytes: usize,
        registration: Option<&Arc<Registration>>,
    ) -> Self {
        let number = pools.add(address as usize, bytes, registration);
        Self { arena: Arc::downgrade(arena), pools: Arc::downgrade(pools), number }
    }
}

impl Drop for PoolEntry {
    fn drop(&mut self) {
        // In a forked child another thread may have held the lock.
        let here = self.arena.upgrade().is_some_and(|arena| arena.group().device().is_here());
        if let Some(pools) = self.pools.upgrade().filter(|_| here) {
            pools.remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_as_a_whole_and_in_the_first_pool() {
        let pools = Pools::default();
        let at = |address: usize, bytes| {
            let found = pools.find(std::ptr::without_provenance(address), bytes);
            found.map(|pooled| (pooled.number, pooled.offset_bytes))
        };
        assert_eq!(at(1000, 8), None);
        let [first, second, empty] =
            [(1000, 100), (1050, 100), (2000, 0)].map(|(start, bytes)| pools.add(start, bytes, None));
        assert_eq!((first, second, empty), (0, 1, 2));
        assert_eq!(at(1000, 100), Some((0, 0)));
        assert_eq!(at(1099, 1), Some((0, 99)));
        assert_eq!(at(1060, 40), Some((0, 60)));
        assert_eq!(at(1060, 41), Some((1, 10)));
        assert_eq!([at(999, 1), at(1150, 1), at(1149, 2), at(1000, 0), at(2000, 1)], [None; 5]);
        assert_eq!(at(1001, usize::MAX), None);
        let inner = pools.add(1060, 20, None);
        assert_eq!([at(1060, 20), at(1100, 8)], [Some((0, 60)), Some((1, 50))], "the first adopted");
        pools.remove(inner);
        pools.remove(first);
        assert_eq!([at(1000, 1), at(1060, 40)], [None, Some((1, 10))]);
        assert_eq!(pools.add(1000, 8, None), 4, "a number is never used again");
    }

    #[test]
    fn the_search_finds_what_a_look_at_every_pool_finds() {
        let (pools, mut random, mut kept) = (Pools::default(), fastrand::Rng::with_seed(7), Vec::new());
        for _ in 0..2000 {
            if kept.len() > 40 {
                let (number, ..): (u64, usize, usize) = kept.swap_remove(random.usize(..kept.len()));
                pools.remove(number);
            }
            let (start, bytes) = (random.usize(1..5000), random.usize(1..300));
            kept.push((pools.add(start, bytes, None), start, bytes));
            let (address, wanted) = (random.usize(1..5300), random.usize(1..100));
            let has =
                |&&(_, start, bytes): &&(u64, usize, usize)| start <= address && address + wanted <= start + bytes;
            let expected = kept.iter().filter(has).min().map(|&(number, start, _)| (number, (address - start) as u64));
            let found = pools.find(std::ptr::without_provenance(address), wanted);
            assert_eq!(found.map(|pooled| (pooled.number, pooled.offset_bytes)), expected);
        }
    }
}
