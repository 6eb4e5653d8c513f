//! Steps of several communicators of this process that wait for each other.

use crate::abi;
use crate::error::{CallFailure, Result};

/// Runs all steps at the same time, and returns their results when all have ended. `doing` completes the text of a panic.
pub(crate) fn at_once<T: Send>(steps: Vec<impl FnOnce() -> Result<T> + Send>, doing: &str) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = steps.into_iter().map(|step| scope.spawn(step)).collect();
        let panicked = || Err(CallFailure::new(abi::INTERNAL_ERROR, format!("a panic while {doing}")));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    })
}
