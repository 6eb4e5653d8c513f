//! Distinguishes a process from the children that `fork()` creates.
//!
//! A child has copies of the objects, but not the threads that serve them, and it shares the sockets and the memory
//! of its parent. So each object records the process that created it. In another process the object refuses to work,
//! and its drop touches nothing that the two processes share.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// The number of forks between the process that loaded the library and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that created an object.
#[derive(Clone, Copy, Debug)]
pub struct Maker(u32);

impl Maker {
    /// This process.
    pub fn this() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: `in_child` is a function of this library that increments an atomic number, which a child may do
            // between a fork and an exec.
            let code = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            if code != 0 {
                let error = std::io::Error::from_raw_os_error(code);
                crate::log!(WARN, "objects that a forked child uses will not be refused: pthread_atfork: {error}");
            }
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is the maker. Costs one load.
    #[inline]
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses to use `what`, for example "a stream", in a child of the maker. Costs one load.
    #[inline]
    pub fn check(self, what: &str) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(elsewhere(what)) }
    }
}

/// An object that only the process that created it drops. In a forked child the drop does nothing.
pub(crate) struct OfMaker<T> {
    maker: Maker,
    object: ManuallyDrop<T>,
}

impl<T> OfMaker<T> {
    /// An object that this process has just created.
    pub(crate) fn new(object: T) -> Self {
        Self { maker: Maker::this(), object: ManuallyDrop::new(object) }
    }

    /// The process that created the object.
    pub(crate) fn maker(&self) -> Maker {
        self.maker
    }
}

impl<T> Deref for OfMaker<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T> DerefMut for OfMaker<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T> Drop for OfMaker<T> {
    fn drop(&mut self) {
        if self.maker.is_here() {
            // SAFETY: the object is dropped here alone, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.object) }
        }
    }
}

#[cold]
fn elsewhere(what: &str) -> Error {
    Error::unsupported(
        format!("{what} that was made before fork(), in the child,"),
        "the threads that serve it stay in the parent process: the child must open its own device and group",
    )
}
