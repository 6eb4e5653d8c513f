//! Multicast: the supported calls, and each rank's range of the message of an all-reduce.
#![allow(unsafe_code)]

use super::reach::arena_offset;
use super::turn::Turn;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Announced, Determinism};
use crate::kernel::geometry::Launch;
use crate::kernel::{PACKET_BYTES, args};
use crate::memory::{Arena, View};
use crate::op::Algorithm;
use crate::types::{Dtype, Reduction};

/// Smallest all-reduce, in bytes, that uses multicast if the call names no algorithm. An estimate: packets need no barrier,
/// and between two ranks multicast has no advantage. 8-bit floats use multicast only if a call names it, because their sums
/// lose more precision there.
pub(super) const fn from_bytes(kind: DeviceKind, world: usize, dtype: Dtype, determinism: Determinism) -> Option<u64> {
    let allowed = determinism as u32 <= allowance(Algorithm::MulticastTwoShot, kind, world, dtype) as u32;
    let carried = Algorithm::MulticastTwoShot.carries(dtype) && !dtype.is_f8();
    if world >= 4 && allowed && carried { Some(1 << 20) } else { None }
}

/// Why devices cannot add this type by multicast. `adds_f8`: all devices of the group add 8-bit floats.
pub(super) const fn unable(dtype: Dtype, adds_f8: bool) -> Option<&'static str> {
    if adds_f8 || !dtype.is_f8() {
        return None;
    }
    Some(
        "8-bit floats need GPUs of compute capability 10.0 or 10.3, and a build with SYMMETRA_CUDA_ARCHS that names 100a \
         or 103a: use another type or algorithm",
    )
}

/// The strongest determinism that a multicast algorithm guarantees. A switch adds in an unspecified order, which may depend on
/// the address of the memory; the host device adds in rank order. Two ranks have only one possible sum.
pub(super) const fn allowance(algorithm: Algorithm, kind: DeviceKind, world: usize, dtype: Dtype) -> Determinism {
    match (algorithm, kind) {
        _ if algorithm.is_exact(dtype, world) => Determinism::Exact,
        _ if world <= 2 => Determinism::PerAlgorithm,
        // Each rank requests its own sum from the switch.
        (Algorithm::MulticastOneShot, _) => Determinism::Free,
        (_, DeviceKind::Host) => Determinism::PerAlgorithm,
        (_, DeviceKind::Cuda | DeviceKind::Hip) => Determinism::PerRun,
    }
}

/// Start and length of a rank's share of `bytes` bytes, which begin `offset` bytes after the start of an arena. Shares begin
/// at packet boundaries, so that multicast moves everything except the ends of the message.
fn share(offset: u64, bytes: u64, rank: u64, world: u64) -> (u64, u64) {
    let head = (offset.wrapping_neg() % PACKET_BYTES as u64).min(bytes);
    let packets = (bytes - head).div_ceil(PACKET_BYTES as u64).div_ceil(world);
    let boundary = |rank: u64| match rank {
        0 => 0,
        _ if rank == world => bytes,
        _ => (head + rank * packets * PACKET_BYTES as u64).min(bytes),
    };
    (boundary(rank), boundary(rank + 1) - boundary(rank))
}

/// Refuses an all-reduce that the named multicast algorithm does not support.
pub(super) fn check_sum(
    arena: &Arena,
    algorithm: Algorithm,
    dtype: Dtype,
    reduction: Reduction,
    operands: [&View<'_>; 2],
) -> Result<()> {
    let group = arena.group();
    let (world, asked) = (group.world_size(), group.config().determinism);
    check_open(arena, &algorithm.to_string())?;
    if !algorithm.reduces(dtype, reduction) {
        return Err(Error::unsupported(
            format!("{algorithm} of the {reduction} of {dtype} over {world} ranks"),
            "multicast only adds: leave the choice of the algorithm to the library",
        ));
    }
    if let Some(why) = unable(dtype, group.capabilities().adds_f8) {
        return Err(Error::unsupported(format!("{algorithm} of {dtype} over {world} ranks"), why));
    }
    let allowed = allowance(algorithm, group.device().kind(), world, dtype);
    if asked > allowed {
        return Err(Error::unsupported(
            format!("{algorithm} of {dtype} over {world} ranks"),
            format!("the configuration asks for {asked} determinism; determinism `{allowed}` allows it"),
        ));
    }
    let [input, output] = operands;
    let one_shot = algorithm == Algorithm::MulticastOneShot;
    if offset_of(arena, input).is_none() || (!one_shot && offset_of(arena, output).is_none()) {
        return Err(outside(&algorithm.to_string()));
    }
    if one_shot && input.address == output.address {
        return Err(Error::unsupported(
            format!("{algorithm} in place"),
            "a rank would overwrite what others still read: use another output",
        ));
    }
    Ok(())
}

/// Whether an all-reduce without a named algorithm uses multicast.
pub(super) fn prefers_sum(
    arena: &Arena,
    dtype: Dtype,
    reduction: Reduction,
    operands: [&View<'_>; 2],
    bytes: u64,
) -> bool {
    sums_from_bytes(arena, dtype).is_some_and(|from_bytes| bytes >= from_bytes)
        && Algorithm::MulticastTwoShot.reduces(dtype, reduction)
        && operands.iter().all(|operand| offset_of(arena, operand).is_some())
}

/// Smallest all-reduce of symmetric memory that uses multicast; `None` if none does. A tuning takes precedence, although
/// it has measured only other algorithms.
pub(super) fn sums_from_bytes(arena: &Arena, dtype: Dtype) -> Option<u64> {
    let (group, config) = (arena.group(), arena.group().config());
    let open = config.tuning.is_none() && arena.multicast().is_ok();
    if open { from_bytes(group.device().kind(), group.world_size(), dtype, config.determinism) } else { None }
}

pub(super) fn check_open(arena: &Arena, what: &str) -> Result<()> {
    arena.multicast().map(drop).map_err(|why| closed(what, why))
}

/// The error of a call by multicast that is not open for the reason `why`.
fn closed(what: &str, why: &str) -> Error {
    Error::unsupported(what, format!("multicast is not open: {why}"))
}

pub(super) fn offset_of(arena: &Arena, operand: &View<'_>) -> Option<u64> {
    arena_offset(arena.group().id(), operand)
}

/// Arguments of a call, still without bytes.
pub(super) fn call_args(arena: &Arena, task: u32, dtype: Dtype, op: u32) -> Result<args::MulticastArgs> {
    let bound = arena.multicast().map_err(|why| closed("a call by multicast", why))?;
    let (layout, world) = (arena.layout(), arena.group().world_size());
    let at = |offset| bound.at(arena.table(0), world, offset);
    Ok(args::MulticastArgs {
        state: arena.own(layout.flags.state.offset).cast(),
        wait: arena.wait(false),
        rank: arena.group().rank() as u32,
        world: world as u32,
        task,
        dtype: dtype as u32,
        op,
        arenas: at(0),
        flags: at(layout.flags.region.offset),
        peers: arena.everywhere(layout.flags.region.offset),
        ..args::MulticastArgs::NONE
    })
}

/// The arguments of an all-reduce of operands that [`check_sum`] found right.
pub(super) fn sum_args(
    arena: &Arena,
    algorithm: Algorithm,
    dtype: Dtype,
    input: &View<'_>,
    output: &View<'_>,
) -> Result<args::MulticastArgs> {
    let task = match algorithm {
        Algorithm::MulticastOneShot => args::kMulticastSum,
        _ => args::kMulticastSumToAll,
    };
    Ok(args::MulticastArgs {
        into: output.address.cast(),
        from_bytes: offset_of(arena, input).unwrap_or_default(),
        into_bytes: offset_of(arena, output).unwrap_or_default(),
        ..call_args(arena, task, dtype, args::kOpAllReduce)?
    })
}

/// Enqueues the launch of `part_bytes` bytes of the all-reduce `announced`, `start` bytes after its start.
pub(super) fn launch_sum(
    whole: &args::MulticastArgs,
    part_bytes: u64,
    launch: &Launch,
    start: u64,
    announced: Announced,
    turn: &Turn<'_>,
) -> Result<()> {
    let (from_bytes, into_bytes) = (whole.from_bytes + start, whole.into_bytes + start);
    let (begin, bytes) = match whole.task {
        args::kMulticastSumToAll => share(from_bytes, part_bytes, whole.rank.into(), whole.world.into()),
        _ => (0, part_bytes),
    };
    let args = args::MulticastArgs {
        wait: turn.inner.arena.wait(announced),
        lanes_log2: launch.lanes_log2,
        bytes,
        into: whole.into.wrapping_byte_add((start + begin) as usize),
        from_bytes: from_bytes + begin,
        into_bytes: into_bytes + begin,
        ..*whole
    };
    // SAFETY: flags and operands lie in arenas that live until the device is idle (liveness, bounds); the lane orders
    // their use (exclusion); an output elsewhere is valid for the part and freed only after the device's work, or is
    // the caller's duty.
    turn.queue.enqueue("launch an all-reduce by multicast", |raw| unsafe { raw.launch(&args, &launch.geometry) })
}

/// The error of operands outside multicast memory.
pub(super) fn outside(what: &str) -> Error {
    Error::unsupported(
        format!("{what} on other than symmetric memory"),
        "multicast reaches symmetric buffers of its group alone",
    )
}

#[cfg(test)]
#[path = "../../tests/unit/collective/multicast.rs"]
mod tests;
