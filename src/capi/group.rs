//! Groups outside an environment, and the groups into which they split.

use parking_lot::Mutex;

use super::bootstrap::Ready;
use super::bridge::{Color, GroupSettings};
use super::mirror::Mirrored;
use super::report::guard;
use super::{Coordinator, Device, Report};
use crate::environment::GroupConfig;
use crate::error::Result;
use crate::group::joined;

pub(super) fn coordinator_open(
    ready: Box<Ready>,
    device: &Device,
    settings: &GroupSettings,
) -> Result<Box<Coordinator>, Report> {
    guard(|| Coordinator::open(ready.0, device, GroupConfig::of_mirror(settings)?).map(Box::new))
}

/// This rank's group of a split, until C++ takes it.
pub struct CoordinatorPart(Mutex<Option<Coordinator>>);

pub(super) fn coordinator_split(
    coordinator: &Coordinator,
    color: Color,
    key: i32,
) -> Result<Box<CoordinatorPart>, Report> {
    let color = color.set.then_some(color.value);
    guard(|| Ok(Box::new(CoordinatorPart(Mutex::new(coordinator.split(color, key)?)))))
}

pub(super) fn coordinator_part_is_member(part: &CoordinatorPart) -> bool {
    part.0.lock().is_some()
}

pub(super) fn coordinator_part_take(part: &CoordinatorPart) -> Result<Box<Coordinator>, Report> {
    guard(|| joined(part.0.lock().take()).map(Box::new))
}

pub(super) fn coordinator_close(coordinator: &Coordinator) -> Result<(), Report> {
    guard(|| coordinator.close_alone())
}

pub(super) fn coordinator_depart(coordinator: &Coordinator) -> Result<(), Report> {
    guard(|| coordinator.depart_alone())
}
