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
    /// In the order of adoption, which is equal on all ranks.
    pools: Vec<Pool>,
}

struct Pool {
    number: u64,
    start: usize,
    bytes: usize,
    /// `None` if some rank's memory cannot be shared.
    registration: Option<Weak<Registration>>,
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
        let adopted = self.adopted.lock();
        adopted.pools.iter().find_map(|pool| {
            let offset = (address as usize).checked_sub(pool.start)?;
            offset.checked_add(bytes).filter(|end| *end <= pool.bytes)?;
            let registration = match &pool.registration {
                Some(registration) => Some(registration.upgrade()?),
                None => None,
            };
            Some(Pooled { number: pool.number, offset_bytes: offset as u64, registration })
        })
    }

    fn add(&self, (start, bytes): (usize, usize), registration: Option<&Arc<Registration>>) -> u64 {
        let mut adopted = self.adopted.lock();
        let number = adopted.next;
        adopted.next += 1;
        adopted.pools.push(Pool { number, start, bytes, registration: registration.map(Arc::downgrade) });
        self.count.store(adopted.pools.len(), Ordering::Relaxed);
        number
    }

    fn remove(&self, number: u64) {
        let mut adopted = self.adopted.lock();
        adopted.pools.retain(|pool| pool.number != number);
        self.count.store(adopted.pools.len(), Ordering::Relaxed);
    }
}

/// While this exists, operands inside the adopted memory are found.
pub(super) struct Entry {
    arena: Weak<Arena>,
    pools: Weak<Pools>,
    number: u64,
}

impl Entry {
    /// All ranks make their entries in the same order.
    pub(super) fn new(
        (arena, pools): (&Arc<Arena>, &Arc<Pools>),
        (address, bytes): (*mut u8, usize),
        registration: Option<&Arc<Registration>>,
    ) -> Self {
        let number = pools.add((address as usize, bytes), registration);
        Self { arena: Arc::downgrade(arena), pools: Arc::downgrade(pools), number }
    }
}

impl Drop for Entry {
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
        let [first, second, empty] = [(1000, 100), (1050, 100), (2000, 0)].map(|range| pools.add(range, None));
        assert_eq!((first, second, empty), (0, 1, 2));
        assert_eq!(at(1000, 100), Some((0, 0)));
        assert_eq!(at(1099, 1), Some((0, 99)));
        assert_eq!(at(1060, 40), Some((0, 60)));
        assert_eq!(at(1060, 41), Some((1, 10)));
        assert_eq!([at(999, 1), at(1150, 1), at(1149, 2), at(1000, 0), at(2000, 1)], [None; 5]);
        assert_eq!(at(1001, usize::MAX), None);
        pools.remove(first);
        assert_eq!([at(1000, 1), at(1060, 40)], [None, Some((1, 10))]);
        assert_eq!(pools.add((1000, 8), None), 3, "a number is never used again");
    }
}
