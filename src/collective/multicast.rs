//! Calls by multicast: the supported calls, and each rank's range of the message.
#![allow(unsafe_code)]

use super::call_order::Lane;
use super::exchange::{Exchange, Way};
use super::graph_part::Recorded;
use super::launch_plan::Part;
use super::reach::arena_offset;
use super::{Inner, shape_of};
use crate::device::DeviceKind;
use crate::error::{Error, Operation, Result};
use crate::group::Determinism;
use crate::kernel::args;
use crate::kernel::geometry;
use crate::memory::View;
use crate::op::{Algorithm, Strip, Strips};
use crate::stream::Target;
use crate::types::{Dtype, Reduction, WAY_MULTICAST};

/// Bytes of a multicast access, and its alignment.
const PACKET_BYTES: u64 = 16;

/// Most bytes of one launch of an exchange.
const MOST_CALL_BYTES: u64 = 1 << 33;

/// Smallest all-reduce, in bytes, that uses multicast if the call names no algorithm. An estimate: packets need no barrier,
/// and between two ranks multicast has no advantage. 8-bit floats use multicast only if a call names it, because their sums
/// lose more precision there.
pub(super) const fn from_bytes(kind: DeviceKind, world: usize, dtype: Dtype, determinism: Determinism) -> Option<u64> {
    let allowed = determinism as u32 <= allowance(Algorithm::MulticastTwoShot, kind, world, dtype) as u32;
    let carried = Algorithm::MulticastTwoShot.carries(dtype) && !dtype.is_f8();
    if world >= 4 && allowed && carried { Some(1 << 20) } else { None }
}

/// Why devices cannot add this type by multicast. `adds_f8`: all devices of the group add 8-bit floats.
const fn unable(dtype: Dtype, adds_f8: bool) -> Option<&'static str> {
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
const fn allowance(algorithm: Algorithm, kind: DeviceKind, world: usize, dtype: Dtype) -> Determinism {
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
    let head = (offset.wrapping_neg() % PACKET_BYTES).min(bytes);
    let packets = (bytes - head).div_ceil(PACKET_BYTES).div_ceil(world);
    let boundary = |rank: u64| match rank {
        0 => 0,
        _ if rank == world => bytes,
        _ => (head + rank * packets * PACKET_BYTES).min(bytes),
    };
    (boundary(rank), boundary(rank + 1) - boundary(rank))
}

impl Inner {
    /// Refuses an all-reduce that the named multicast algorithm does not support.
    pub(super) fn check_multicast(
        &self,
        algorithm: Algorithm,
        dtype: Dtype,
        reduction: Reduction,
        operands: [&View<'_>; 2],
    ) -> Result<()> {
        let (world, asked) = (self.group.world_size(), self.group.config().determinism);
        self.multicast_is_open(&algorithm.to_string())?;
        if !algorithm.reduces(dtype, reduction) {
            return Err(Error::unsupported(
                format!("{algorithm} of the {reduction} of {dtype} over {world} ranks"),
                "multicast only adds: leave the choice of the algorithm to the library",
            ));
        }
        if let Some(why) = unable(dtype, self.group.capabilities().adds_f8) {
            return Err(Error::unsupported(format!("{algorithm} of {dtype} over {world} ranks"), why));
        }
        let allowed = allowance(algorithm, self.group.device().kind(), world, dtype);
        if asked > allowed {
            return Err(Error::unsupported(
                format!("{algorithm} of {dtype} over {world} ranks"),
                format!("the configuration asks for {asked} determinism; determinism `{allowed}` allows it"),
            ));
        }
        let [input, output] = operands;
        let one_shot = algorithm == Algorithm::MulticastOneShot;
        if self.arena_of(input).is_none() || (!one_shot && self.arena_of(output).is_none()) {
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
    pub(super) fn prefers_multicast(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        operands: [&View<'_>; 2],
        bytes: u64,
    ) -> bool {
        self.multicast_from_bytes(dtype).is_some_and(|from_bytes| bytes >= from_bytes)
            && Algorithm::MulticastTwoShot.reduces(dtype, reduction)
            && operands.iter().all(|operand| self.arena_of(operand).is_some())
    }

    /// Smallest all-reduce of symmetric memory that uses multicast; `None` if none does. A tuning takes precedence, although
    /// it has measured only other algorithms.
    pub(super) fn multicast_from_bytes(&self, dtype: Dtype) -> Option<u64> {
        let config = self.group.config();
        let open = config.tuning.is_none() && self.arena.multicast().is_ok();
        let (kind, world) = (self.group.device().kind(), self.group.world_size());
        if open { from_bytes(kind, world, dtype, config.determinism) } else { None }
    }

    fn multicast_is_open(&self, what: &str) -> Result<()> {
        let open = self.arena.multicast().map(drop);
        open.map_err(|why| Error::unsupported(what, format!("multicast is not open: {why}")))
    }

    fn arena_of(&self, operand: &View<'_>) -> Option<u64> {
        arena_offset(self.group.id(), operand)
    }

    /// Arguments of a call, still without bytes.
    fn multicast_args(&self, task: u32, dtype: Dtype, op: u32) -> Result<args::MulticastArgs> {
        let closed = || Error::Internal { message: "a call by multicast without multicast was found right".to_owned() };
        let (bound, layout) = (self.arena.multicast().map_err(|_| closed())?, self.arena.layout());
        let at = |offset| bound.at(self.arena.table(0), self.group.world_size(), offset);
        Ok(args::MulticastArgs {
            state: self.arena.own(layout.flags.state.offset).cast(),
            wait: self.arena.wait(false),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
            task,
            dtype: dtype as u32,
            op,
            arenas: at(0),
            flags: at(layout.flags.region.offset),
            peers: self.arena.everywhere(layout.flags.region.offset),
            ..args::MulticastArgs::NONE
        })
    }

    /// The arguments of an all-reduce of operands that [`check_multicast`](Self::check_multicast) found right.
    pub(super) fn multicast_sum(
        &self,
        algorithm: Algorithm,
        dtype: Dtype,
        [input, output]: [&View<'_>; 2],
    ) -> Result<args::MulticastArgs> {
        let task = match algorithm {
            Algorithm::MulticastOneShot => args::kMulticastSum,
            _ => args::kMulticastSumToAll,
        };
        Ok(args::MulticastArgs {
            into: output.address.cast(),
            from_bytes: self.arena_of(input).unwrap_or_default(),
            into_bytes: self.arena_of(output).unwrap_or_default(),
            ..self.multicast_args(task, dtype, args::kOpAllReduce)?
        })
    }

    /// Enqueues the launch of a part of an all-reduce, `start` bytes after its start.
    pub(super) fn launch_multicast(
        &self,
        whole: &args::MulticastArgs,
        part: &Part,
        start: u64,
        first: bool,
        queue: Target<'_>,
    ) -> Result<()> {
        let (from_bytes, into_bytes) = (whole.from_bytes + start, whole.into_bytes + start);
        let (begin, bytes) = match whole.task {
            args::kMulticastSumToAll => share(from_bytes, part.bytes, whole.rank.into(), whole.world.into()),
            _ => (0, part.bytes),
        };
        let args = args::MulticastArgs {
            wait: self.arena.wait(first),
            lanes_log2: part.launch.lanes_log2,
            bytes,
            into: whole.into.wrapping_byte_add((start + begin) as usize),
            from_bytes: from_bytes + begin,
            into_bytes: into_bytes + begin,
            ..*whole
        };
        // SAFETY: flags and operands lie in arenas that live until the device is idle (liveness, bounds); the lane orders
        // their use (exclusion); an output elsewhere is valid for the part and freed only after the device's work, or is
        // the caller's duty.
        queue.enqueue("launch an all-reduce by multicast", |raw| unsafe { raw.launch(&args, &part.launch.geometry) })
    }

    /// The kernel's task of an exchange by multicast, this rank's part, and where in the arenas the exchange begins, in bytes
    /// from the start of the arena and from the start of the operand. Enqueues nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an exchange that multicast does not support.
    pub(super) fn multicast_task(&self, exchange: &Exchange<'_>) -> Result<(u32, Strip, [u64; 2])> {
        let call = exchange.call;
        let what = || format!("{} by multicast", call.op.operation);
        self.multicast_is_open(&what())?;
        let Strips { from, into, rows } = exchange.strips;
        let Some((way, operand, offset_bytes)) =
            exchange.shared().filter(|_| has(call.op.operation) && rows.row_bytes == 0)
        else {
            let reason = "multicast makes whole all-gathers, reduce-scatters and broadcasts: use transport `auto`";
            return Err(Error::unsupported(what(), reason));
        };
        let arena_bytes = self.arena_of(operand).ok_or_else(|| outside(&what()))? + offset_bytes;
        let rank = self.group.rank();
        let (task, own) = match way {
            Way::Reduce if !Algorithm::MulticastTwoShot.reduces(call.dtype, call.options.reduction) => {
                let what = format!("{} of the {} of {}", what(), call.options.reduction, call.dtype);
                return Err(Error::unsupported(
                    what,
                    "multicast only adds, in floats of at most 32 bits and integers of at least 32",
                ));
            }
            Way::Reduce => {
                let (kind, world) = (self.group.device().kind(), self.group.world_size());
                if let Some(why) = unable(call.dtype, self.group.capabilities().adds_f8) {
                    return Err(Error::unsupported(format!("{} of {}", what(), call.dtype), why));
                }
                let allowed = allowance(Algorithm::MulticastTwoShot, kind, world, call.dtype);
                let asked = self.group.config().determinism;
                if asked > allowed {
                    let reason = format!("the configuration asks for {asked} determinism; `{allowed}` allows it");
                    return Err(Error::unsupported(format!("{} of {}", what(), call.dtype), reason));
                }
                (args::kMulticastSum, into[rank])
            }
            _ => (args::kMulticastToAll, from[rank]),
        };
        Ok((task, own, [arena_bytes, offset_bytes]))
    }

    /// Enqueues an exchange by multicast: an all-gather, a reduce-scatter, or a broadcast.
    pub(super) fn multicast_exchange(
        &self,
        exchange: &Exchange<'_>,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let call = exchange.call;
        let (task, own, [arena_bytes, offset_bytes]) = self.multicast_task(exchange)?;
        lane.order_call(queue)?;
        let whole = self.multicast_args(task, call.dtype, call.op.operation.number())?;
        let place = exchange.place(Some(arena_bytes - offset_bytes));
        let (bytes, noted) = (exchange.largest_bytes(), exchange.noted(WAY_MULTICAST).at(place));
        let mut start = 0;
        while start < bytes {
            let part_bytes = (bytes - start).min(MOST_CALL_BYTES);
            let fresh = self.announce(noted, lane, queue, recorded)?;
            let launch = geometry::zero_copy(shape_of(&self.group), part_bytes.div_ceil(PACKET_BYTES));
            let own_address = own.address.wrapping_byte_add(start as usize);
            let args = args::MulticastArgs {
                wait: self.arena.wait(fresh),
                lanes_log2: launch.lanes_log2,
                bytes: part_bytes.min(own.bytes.saturating_sub(start)),
                from: own_address.cast(),
                into: own_address.cast(),
                from_bytes: arena_bytes + start,
                into_bytes: arena_bytes + start,
                ..whole
            };
            // SAFETY: as for an all-reduce; the check of the call ensures the length of this rank's chunk.
            queue.enqueue("launch an exchange by multicast", |raw| unsafe { raw.launch(&args, &launch.geometry) })?;
            start += part_bytes;
        }
        Ok(())
    }
}

/// Whether multicast supports the operation: all ranks receive the same bytes, or sums of the bytes at one offset.
const fn has(operation: Operation) -> bool {
    matches!(operation, Operation::AllGather | Operation::Broadcast | Operation::ReduceScatter)
}

/// The error of operands outside multicast memory.
fn outside(what: &str) -> Error {
    Error::unsupported(
        format!("{what} on other than symmetric memory"),
        "multicast reaches symmetric buffers of its group alone",
    )
}

#[cfg(test)]
#[path = "../../tests/unit/collective/multicast.rs"]
mod tests;
