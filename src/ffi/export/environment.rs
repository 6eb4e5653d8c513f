//! Environments.
#![allow(unsafe_code)]

use std::pin::Pin;

use super::bootstrap::{Borrowed, Ready};
use super::bridge::{Entry, EnvSettings, MaybeSize, Members};
use super::report::guard;
use super::{Communicator, Environment, Report};
use crate::bootstrap::foreign::Foreign;
use crate::environment::{EnvConfig, Setting};
use crate::error::{Error, Result};
use crate::ffi::foreign::Bootstrap;
use crate::group::Config;

/// # Safety
/// The device is null or lives through the call.
unsafe fn config(settings: &EnvSettings) -> Result<EnvConfig> {
    let size = |size: MaybeSize| size.set.then_some(size.value);
    Ok(EnvConfig {
        tensor_parallel_size: settings.tensor_parallel_size,
        pipeline_parallel_size: settings.pipeline_parallel_size,
        data_parallel_size: settings.data_parallel_size,
        data_parallel_rank: size(settings.data_parallel_rank),
        rank: size(settings.rank),
        world_size: size(settings.world_size),
        local_rank: size(settings.local_rank),
        init_method: settings.init_method.parse()?,
        // SAFETY: caller's duty.
        device: unsafe { settings.device.as_ref() }.cloned(),
        communicator: Config::try_from(&settings.communicator)?,
        ..EnvConfig::default()
    })
}

/// # Safety
/// As `config`.
pub(super) unsafe fn environment_init(settings: &EnvSettings) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init(unsafe { config(settings) }?).map(Box::new))
}

/// # Safety
/// As `config`.
pub(super) unsafe fn environment_init_on(
    bootstrap: Pin<&mut Bootstrap>,
    settings: &EnvSettings,
) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init_on(Foreign::new(bootstrap)?, unsafe { config(settings) }?).map(Box::new))
}

/// # Safety
/// As `config`.
pub(super) unsafe fn environment_init_ready(
    ready: &mut Ready,
    settings: &EnvSettings,
) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init_on(Borrowed(ready), unsafe { config(settings) }?).map(Box::new))
}

/// The world, then each parallelism in the order of its numbers.
pub(super) fn environment_groups(environment: &Environment) -> Vec<Members> {
    environment.coordinators().iter().map(|group| Members { ranks: group.ranks().to_vec() }).collect()
}

pub(super) fn environment_communicator(environment: &Environment, group: usize) -> Result<Box<Communicator>, Report> {
    let absent = || Error::invalid("the number of a group", group, "there are 5");
    guard(|| {
        let coordinator = environment.coordinators().get(group).ok_or_else(absent)?;
        Ok(Box::new(coordinator.communicator()?.clone()))
    })
}

pub(super) fn environment_settings(environment: &Environment) -> Vec<Entry> {
    let entry = |setting: &Setting| Entry {
        name: setting.name.to_owned(),
        value: setting.value.clone(),
        source: setting.source.to_string(),
    };
    environment.settings().iter().map(entry).collect()
}

pub(super) fn environment_close(environment: &Environment) -> Result<(), Report> {
    guard(|| environment.close_groups())
}
