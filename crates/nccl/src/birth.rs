//! The opening of a communicator: at once, at the end of a group, or by a thread while the program polls.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::abi::{self, Code, Handle};
use crate::at_once::at_once;
use crate::comm::{Comm, ServingLibrary};
use crate::error::{CallFailure, Result};
use crate::registry;

/// The collective part of an opening. `None` where this rank gets no communicator.
type OpenTask = Box<dyn FnOnce() -> Result<Option<ServingLibrary>> + Send>;

/// An opening that this rank takes part in.
pub(crate) struct Birth {
    /// `None` for a rank that takes part in a split without a part of its own.
    child: Option<Child>,
    returns_early: bool,
    /// The communicator that is split: the opening is its step until all parts are open.
    parent: Option<Arc<Comm>>,
    open: OpenTask,
}

/// The communicator that opens.
struct Child {
    comm: Arc<Comm>,
    handle: Handle,
    /// Where the program keeps the handle.
    place: *mut Handle,
}

impl Child {
    /// Ends the opening. A communicator that did not open has no handle.
    fn end(self, side: Result<Option<ServingLibrary>>) -> Result {
        self.comm.opened(present(side)).inspect_err(|_| self.withdraw())
    }

    /// Takes the handle back.
    fn withdraw(&self) {
        registry::remove(self.handle);
        // SAFETY: the promise of `Birth::new`.
        unsafe { self.place.write(std::ptr::null_mut()) };
    }
}

/// The library that serves a communicator of this rank.
fn present(side: Result<Option<ServingLibrary>>) -> Result<ServingLibrary> {
    side.and_then(|side| side.ok_or_else(|| CallFailure::usage("this rank is in no part")))
}

/// Ends an opening, with or without a communicator of this rank.
fn end(child: Option<Child>, side: Result<Option<ServingLibrary>>) -> Result {
    match child {
        Some(child) => child.end(side),
        None => side.map(drop),
    }
}

impl Birth {
    /// Gives the communicator a handle and writes the handle to `place`.
    ///
    /// # Safety
    /// `place` is an `ncclComm_t` of the program. It stays until the call returns, or until the outermost group has ended.
    pub(crate) unsafe fn new(
        place: *mut Handle,
        comm: Comm,
        open: impl FnOnce() -> Result<Option<ServingLibrary>> + Send + 'static,
    ) -> Result<Self> {
        let returns_early = comm.config.returns_early;
        let comm = Arc::new(comm);
        let handle = registry::insert(comm.clone())?;
        // SAFETY: the caller's promise.
        unsafe { place.write(handle) };
        Ok(Self { child: Some(Child { comm, handle, place }), returns_early, parent: None, open: Box::new(open) })
    }

    /// An opening of other ranks that this rank takes part in.
    pub(crate) fn of_others(
        returns_early: bool,
        open: impl FnOnce() -> Result<Option<ServingLibrary>> + Send + 'static,
    ) -> Self {
        Self { child: None, returns_early, parent: None, open: Box::new(open) }
    }

    /// The opening as a step of a communicator. The step begins when the opening runs: operations of the same group on the
    /// communicator run after all openings that do not return early.
    pub(crate) fn in_step_of(self, parent: Arc<Comm>) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// Begins the step of the parent. The opening ends the step.
    fn begin(self) -> (Option<Child>, OpenTask) {
        let Self { child, parent, open, .. } = self;
        let Some(parent) = parent else { return (child, open) };
        let step = parent.begin_step();
        let opens = move || {
            let _step = step;
            open()
        };
        (child, Box::new(opens))
    }

    pub(crate) fn returns_early(&self) -> bool {
        self.returns_early
    }

    /// Whether the opening splits the communicator.
    pub(crate) fn is_step_of(&self, comm: &Arc<Comm>) -> bool {
        self.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, comm))
    }

    /// Ends an opening that a group drops: the group has failed, or was simulated.
    pub(crate) fn give_up(self) {
        if let Some(child) = self.child {
            child.comm.give_up();
            child.withdraw();
        }
    }

    /// Opens the communicator, or starts a thread that does so.
    pub(crate) fn run(self) -> Result<Code> {
        let returns_early = self.returns_early;
        let (child, open) = self.begin();
        if !returns_early {
            let side = open();
            return end(child, side).map(|()| abi::SUCCESS);
        }
        // The program keeps the handle of a communicator that did not open, and reads the failure by the handle.
        let comm = child.map(|child| child.comm);
        let started = std::thread::Builder::new().name("symmetra-open".to_owned()).spawn(move || {
            let side = open();
            if let Some(comm) = comm {
                // The communicator keeps the failure.
                let _ = comm.opened(present(side));
            }
        });
        started.map(|_| abi::IN_PROGRESS).map_err(|error| CallFailure::system(format!("starting a thread: {error}")))
    }

    /// Opens the communicators of a group, all at the same time.
    pub(crate) fn run_all(births: Vec<Self>) -> Result<Code> {
        if births.len() < 2 || births.iter().all(Self::returns_early) {
            return births.into_iter().try_fold(abi::SUCCESS, |code, birth| Ok(code.max(birth.run()?)));
        }
        let (children, opens): (Vec<_>, Vec<_>) = births.into_iter().map(Self::begin).unzip();
        let sides = at_once(opens, "a communicator opened");
        // Every opening ends before the first failure is returned.
        let ended: Vec<Result> = children.into_iter().zip(sides).map(|(child, side)| end(child, side)).collect();
        ended.into_iter().collect::<Result>().map(|()| abi::SUCCESS)
    }
}
