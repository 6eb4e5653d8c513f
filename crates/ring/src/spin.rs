//! How long to spin before sleeping.

use std::time::{Duration, Instant};

/// Polls between two looks at the clock.
const POLLS: u32 = 64;
/// Who has spun for longer lets others run between looks: what it waits for may need this processor.
const ALONE: Duration = Duration::from_micros(20);

/// Spins for as long as spinning has been paying off lately: a wait that ended while spinning
/// doubles the next limit, one that had to sleep halves it, within 1/32 of the most and the most.
pub(super) struct Spin {
    most: Duration,
    limit: Duration,
}

impl Spin {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, limit: most }
    }

    /// Polls until something is found, the limit is reached or `deadline` passed.
    pub(super) fn spin<T>(&mut self, deadline: Instant, poll: &mut impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = poll() {
            return Some(found); // says nothing about how long a wait takes
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
        let mut spin = Spin::new(most);
        for _ in 0..10 {
            assert_eq!(spin.spin(far, &mut || None::<()>), None);
        }
        assert_eq!(spin.limit, most / 32);
        for _ in 0..10 {
            let mut polls = 0;
            let found = spin.spin(far, &mut || {
                polls += 1;
                (polls == 2).then_some(())
            });
            assert_eq!(found, Some(()));
        }
        assert_eq!(spin.limit, most);
    }

    #[test]
    fn no_spinning_is_one_look() {
        let mut polls = 0;
        let far = Instant::now() + Duration::from_secs(60);
        let found: Option<()> = Spin::new(Duration::ZERO).spin(far, &mut || {
            polls += 1;
            None
        });
        assert_eq!((found, polls), (None, 1));
    }
}
