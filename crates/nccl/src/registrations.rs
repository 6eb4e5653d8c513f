//! Registrations of memory, which change nothing.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::abi::Handle;
use crate::error::{CallFailure, Result};

/// Registrations of a communicator: how often each range was registered.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<HashMap<usize, usize>>);

impl Registrations {
    /// Counts a registration. The handle is the address.
    pub(crate) fn add(&self, address: usize) -> Handle {
        *self.0.lock().entry(address).or_insert(0) += 1;
        address as Handle
    }

    pub(crate) fn remove(&self, handle: Handle) -> Result {
        let mut counts = self.0.lock();
        match counts.get_mut(&(handle as usize)) {
            Some(1) => drop(counts.remove(&(handle as usize))),
            Some(count) => *count -= 1,
            None => return Err(CallFailure::usage(format!("{handle:p} is no registration of the communicator"))),
        }
        Ok(())
    }
}
