//! The algorithms and transports that groups would use, without a group.

use super::select::{AlgorithmTable, Reach};
use super::transport::TransportFacts;
use crate::choice::Ranges;
use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::group::{Capabilities, Config, Determinism, Tuning};
use crate::op::Algorithm;
use crate::types::{Dtype, Transport};

/// The transport for each range of bytes from one rank to another, smallest first, for every collective except
/// all-reduce and broadcast, and except reductions of floating types. `direct`: whether peers can address the operand that a
/// direct exchange accesses.
pub fn explain_exchange(kind: DeviceKind, world_size: usize, config: &Config, direct: bool) -> Ranges<Transport> {
    place(kind, world_size, config, direct).ranges()
}

/// The transport of broadcasts for each range of message bytes, smallest first. `direct`: whether peers can address the
/// buffers.
pub fn explain_broadcast(kind: DeviceKind, world_size: usize, config: &Config, direct: bool) -> Ranges<Transport> {
    place(kind, world_size, config, direct).broadcast_ranges()
}

/// The transport of reduce-scatters and reduces of this type, for each range of bytes from one rank to another, smallest
/// first. Integers use LL packets, so the largest exchange by packets is smaller than for floats. `direct`: whether peers can
/// address the input.
pub fn explain_reduction(
    kind: DeviceKind,
    world_size: usize,
    config: &Config,
    dtype: Dtype,
    direct: bool,
) -> Ranges<Transport> {
    place(kind, world_size, config, direct).reduction_ranges(dtype)
}

fn place(kind: DeviceKind, world_size: usize, config: &Config, direct: bool) -> TransportFacts {
    TransportFacts::new(kind, world_size, if direct { Reach::Direct } else { Reach::Pushed }, config)
}

/// The algorithms that ranks on devices of this `kind` would use, without a communicator. All devices are like `device`
/// if given. Uses `tuning` if given, and the default [`Determinism`].
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the tuning names an unsuitable algorithm.
pub fn explain(
    kind: DeviceKind,
    device: Option<&Device>,
    world_size: usize,
    tuning: Option<&Tuning>,
) -> Result<impl Fn(Dtype, bool) -> Ranges<Algorithm>> {
    let devices = device.map(Capabilities::of);
    let table = AlgorithmTable::new(kind, devices.as_ref(), world_size, Determinism::default(), tuning)?;
    Ok(move |dtype, direct| {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        table.ranges(dtype, reach).clone()
    })
}
