//! The memory and the method of experts, computed before they are opened.

use super::choice::{MethodFacts, chosen, is_exact, may_be_packets};
use super::config::{ExpertConfig, Method};
use super::form::ExpertForm;
use super::packets::PacketForm;
use crate::device::DeviceKind;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::group::Config;

/// Bytes of the symmetric heap that experts with these settings use on each rank, without the overhead of a symmetric buffer:
/// see [`Communicator::symmetric`](crate::Communicator::symmetric). `group` has the settings of the group. For
/// [`Method::Auto`], the largest of the methods that the library may choose, on any kind of device.
///
/// # Errors
/// [`Error::InvalidArgument`] for a setting outside its limits.
pub fn expert_bytes(world_size: usize, group: &Config, config: &ExpertConfig) -> Result<u64> {
    config.validate(world_size)?;
    let lists = config.placement.lists(config.experts, world_size)?;
    let form = ExpertForm::new(config, 0, &lists)?;
    let bytes = |method| match method {
        Method::Packets => PacketForm::new(config, &form, is_exact(group, config)).region_bytes,
        method => form.region_bytes(config.in_flight, method),
    };
    let other = match config.method {
        Method::Auto => Method::Direct,
        named => named,
    };
    let most = if may_be_packets(config, &form, group)? { bytes(Method::Packets) } else { 0 };
    Ok(most.max(bytes(other)) as u64)
}

/// The method that serves experts with these settings in a group of devices of this `kind`, which has the settings `group`.
/// `own_kernels`: whether symmetra kernels serve the group, which is always true for a [`Communicator`](crate::Communicator).
///
/// # Errors
/// [`Error::InvalidArgument`] for a setting outside its limits, and for a tuning with another method;
/// [`Error::Unsupported`] for a method that cannot serve.
pub fn expert_method(
    kind: DeviceKind,
    world_size: usize,
    own_kernels: bool,
    group: &Config,
    config: &ExpertConfig,
) -> Result<Method> {
    config.validate(world_size)?;
    let lists = config.placement.lists(config.experts, world_size)?;
    let form = ExpertForm::new(config, 0, &lists)?;
    Ok(chosen(MethodFacts { kind, own_kernels, group }, config, &form)?.method)
}
