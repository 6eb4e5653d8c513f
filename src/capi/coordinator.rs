//! Parallel groups.

use std::pin::Pin;

use super::bridge::{Bytes, Recorder};
use super::capture::capture_with;
use super::mirror::value;
use super::report::guard;
use super::{Communicator, Coordinator, Environment, Graph, Report, Stream};
use crate::environment::Backend;
use crate::error::{Error, Result};

/// Group 0 is the world; the others follow the numbers of the parallelisms.
pub(super) fn environment_coordinator(environment: &Environment, group: usize) -> Result<Box<Coordinator>, Report> {
    let absent = || Error::invalid("the number of a group", group, "there are 5");
    guard(|| environment.coordinators().get(group).cloned().map(Box::new).ok_or_else(absent))
}

/// A second handle, whose calls carry a tag.
pub(super) fn coordinator_tagged(coordinator: &Coordinator, tag: u64) -> Box<Coordinator> {
    Box::new(coordinator.tagged(tag))
}

pub(super) fn coordinator_name(coordinator: &Coordinator) -> &'static str {
    coordinator.name()
}

pub(super) fn coordinator_rank(coordinator: &Coordinator) -> usize {
    coordinator.rank()
}

pub(super) fn coordinator_ranks(coordinator: &Coordinator) -> Vec<usize> {
    coordinator.ranks().to_vec()
}

pub(super) fn coordinator_local(coordinator: &Coordinator) -> Box<Communicator> {
    Box::new(coordinator.local().clone())
}

pub(super) fn coordinator_abort(coordinator: &Coordinator, reason: &str) -> Result<(), Report> {
    guard(|| {
        coordinator.abort(reason);
        Ok(())
    })
}

/// Succeeds if [`coordinator_local`] is the whole group.
pub(super) fn coordinator_is_local(coordinator: &Coordinator) -> Result<(), Report> {
    guard(|| coordinator.communicator().map(drop))
}

pub(super) fn coordinator_through(coordinator: &Coordinator, number: u32) -> Result<Box<Coordinator>, Report> {
    guard(|| coordinator.through(value(number)?).map(Box::new))
}

pub(super) fn backend_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Backend::name))
}

pub(super) fn backend_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(|backend: Backend| backend as u32))
}

pub(super) fn coordinator_synchronize(coordinator: &Coordinator, stream: &Stream) -> Result<(), Report> {
    guard(|| coordinator.synchronize(stream))
}

pub(super) fn coordinator_leave(coordinator: &Coordinator, stream: &Stream) -> Result<(), Report> {
    guard(|| coordinator.leave(stream))
}

pub(super) fn coordinator_check(coordinator: &Coordinator) -> Result<(), Report> {
    guard(|| coordinator.check())
}

pub(super) fn coordinator_barrier(coordinator: &Coordinator) -> Result<(), Report> {
    guard(|| coordinator.barrier())
}

pub(super) fn coordinator_capture(
    coordinator: &Coordinator,
    stream: &Stream,
    recorder: Pin<&mut Recorder>,
) -> Result<Box<Graph>, Report> {
    guard(|| capture_with(recorder, |record| coordinator.capture(stream, record)))
}

/// `given`: whether `bytes` were passed.
pub(super) fn coordinator_broadcast(
    coordinator: &Coordinator,
    given: bool,
    bytes: &[u8],
    root: usize,
) -> Result<Vec<u8>, Report> {
    guard(|| coordinator.broadcast_bytes(Ok(given.then_some(bytes)), root))
}

/// Empty on a rank that is not the root.
pub(super) fn coordinator_gather(coordinator: &Coordinator, bytes: &[u8], root: usize) -> Result<Vec<Bytes>, Report> {
    guard(|| {
        let all = coordinator.gather_bytes(Ok(bytes), root)?.unwrap_or_default();
        Ok(all.into_iter().map(|bytes| Bytes { bytes }).collect())
    })
}
