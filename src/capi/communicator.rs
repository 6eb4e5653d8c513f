//! Communicators.

use std::pin::Pin;

use parking_lot::Mutex;

use super::bootstrap::{Borrowed, Ready, scatter};
use super::bridge::{Color, Settings};
use super::mirror::Mirrored;
use super::report::guard;
use super::{Communicator, Device, Report, Stream};
use crate::bootstrap::foreign::Foreign;
use crate::error::Result;
use crate::group::{Config, joined};
use crate::sys::foreign::Bootstrap;

pub(super) fn communicator_open(
    bootstrap: Pin<&mut Bootstrap>,
    device: &Device,
    settings: &Settings,
) -> Result<Box<Communicator>, Report> {
    guard(|| Communicator::open(Foreign::new(bootstrap)?, device, Config::of_mirror(settings)?).map(Box::new))
}

pub(super) fn communicator_open_ready(
    ready: &mut Ready,
    device: &Device,
    settings: &Settings,
) -> Result<Box<Communicator>, Report> {
    guard(|| Communicator::open(Borrowed(ready), device, Config::of_mirror(settings)?).map(Box::new))
}

/// This rank's communicator of a split, until C++ takes it.
pub struct Part(Mutex<Option<Communicator>>);

pub(super) fn communicator_split(communicator: &Communicator, color: Color, key: i32) -> Result<Box<Part>, Report> {
    let color = color.set.then_some(color.value);
    guard(|| Ok(Box::new(Part(Mutex::new(communicator.split(color, key)?)))))
}

pub(super) fn part_is_member(part: &Part) -> bool {
    part.0.lock().is_some()
}

pub(super) fn part_take(part: &Part) -> Result<Box<Communicator>, Report> {
    guard(|| joined(part.0.lock().take()).map(Box::new))
}

/// A second handle.
pub(super) fn communicator_again(communicator: &Communicator) -> Box<Communicator> {
    Box::new(communicator.clone())
}

/// A second handle, whose calls carry a tag.
pub(super) fn communicator_tagged(communicator: &Communicator, tag: u64) -> Box<Communicator> {
    Box::new(communicator.tagged(tag))
}

pub(super) fn communicator_rank(communicator: &Communicator) -> usize {
    communicator.rank()
}

pub(super) fn communicator_world_size(communicator: &Communicator) -> usize {
    communicator.world_size()
}

pub(super) fn communicator_device(communicator: &Communicator) -> Box<Device> {
    Box::new(communicator.device().clone())
}

pub(super) fn communicator_barrier(communicator: &Communicator) -> Result<(), Report> {
    guard(|| communicator.group().barrier())
}

pub(super) fn communicator_all_gather(
    communicator: &Communicator,
    send: &[u8],
    receive: &mut [u8],
) -> Result<(), Report> {
    guard(|| scatter(&communicator.group().all_gather_bytes(send)?, communicator.rank(), receive))
}

pub(super) fn communicator_synchronize(communicator: &Communicator, stream: &Stream) -> Result<(), Report> {
    guard(|| communicator.synchronize(stream))
}

pub(super) fn communicator_leave(communicator: &Communicator, stream: &Stream) -> Result<(), Report> {
    guard(|| communicator.leave(stream))
}

pub(super) fn communicator_check_guards(communicator: &Communicator) -> Result<(), Report> {
    guard(|| communicator.check_guards())
}

pub(super) fn communicator_check(communicator: &Communicator) -> Result<(), Report> {
    guard(|| communicator.group().check())
}

/// Only stores flags, and cannot panic.
pub(super) fn communicator_abort(communicator: &Communicator) {
    communicator.abort();
}

pub(super) fn communicator_close(communicator: &Communicator) -> Result<(), Report> {
    guard(|| communicator.clone().close())
}

pub(super) fn communicator_abandon(communicator: &Communicator) {
    communicator.clone().abandon();
}

pub(super) fn communicator_depart(communicator: &Communicator) -> Result<(), Report> {
    guard(|| communicator.clone().depart())
}
