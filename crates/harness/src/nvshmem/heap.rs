//! A session of NVSHMEM for the buffers of a measurement.

use symmetra::nvshmem::{Buffer, Library, Plugin, Session};
use symmetra::{Communicator, Element};

use crate::failure::CommandFailure;

/// NVSHMEM with the ranks of a run.
pub struct Heap(Session);

impl Heap {
    /// Loads NVSHMEM and initialises it. Collective.
    pub fn open(communicator: &Communicator) -> Result<Self, CommandFailure> {
        Ok(Self(Session::open(Library::find(None), communicator)?))
    }

    /// Makes a buffer on every rank.
    pub fn buffer<T: Element>(&self, elems: usize) -> symmetra::Result<Buffer<T>> {
        self.0.symmetric(elems)
    }

    /// Frees the buffers and ends NVSHMEM. Collective.
    pub fn close(&self) -> Result<(), CommandFailure> {
        Ok(self.0.close()?)
    }
}

/// The library that a session would load, and its bootstrap plugin; `None` in a build without.
pub fn describe() -> Option<symmetra::Result<(String, symmetra::Result<String>)>> {
    let plugin = |plugin: Plugin| match plugin.version() {
        Some(version) => format!("version {version}, {}", plugin.path().display()),
        None => format!("of an unknown version, {}", plugin.path().display()),
    };
    Some(Library::find(None).map(|library| (library.name().to_owned(), library.bootstrap_plugin().map(plugin))))
}
