//! Environments.
#![allow(unsafe_code)]

use std::pin::Pin;

use super::bootstrap::{Borrowed, Ready};
use super::bridge::{Entry, EnvSettings, Machine, MaybeQuantised};
use super::mirror::{Mirrored, value};
use super::report::guard;
use super::{Environment, Report};
use crate::bootstrap::foreign::Foreign;
use crate::environment::{EnvConfig, InitMethod, QuantisedAllReduce, Setting};
use crate::error::Result;
use crate::sys::foreign::Bootstrap;

fn quantised(settings: &MaybeQuantised) -> Result<Option<QuantisedAllReduce>> {
    let MaybeQuantised { set, codec, min_bytes, max_bytes } = settings;
    let made = |codec| -> Result<_> {
        let (min_bytes, max_bytes) = (Mirrored::of_mirror(min_bytes)?, Mirrored::of_mirror(max_bytes)?);
        Ok(QuantisedAllReduce { min_bytes, max_bytes, ..QuantisedAllReduce::new(codec) })
    };
    set.then(|| made(value(*codec)?)).transpose()
}

/// # Safety
/// The device is null or lives through the call.
unsafe fn config(settings: &EnvSettings) -> Result<EnvConfig> {
    Ok(EnvConfig {
        tensor_parallel_size: settings.tensor_parallel_size,
        pipeline_parallel_size: settings.pipeline_parallel_size,
        data_parallel_size: settings.data_parallel_size,
        data_parallel_rank: Mirrored::of_mirror(&settings.data_parallel_rank)?,
        rank: Mirrored::of_mirror(&settings.rank)?,
        world_size: Mirrored::of_mirror(&settings.world_size)?,
        local_rank: Mirrored::of_mirror(&settings.local_rank)?,
        init_method: settings.init_method.parse()?,
        // SAFETY: caller's duty.
        device: unsafe { settings.device.as_ref() }.cloned(),
        host: Mirrored::of_mirror(&settings.host)?,
        interface: Mirrored::of_mirror(&settings.interface)?,
        backend: Mirrored::of_mirror(&settings.backend)?,
        quantised: quantised(&settings.quantised)?,
        communicator: Mirrored::of_mirror(&settings.communicator)?,
    })
}

/// # Safety
/// The requirements of `config`.
pub(super) unsafe fn environment_init(settings: &EnvSettings) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init(unsafe { config(settings) }?).map(Box::new))
}

/// # Safety
/// The requirements of `config`.
pub(super) unsafe fn environment_init_on(
    bootstrap: Pin<&mut Bootstrap>,
    settings: &EnvSettings,
) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init_on(Foreign::new(bootstrap)?, unsafe { config(settings) }?).map(Box::new))
}

/// # Safety
/// The requirements of `config`.
pub(super) unsafe fn environment_init_ready(
    ready: &mut Ready,
    settings: &EnvSettings,
) -> Result<Box<Environment>, Report> {
    // SAFETY: caller's duty.
    guard(|| Environment::init_on(Borrowed(ready), unsafe { config(settings) }?).map(Box::new))
}

/// # Safety
/// The requirements of `config`.
pub(super) unsafe fn environment_init_taking(
    ready: Box<Ready>,
    settings: &EnvSettings,
) -> Result<Box<Environment>, Report> {
    guard(|| {
        let init_method = InitMethod::Bootstrap(ready.0);
        // SAFETY: caller's duty.
        let config = EnvConfig { init_method, ..unsafe { config(settings) }? };
        Environment::init(config).map(Box::new)
    })
}

pub(super) fn environment_hosts(environment: &Environment) -> Vec<Machine> {
    let hosts = environment.hosts();
    let machine = |node| Machine { name: hosts.name(node).unwrap_or_default().to_owned(), ranks: hosts.ranks(node) };
    (0..hosts.count()).map(machine).collect()
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
