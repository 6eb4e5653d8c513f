//! Norms: an all-reduce and norm in one kernel, or an all-reduce by the communicator's own choice and a kernel that norms
//! the summed rows. Both give equal bits where both sum in rank order.
#![allow(unsafe_code)]

use super::call_order::Lane;
use super::graph_part::Recorded;
use super::norm_choice::rows_at_once;
use super::select::{Range, Reach};
use super::{Communicator, Inner, shape_of};
use crate::error::{Error, Result};
use crate::group::{Call as Noted, FUSED};
use crate::kernel::{args, geometry};
use crate::memory::View;
use crate::op::{Algorithm, Call, Codec, Held, NormRows, Numbers};
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction, WAY_NOTHING};

/// Bytes of a packet.
const PACKET_BYTES: usize = 16;

/// How many rows one launch of a fused kernel takes.
struct Fused {
    algorithm: Algorithm,
    rows: usize,
}

impl Communicator {
    /// Enqueues the norm of a checked call whose rows another backend has summed into `sum`, `pitch` elements apart.
    pub(crate) fn norm_summed(
        &self,
        call: &Call<'_>,
        sum: &View<'_>,
        pitch: usize,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let Numbers::Norm(rows) = call.numbers else {
            return Err(Error::Internal { message: format!("{} norms no rows", call.op.operation) });
        };
        self.0.norm_rows(call, rows, (sum, pitch), queue)
    }

    /// The algorithms of [`all_reduce_norm`](Self::all_reduce_norm) for rows of `hidden` elements, by the bytes of all
    /// rows, smallest first. `direct`: whether peers can address the operands (symmetric or registered memory).
    pub fn explain_norm(&self, dtype: Dtype, hidden: usize, direct: bool) -> Vec<Range> {
        let inner = &self.0;
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        let fits = |algorithm| inner.rows_at_once(algorithm, dtype, hidden) > 0;
        inner.norms.ranges(inner.table.ranges(dtype, reach), fits)
    }
}

impl Inner {
    /// Enqueues a checked norm.
    pub(super) fn all_reduce_norm(
        &self,
        call: &Call<'_>,
        rows: &NormRows,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let mut lane = self.lane.lock();
        if let (1, Some(input)) = (self.group.world_size(), &call.input) {
            lane.order_call(queue)?;
            return self.norm_rows(call, rows, (input, rows.hidden()), queue);
        }
        if call.elems() == 0 {
            return self.announce_empty(call.noted(0, WAY_NOTHING), &mut lane, queue, recorded);
        }
        if let Some(fused) = self.fused(call, rows) {
            return self.norm_fused(call, rows, &fused, &mut lane, queue, recorded);
        }
        let sums = call.sums(rows)?;
        call.each_sum(&sums, |sum| {
            let prepared = self.prepare(sum, recorded)?;
            self.enqueue_prepared(&prepared, &mut lane, queue, recorded)
        })?;
        self.norm_rows(call, rows, (&sums.place, sums.pitch), queue)
    }

    /// The fused kernel that serves a call, if one does and a row fits its scratch: a named one, that of the size, or the
    /// two-shot for calls whose outputs have no place for the sum of all rows.
    fn fused(&self, call: &Call<'_>, rows: &NormRows) -> Option<Fused> {
        let bytes = (call.elems() * call.dtype.bytes()) as u64;
        let fitting = |algorithm| {
            let rows = self.rows_at_once(algorithm, call.dtype, rows.hidden());
            (rows > 0).then_some(Fused { algorithm, rows })
        };
        let placed = || call.sums(rows).is_ok_and(|sums| sums.pitch == rows.hidden());
        match call.options.algorithm {
            Algorithm::Auto => self
                .norms
                .choice(bytes)
                .and_then(fitting)
                .or_else(|| if placed() { None } else { fitting(Algorithm::TwoShotSentinel) }),
            named => Some(named).filter(|named| named.norms()).and_then(fitting),
        }
    }

    /// How many rows fit the scratch of an algorithm.
    fn rows_at_once(&self, algorithm: Algorithm, dtype: Dtype, hidden: usize) -> usize {
        let slot_packets = self.scratch(algorithm).slot_packets;
        rows_at_once(algorithm, self.group.world_size(), slot_packets, packets(dtype, hidden))
    }

    /// Enqueues launches of a fused kernel, each for as many rows as fit its scratch.
    fn norm_fused(
        &self,
        call: &Call<'_>,
        rows: &NormRows,
        fused: &Fused,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let (dtype, algorithm, hidden) = (call.dtype, fused.algorithm, rows.hidden());
        let (scratch, world) = (self.scratch(algorithm), self.group.world_size() as u32);
        let whole =
            self.norm_args(call, rows, call.input.as_ref().map_or(std::ptr::null(), |input| input.address), hidden);
        lane.order_call(queue)?;
        for start in (0..whole.rows as usize).step_by(fused.rows) {
            let count = fused.rows.min(whole.rows as usize - start);
            let bytes = (count * hidden * dtype.bytes()) as u64;
            let (operation, way) = (call.op.operation.number(), algorithm.number());
            let noted = Noted::new(bytes, operation, dtype, Reduction::Sum, way, FUSED).in_form(call.form());
            let first = self.announce(noted, lane, queue, recorded)?;
            let reduced = if algorithm == Algorithm::OneShotSentinel { count } else { count.div_ceil(world as usize) };
            let shape = shape_of(self.group.device());
            let launch = geometry::fused_norm(shape, world, reduced as u64, packets(dtype, hidden) as u64);
            let sum = args::AllReduceArgs {
                input: std::ptr::null(),
                output: std::ptr::null_mut(),
                count: 0,
                state: self.arena.own(scratch.state.offset).cast(),
                lanes_log2: launch.lanes_log2,
                rank: self.group.rank() as u32,
                wait: self.arena.wait(first),
                slot_packets: scratch.slot_packets,
                world,
                dtype: dtype as u32,
                algorithm: way,
                reduction: Reduction::Sum as u32,
                peers: self.arena.everywhere(scratch.region.offset),
                inputs: std::ptr::null(),
                outputs: std::ptr::null(),
                inputs_offset_bytes: 0,
                outputs_offset_bytes: 0,
                codec: Codec::None.number(),
            };
            let args = args::FusedNormArgs { sum, norm: from_row(whole, start, count, dtype) };
            // SAFETY: scratch lies in arenas that live until the device is idle (liveness, bounds); the lane orders its
            // use (exclusion); operands are valid for their rows, which the check of the call found, and are freed only
            // after the device's work, or are the caller's duty.
            queue.enqueue("launch an all-reduce and norm", |raw| unsafe { raw.launch(&args, &launch.geometry) })?;
        }
        Ok(())
    }

    /// Enqueues the norm of summed rows, `pitch` elements apart.
    fn norm_rows(
        &self,
        call: &Call<'_>,
        rows: &NormRows,
        (sum, pitch): (&View<'_>, usize),
        queue: &impl Enqueue,
    ) -> Result<()> {
        let args = self.norm_args(call, rows, sum.address, pitch);
        if args.rows == 0 {
            return Ok(());
        }
        let packets = packets(call.dtype, rows.width()) as u64;
        let geometry = geometry::rows(shape_of(self.group.device()), args.rows, packets);
        // SAFETY: operands are valid for their rows, which the check of the call found, and are freed only after the
        // device's work, or are the caller's duty (bounds, liveness).
        queue.enqueue("launch a norm", |raw| unsafe { raw.launch(&args, &geometry) })
    }

    fn norm_args(&self, call: &Call<'_>, rows: &NormRows, input: *const u8, pitch: usize) -> args::NormArgs {
        let address = |held: &Option<Held>| held.as_ref().map_or(std::ptr::null_mut(), |held| held.view().address);
        args::NormArgs {
            input: input.cast(),
            residual: address(&rows.residual).cast(),
            weight: rows.weight.view().address.cast(),
            residual_out: address(&rows.residual_out).cast(),
            output: call.output.as_ref().map_or(std::ptr::null_mut(), |output| output.address.cast()),
            rows: (call.elems() / rows.hidden()) as u64,
            input_pitch: pitch as u64,
            hidden: rows.hidden() as u32,
            width: rows.width() as u32,
            dtype: call.dtype as u32,
            weight_dtype: rows.weight.dtype as u32,
            epsilon: rows.norm.epsilon,
            weight_offset: rows.norm.weight_offset,
        }
    }
}

/// Packets of a row.
pub(super) fn packets(dtype: Dtype, elems: usize) -> usize {
    (elems * dtype.bytes()).div_ceil(PACKET_BYTES)
}

/// The arguments of rows `start..start + count`.
fn from_row(whole: args::NormArgs, start: usize, count: usize, dtype: Dtype) -> args::NormArgs {
    let (narrow, wide) = (start * whole.hidden as usize * dtype.bytes(), start * whole.width as usize * dtype.bytes());
    args::NormArgs {
        input: whole.input.wrapping_byte_add(narrow),
        residual: behind(whole.residual.cast_mut(), narrow),
        residual_out: behind(whole.residual_out, narrow),
        output: behind(whole.output, wide),
        rows: count as u64,
        ..whole
    }
}

/// An operand some bytes further, if there is one.
fn behind<T>(operand: *mut T, bytes: usize) -> *mut T {
    if operand.is_null() { operand } else { operand.wrapping_byte_add(bytes) }
}
