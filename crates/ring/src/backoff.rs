//! How long a waiting party spins before it sleeps.

use std::time::{Duration, Instant};

/// Polls between two reads of the clock.
const POLLS: u32 = 64;
/// After this time a spinning party yields the processor between reads of the clock: the awaited party may need it.
const ALONE: Duration = Duration::from_micros(20);

/// Spins for as long as spinning has paid off lately. A wait that ends while spinning doubles the next limit, a wait that
/// sleeps halves it. The limit stays between 1/32 of `most` and `most`.
pub(super) struct Backoff {
    most: Duration,
    limit: Duration,
}

impl Backoff {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, limit: most }
    }

    /// Polls until something is found, the limit is reached or `deadline` passed.
    pub(super) fn spin<T>(&mut self, deadline: Instant, poll: &mut impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = poll() {
            return Some(found); // shows nothing about how long a wait takes
        }
        if self.most.is_zero() {
            return None;
        }
        let start = Instant::now();
        loop {
            for _ in 0..POLLS {
                if let Some(found) = poll() {
                    self.limit = self.limit.saturating_mul(2).min(self.most);
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now - start >= self.limit || now >= deadline {
                self.limit = (self.limit / 2).max(self.most / 32);
                return None;
            }
            if now - start >= ALONE {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn waits_that_end_in_sleep_shorten_the_spinning_and_short_waits_restore_it() {
        let most = Duration::from_millis(2);
        let far = Instant::now() + Duration::from_secs(60);
        let mut backoff = Backoff::new(most);
        for _ in 0..10 {
            assert_eq!(backoff.spin(far, &mut || None::<()>), None);
        }
        assert_eq!(backoff.limit, most / 32);
        for _ in 0..10 {
            let mut polls = 0;
            let found = backoff.spin(far, &mut || {
                polls += 1;
                (polls == 2).then_some(())
            });
            assert_eq!(found, Some(()));
        }
        assert_eq!(backoff.limit, most);
    }

    #[test]
    fn no_spinning_is_one_look() {
        let mut polls = 0;
        let far = Instant::now() + Duration::from_secs(60);
        let found: Option<()> = Backoff::new(Duration::ZERO).spin(far, &mut || {
            polls += 1;
            None
        });
        assert_eq!((found, polls), (None, 1));
    }
}
