//! Tests of `src/memory/multicast.rs`, whose module they are.

use std::cell::RefCell;

use super::*;

thread_local! {
    /// The steps in which this thread's rank fails, each once, and how.
    static FAULTS: RefCell<Vec<(Step, Error)>> = const { RefCell::new(Vec::new()) };
}

/// The failure of this rank in a step, if a test asks for one.
pub(super) fn fault(step: Step) -> Result<()> {
    FAULTS.with_borrow_mut(|faults| match faults.iter().position(|(at, _)| *at == step) {
        Some(at) => Err(faults.remove(at).1),
        None => Ok(()),
    })
}
