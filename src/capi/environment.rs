//! Environments.
#![allow(unsafe_code)]

use std::pin::Pin;

use super::bootstrap::{Borrowed, Ready};
use super::bridge::{Entry, EnvSettings, Machine, MaybeQuantised, MaybeSize, MaybeText};
use super::config::codec;
use super::coordinator::backend;
use super::report::guard;
use super::{Environment, Report};
use crate::bootstrap::foreign::Foreign;
use crate::environment::{EnvConfig, InitMethod, QuantisedAllReduce, Setting};
use crate::error::Result;
use crate::group::Config;
use crate::sys::foreign::Bootstrap;

fn quantised(settings: &MaybeQuantised) -> Result<Option<QuantisedAllReduce>> {
    let bytes = |size: MaybeSize| size.set.then_some(size.value as u64);
    let (min_bytes, max_bytes) = (bytes(settings.min_bytes), bytes(settings.max_bytes));
    let made = |codec| QuantisedAllReduce { min_bytes, max_bytes, ..QuantisedAllReduce::new(codec) };
    settings.set.then(|| codec(settings.codec).map(made)).transpose()
}

/// # Safety
/// The device is null or lives through the call.
unsafe fn config(settings: &EnvSettings) -> Result<EnvConfig> {
    let size = |size: MaybeSize| size.set.then_some(size.value);
    let text = |text: &MaybeText| text.set.then(|| text.value.clone());
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
        host: text(&settings.host),
        interface: text(&settings.interface),
        backend: size(settings.backend).map(|number| backend(u32::try_from(number).unwrap_or(u32::MAX))).transpose()?,
        quantised: quantised(&settings.quantised)?,
        communicator: Config::try_from(&settings.communicator)?,
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
