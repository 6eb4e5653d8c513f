//! The state of NVSHMEM in this process; a process has at most one NVSHMEM.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fork::Maker;

struct State {
    /// Whether a session has initialised NVSHMEM and not ended it.
    opened: bool,
    /// The number of sessions that joined.
    joined: usize,
    /// The reason why NVSHMEM may not be called any more.
    ended: Option<Error>,
}

static STATE: Mutex<State> = Mutex::new(State { opened: false, joined: 0, ended: None });

/// A session's claim on the process's NVSHMEM, released when the session closes or this is dropped.
pub(super) struct Claim {
    maker: Maker,
    opened: bool,
    held: AtomicBool,
}

impl Claim {
    /// The claim of a session that initialises NVSHMEM.
    pub(super) fn open() -> Result<Self> {
        check()?;
        let mut state = STATE.lock();
        if state.opened {
            let reason = "this process has a session that was not closed; another session joins it";
            return Err(Error::unsupported("another session of NVSHMEM", reason));
        }
        state.opened = true;
        Ok(Self { maker: Maker::this(), opened: true, held: true.into() })
    }

    /// The claim of a session on an NVSHMEM that is already initialised.
    pub(super) fn join() -> Result<Self> {
        check()?;
        STATE.lock().joined += 1;
        Ok(Self { maker: Maker::this(), opened: false, held: true.into() })
    }

    /// Whether this session initialised NVSHMEM, and so ends it.
    pub(super) fn opened(&self) -> bool {
        self.opened
    }

    /// Lets another session open.
    pub(super) fn give_back(&self) {
        if !self.held.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = STATE.lock();
        match self.opened {
            true => state.opened = false,
            false => state.joined -= 1,
        }
    }

    /// Refuses to end NVSHMEM while other sessions use it.
    pub(super) fn check_alone(&self) -> Result<()> {
        match STATE.lock().joined {
            joined if self.opened && joined > 0 => {
                let reason = format!("sessions that joined it are still there: {joined}");
                Err(Error::unsupported("to close the session that initialised NVSHMEM", reason))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.maker.is_here() {
            self.give_back();
        }
    }
}

/// Records that NVSHMEM may not be called any more in this process. The first reason stays.
pub(super) fn end(error: &Error) {
    STATE.lock().ended.get_or_insert_with(|| error.clone());
}

/// Refuses calls after [`end`].
pub(super) fn check() -> Result<()> {
    match &STATE.lock().ended {
        None => Ok(()),
        Some(error) => {
            Err(Error::unsupported("NVSHMEM in this process", format!("it was given up after an error: {error}")))
        }
    }
}
