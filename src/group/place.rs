//! The parallel group that a group is: its name and world ranks, for messages and observers.

use std::fmt;

use super::Group;
use crate::error::Error;

/// A parallel group.
pub(super) struct ParallelGroup {
    pub(super) name: String,
    /// The world rank of each rank of this group.
    pub(super) world: Vec<usize>,
    /// Whether errors have the rank numbers of this group; else they have those of a larger group on several hosts.
    pub(super) numbers_errors: bool,
}

impl Group {
    /// Names the group in warnings, and in errors if these have the rank numbers of this group. `world` has the world
    /// rank of each rank. The first name stays.
    pub(crate) fn call_by(&self, name: &str, world: &[usize], numbers_errors: bool) {
        let (name, world) = (name.to_owned(), world.to_vec());
        let place = self.0.health.place.get_or_init(|| ParallelGroup { name, world, numbers_errors });
        self.0.health.pages[self.0.rank].identity().call(&place.name, &place.world);
        self.0.mesh.lock().place(&place.name, &place.world);
    }

    /// The name of the parallel group in marks for tools; the number of ranks of a group without a name.
    pub(crate) fn label(&self) -> Label<'_> {
        Label(self)
    }

    /// An error with the name of the parallel group, and world ranks.
    pub(crate) fn placed(&self, error: Error) -> Error {
        self.0.health.placed(error)
    }
}

/// The text of [`Group::label`], which is made only when a tool reads it.
pub(crate) struct Label<'a>(&'a Group);

impl fmt::Display for Label<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0.health.place.get() {
            Some(place) => out.write_str(&place.name),
            None => write!(out, "a group of {}", self.0.0.world_size),
        }
    }
}
