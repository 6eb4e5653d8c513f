//! The bootstraps of this library.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use cxx::{CxxString, UniquePtr};
use parking_lot::Mutex;

use super::Report;
use super::report::guard;
use crate::bootstrap::foreign::Foreign;
use crate::bootstrap::{Bootstrap, Local, Tcp, Threads, UniqueId, until};
use crate::error::{Error, Result};
use crate::sys::foreign as sys;

/// A bootstrap of this library.
pub struct Ready(pub(super) Box<dyn Bootstrap>);

/// The ranks of a world of threads that have not been taken.
pub struct World(Mutex<VecDeque<Threads>>);

/// A unique id, until it is used.
pub struct Id(Mutex<Option<UniqueId>>);

/// A bootstrap of this library, borrowed while a group opens.
pub(super) struct Borrowed<'a>(pub(super) &'a mut Ready);

impl Bootstrap for Borrowed<'_> {
    fn rank(&self) -> usize {
        self.0.0.rank()
    }

    fn world_size(&self) -> usize {
        self.0.0.world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.0.0.all_gather(bytes, deadline)
    }
}

fn ready(bootstrap: impl Bootstrap + 'static) -> Box<Ready> {
    Box::new(Ready(Box::new(bootstrap)))
}

/// The deadline of a call that starts now.
fn deadline(timeout_ms: u64) -> Instant {
    until(Duration::from_millis(timeout_ms))
}

pub(super) fn world_of_threads(world_size: usize) -> Result<Box<World>, Report> {
    guard(|| Ok(Box::new(World(Mutex::new(Threads::new(world_size)?.into())))))
}

pub(super) fn world_take(world: &World) -> Result<Box<Ready>, Report> {
    guard(|| {
        let rank = world.0.lock().pop_front();
        let reason = "every rank of the world was taken";
        rank.map(ready).ok_or_else(|| Error::unsupported("to take another rank of a world of threads", reason))
    })
}

pub(super) fn ready_local(
    directory: &CxxString,
    rank: usize,
    world_size: usize,
    timeout_ms: u64,
) -> Result<Box<Ready>, Report> {
    let directory = OsStr::from_bytes(directory.as_bytes());
    guard(|| Local::connect(directory, rank, world_size, deadline(timeout_ms)).map(ready))
}

pub(super) fn ready_tcp_from_env(timeout_ms: u64) -> Result<Box<Ready>, Report> {
    guard(|| Tcp::from_env(deadline(timeout_ms)).map(ready))
}

pub(super) fn ready_tcp(id: &Id, rank: usize, world_size: usize, timeout_ms: u64) -> Result<Box<Ready>, Report> {
    guard(|| Tcp::from_id(id.0.lock().take().ok_or_else(used)?, rank, world_size, deadline(timeout_ms)).map(ready))
}

/// A bootstrap that the program implements in C++ and that Rust owns.
pub(super) fn ready_of(bootstrap: UniquePtr<sys::Bootstrap>) -> Result<Box<Ready>, Report> {
    guard(|| Foreign::new(bootstrap).map(ready))
}

pub(super) fn ready_rank(ready: &Ready) -> usize {
    ready.0.rank()
}

pub(super) fn ready_world_size(ready: &Ready) -> usize {
    ready.0.world_size()
}

pub(super) fn ready_all_gather(
    ready: &mut Ready,
    send: &[u8],
    receive: &mut [u8],
    timeout_ms: u64,
) -> Result<(), Report> {
    guard(|| scatter(&ready.0.all_gather(send, deadline(timeout_ms))?, ready.0.rank(), receive))
}

/// Splits the bytes of all ranks, in rank order. The bytes of each rank must be as long as its share of `receive`.
pub(super) fn scatter(all: &[Vec<u8>], own: usize, receive: &mut [u8]) -> Result<()> {
    let share = receive.len() / all.len().max(1);
    for (rank, bytes) in all.iter().enumerate() {
        if bytes.len() != share {
            let (ours, theirs) = (share.to_string(), bytes.len().to_string());
            let what = "the bytes of an all-gather".to_owned();
            return Err(Error::Mismatch { what, against: own, ours, rank, theirs });
        }
        receive[rank * share..][..share].copy_from_slice(bytes);
    }
    Ok(())
}

pub(super) fn unique_id_listen() -> Result<Box<Id>, Report> {
    guard(|| UniqueId::listen().map(id))
}

pub(super) fn unique_id_listen_at(interface: &CxxString) -> Result<Box<Id>, Report> {
    guard(|| UniqueId::listen_at(&interface.to_string_lossy()).map(id))
}

pub(super) fn unique_id_parse(text: &CxxString) -> Result<Box<Id>, Report> {
    guard(|| text.to_string_lossy().parse().map(id))
}

pub(super) fn unique_id_text(id: &Id) -> Result<String, Report> {
    guard(|| id.0.lock().as_ref().map(ToString::to_string).ok_or_else(used))
}

fn id(id: UniqueId) -> Box<Id> {
    Box::new(Id(Mutex::new(Some(id))))
}

fn used() -> Error {
    Error::invalid("the unique id", "used up", "it opens one bootstrap")
}
