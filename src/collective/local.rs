//! Work of one rank between collectives: reductions of parts that are in its memory, and copies.
#![allow(unsafe_code)]

use super::exchange::copy;
use super::{Communicator, limits_of};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args::{self, Geometry};
use crate::kernel::geometry;
use crate::memory::{Arena, View};
use crate::op::{REDUCE, Strip};
use crate::stream::Target;
use crate::types::{Dtype, Reduction};

impl Communicator {
    /// Copies one operand to another of equal length. The caller ensures that they do not overlap.
    pub(crate) fn copy_own(&self, dtype: Dtype, from: &View<'_>, into: &View<'_>, queue: Target<'_>) -> Result<()> {
        let _entered = self.0.group.enter()?;
        copy(Strip::whole(from, dtype), Strip::whole(into, dtype), queue)
    }

    /// Reduces consecutive parts of `from` into `into`, in their order, rounding once. Only the queue orders the work. The
    /// caller ensures that the operands do not overlap.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more parts than a kernel supports; [`Error::Internal`] for more parts than `from` has.
    pub(crate) fn reduce_own(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        parts: usize,
        from: &View<'_>,
        into: &View<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let _entered = self.0.group.enter()?;
        if parts > MAX_WORLD_SIZE {
            let reason = format!("a kernel takes {MAX_WORLD_SIZE}");
            return Err(Error::unsupported(format!("a {reduction} of {parts} parts"), reason));
        }
        let output = Strip::whole(into, dtype);
        if output.bytes == 0 {
            return Ok(());
        }
        let from = &from.part(0..into.elems.saturating_mul(parts), dtype)?;
        let mut sources = [std::ptr::null::<u8>(); MAX_WORLD_SIZE];
        for (number, source) in sources.iter_mut().enumerate().take(parts) {
            *source = Strip::part(from, number, output.bytes).address;
        }
        let op = REDUCE.operation.number();
        let reduction = LocalReduction { op, dtype, reduction, sources, rank: 0, world: parts };
        let (args, geometry) = reduction.launch(&self.0.arena, output);
        // SAFETY: the parts and the output lie in operands that the caller lends for as long as the device uses them
        // (caller's duty, bounds).
        queue.enqueue("launch a reduction", |raw| unsafe { raw.launch(&args, &geometry) })
    }
}

/// A reduction of sources in the memory of one rank.
pub(super) struct LocalReduction {
    /// The number of the operation.
    pub(super) op: u32,
    pub(super) dtype: Dtype,
    pub(super) reduction: Reduction,
    /// The first `world` sources count.
    pub(super) sources: [*const u8; MAX_WORLD_SIZE],
    /// The number of the caller's own source.
    pub(super) rank: usize,
    pub(super) world: usize,
}

impl LocalReduction {
    /// The launch that reduces the sources into `output`. The launch overlaps no earlier kernel.
    pub(super) fn launch(&self, arena: &Arena, output: Strip) -> (args::ExchangeArgs, Geometry) {
        let bytes = output.bytes;
        let mut launch = geometry::zero_copy(limits_of(arena.group()), bytes.div_ceil(16));
        launch.geometry.programmatic = 0;
        let mut args = args::ExchangeArgs {
            wait: arena.wait(false),
            rank: self.rank as u32,
            world: self.world as u32,
            lanes_log2: launch.lanes_log2,
            algorithm: args::kReduceLocal,
            op: self.op,
            dtype: self.dtype as u32,
            reduction: self.reduction as u32,
            largest_bytes: bytes,
            from: self.sources,
            ..args::ExchangeArgs::NONE
        };
        args.into[self.rank] = output.address;
        args.receive_bytes[self.rank] = bytes;
        (args, launch.geometry)
    }
}
