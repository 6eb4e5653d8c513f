//! Norms: either one fused kernel sums and norms, or collectives sum and separate kernels norm rows. Both give equal bits if
//! both sum in rank order.
#![allow(unsafe_code)]

mod choice;
mod explain;

use std::ffi::c_void;

use super::all_reduce::{scratch, sum_args};
use super::reach::{Located, Peers};
use super::turn::Turn;
use super::{Communicator, Inner, collective, limits_of};
use crate::error::{Error, Result};
use crate::group::{EnqueuedCall as Noted, FUSED, Places};
use crate::kernel::{PACKET_BYTES, args, geometry};
use crate::memory::{Arena, View};
use crate::op::{Algorithm, Call, CheckedShape, Codec, Held, LocalRows, Norm, NormRows, NormStep, RowFormat};
use crate::stream::Target;
use crate::types::{Dtype, Reduction, WAY_NOTHING};
pub(super) use choice::NormTable;
use choice::{quantises_anywhere, row_pitch, rows_at_once, scattered_choice, suits};
pub use explain::{explain_norm, explain_quantised_norm};

/// A kernel that sums and norms.
struct FusedNorm {
    algorithm: Algorithm,
    /// Number of rows of one launch: of all rows or, if rows are scattered, of each share.
    rows: usize,
    /// Input, output, quantised values and scales, if peers address these operands.
    peers: Option<[Peers; 4]>,
}

impl Communicator {
    /// Enqueues a step of the checked norm of `rows` that runs on this rank only.
    pub(crate) fn norm_local(
        &self,
        call: &Call<'_>,
        rows: &NormRows,
        local: &LocalRows<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        NormCall { inner: &self.0, call, rows }.run_rows(local, queue)
    }
}

/// A checked norm.
struct NormCall<'a> {
    inner: &'a Inner,
    call: &'a Call<'a>,
    rows: &'a NormRows,
}

/// Enqueues a checked norm.
pub(super) fn norm(call: &Call<'_>, rows: &NormRows, shape: &CheckedShape, turn: &mut Turn<'_>) -> Result<()> {
    let inner = turn.inner;
    let norm = NormCall { inner, call, rows };
    if let (1, Some(input)) = (inner.group.world_size(), &call.input) {
        turn.order()?;
        let (input, pitch, count) = (input.clone(), rows.hidden(), call.elems() / rows.hidden());
        let [residual, kept] = [&rows.residual, &rows.residual_out].map(|held| held.as_ref().map(Held::view));
        let local = LocalRows { input, pitch, count, residual, kept, finishes: true };
        return norm.run_rows(&local, turn.queue);
    }
    if call.elems() == 0 {
        return turn.announce_empty(call.noted(0, WAY_NOTHING));
    }
    // Fused kernels support no codecs.
    let fused = match call.options.codec {
        Codec::None => norm.fused(shape, turn)?,
        _ => None,
    };
    if let Some(fused) = fused {
        return fused.enqueue(&norm, turn);
    }
    call.steps(rows, shape)?.each(|step| match step {
        NormStep::Collective(step, shape) => collective(&step.tagged(call.tag), &shape, turn),
        NormStep::Local(local, _) => norm.run_rows(&local, turn.queue),
    })
}

impl<'a> NormCall<'a> {
    /// Packets of a row.
    fn packets(&self) -> usize {
        packets(self.call.dtype, self.rows.hidden())
    }

    /// The fused kernel that serves the call, if any does and a row fits its scratch: the named algorithm, the algorithm for
    /// the size, or the two-shot for calls whose outputs have no place for the sum of all rows.
    fn fused(&self, shape: &CheckedShape, turn: &Turn<'_>) -> Result<Option<FusedNorm>> {
        let recorded = turn.recorded();
        let Self { inner, call, rows } = *self;
        let (bytes, scatters) = ((call.elems() * call.dtype.bytes()) as u64, call.op.scatters_rows());
        let gathers = call.op.gathers_rows();
        let operands = self.gathered().map(|operand| operand.map(|(view, bytes)| (inner.locate(&view, bytes), bytes)));
        let reached = |(operand, _): &(Located<'_>, usize)| inner.reaches(&operand.view, recorded.is_some());
        // A row that is too long for a block's shared memory is kept in the output.
        let waits = call.output.is_some() || self.packets() <= args::kStagePackets as usize;
        let direct = operands[0].is_some() && waits && operands.iter().flatten().all(reached);
        let fits = fits(&inner.arena, call.dtype, rows.hidden(), rows.quantised.is_some());
        let placed = || call.steps(rows, shape).is_ok_and(|steps| steps.is_one_sum());
        let kind = inner.group.device().kind();
        let suits = suits(kind, call.dtype, rows.hidden(), placed, &fits);
        let two_shot = || Some(Algorithm::TwoShotSentinel).filter(|_| !placed()).filter(&fits);
        let algorithm = match call.options.algorithm {
            Algorithm::Auto if scatters => {
                scattered_choice(kind, bytes, direct && gathers).filter(&suits).or_else(two_shot)
            }
            Algorithm::Auto => inner.norms.fused(bytes, placed, suits),
            named => Some(named).filter(|named| named.norms(call.op)).filter(&fits),
        };
        let Some(algorithm) = algorithm else {
            return match call.options.algorithm {
                named if scatters && named != Algorithm::Auto => Err(self.unfit(named)),
                _ => Ok(None),
            };
        };
        let peers = match algorithm {
            Algorithm::TwoShotZeroCopy if direct => {
                let mut peers = [Peers::NONE; 4];
                for (number, (peers, operand)) in peers.iter_mut().zip(&operands).enumerate() {
                    if let Some((operand, bytes)) = operand {
                        *peers = inner.peers(operand, *bytes, recorded, number)?;
                    }
                }
                Some(peers)
            }
            Algorithm::TwoShotZeroCopy => {
                let reason = match waits {
                    true => "peers address the input and all that is gathered: use symmetric or adopted memory",
                    false => "such a long row waits in the output: ask for an output",
                };
                return Err(Error::unsupported(format!("{} by {algorithm}", call.op.operation), reason));
            }
            _ => None,
        };
        let (world, slot_packets) = (inner.group.world_size(), scratch(inner.arena.layout(), algorithm).slot_packets);
        let rows = rows_at_once(algorithm, world, slot_packets, self.packets());
        Ok(Some(FusedNorm { algorithm, rows: if scatters { rows / world } else { rows }, peers }))
    }

    /// The error of a named algorithm that cannot serve rows that are scattered.
    fn unfit(&self, named: Algorithm) -> Error {
        let reason = match quantises_anywhere(self.inner.group.device().kind(), self.rows.quantised.is_some()) {
            true => {
                let slot_packets = scratch(self.inner.arena.layout(), Algorithm::TwoShotSentinel).slot_packets;
                let have = slot_packets * PACKET_BYTES as u64;
                let least = row_pitch(self.packets()) * PACKET_BYTES;
                format!(
                    "its scratch has no room for a row: two_shot_sentinel_bytes makes slots of {have} bytes, and a row takes {least}"
                )
            }
            false => "AMD GPUs quantise in the two-shot alone, where its scratch has room for a row".to_owned(),
        };
        Error::unsupported(format!("{} by {named}", self.call.op.operation), reason)
    }

    /// The input and the gathered operands: output, quantised values and scales. Each with its size in bytes.
    fn gathered(&self) -> [Option<(View<'a>, usize)>; 4] {
        let Self { call, rows, .. } = *self;
        let of_rows = |view: &Option<View<'a>>| {
            view.clone().map(|view| {
                let bytes = view.elems * call.dtype.bytes();
                (view, bytes)
            })
        };
        let held = |held: &'a Held| (held.view(), held.elems * held.dtype.bytes());
        let quantised = rows.quantised.as_ref();
        let scales = quantised.and_then(|quantised| quantised.scales.as_ref());
        [
            of_rows(&call.input),
            of_rows(&call.output),
            quantised.map(|quantised| held(&quantised.values)),
            scales.map(held),
        ]
    }

    /// Enqueues the kernel for rows of this rank.
    fn run_rows(&self, local: &LocalRows<'_>, queue: Target<'_>) -> Result<()> {
        let whole = self.args();
        let values = if local.finishes { whole.quantised.values } else { std::ptr::null_mut() };
        let args = args::NormArgs {
            input: local.input.address.cast_const().cast(),
            residual: address(local.residual.as_ref()).cast_const(),
            residual_out: address(local.kept.as_ref()),
            output: if local.finishes { whole.output } else { std::ptr::null_mut() },
            rows: local.count as u64,
            input_pitch: local.pitch as u64,
            quantised: args::QuantisedRows { values, all_rows: local.count as u64, ..whole.quantised },
            ..whole
        };
        if args.rows == 0 {
            return Ok(());
        }
        let packets = packets(self.call.dtype, self.rows.width()) as u64;
        let geometry = geometry::rows(limits_of(&self.inner.group), args.rows, packets, !values.is_null());
        queue.enqueue("launch a norm", |raw| match self.bias() {
            // SAFETY: operands are valid for their rows, which the check of the call found, and are freed only after the
            // device's work, or are the caller's duty (bounds, liveness).
            None => unsafe { raw.launch(&args, &geometry) },
            // SAFETY: as above; the bias is an operand as long as the weight.
            Some(bias) => unsafe { raw.launch(&args::LayerNormArgs { base: args, bias }, &geometry) },
        })
    }

    /// The address of the bias of a layer norm, null without a bias. `None`: another norm.
    fn bias(&self) -> Option<*const c_void> {
        let bias = self.rows.bias.as_ref().map(Held::view);
        matches!(self.rows.norm, Norm::Layer(_)).then(|| address(bias.as_ref()).cast_const())
    }

    /// The arguments for all rows of the input.
    fn args(&self) -> args::NormArgs {
        let Self { call, rows, .. } = self;
        let [residual, residual_out] = [&rows.residual, &rows.residual_out].map(|held| held.as_ref().map(Held::view));
        args::NormArgs {
            input: address(call.input.as_ref()).cast_const(),
            residual: address(residual.as_ref()).cast_const(),
            weight: rows.weight.view().address.cast_const().cast(),
            residual_out: address(residual_out.as_ref()),
            output: address(call.output.as_ref()),
            rows: (call.elems() / rows.hidden()) as u64,
            input_pitch: rows.hidden() as u64,
            hidden: rows.hidden() as u32,
            width: rows.width() as u32,
            dtype: call.dtype as u32,
            weight_dtype: rows.weight.dtype as u32,
            epsilon: rows.norm.epsilon(),
            weight_offset: rows.norm.weight_offset(),
            quantised: quantised_args(rows, call.elems() / rows.hidden()),
        }
    }

    /// The arguments of scattered rows. Operands that hold only this rank's rows are moved back to the address that row 0
    /// would have. Quantised values of this rank's rows are numbered so that these rows begin at 0.
    fn args_of_shares(&self) -> args::NormArgs {
        let (whole, call) = (self.args(), self.call);
        let share = whole.rows as usize / self.inner.group.world_size();
        let before = self.inner.group.rank() * share;
        let (narrow, wide) = rows_bytes(&whole, before, call.dtype);
        let quantised = match call.op.gathers_rows() {
            true => whole.quantised,
            false => args::QuantisedRows {
                first_row: (before as u64).wrapping_neg(),
                all_rows: share as u64,
                ..whole.quantised
            },
        };
        args::NormArgs {
            residual: ahead(whole.residual.cast_mut(), narrow).cast_const(),
            residual_out: ahead(whole.residual_out, narrow),
            output: if call.op.gathers_rows() { whole.output } else { ahead(whole.output, wide) },
            quantised,
            ..whole
        }
    }
}

impl FusedNorm {
    /// Enqueues launches of the kernel, each for at most the rows that fit its scratch.
    fn enqueue(&self, norm: &NormCall<'_>, turn: &mut Turn<'_>) -> Result<()> {
        let NormCall { inner, call, rows } = *norm;
        let (dtype, world) = (call.dtype, inner.group.world_size());
        let (whole, sources) = match call.op.scatters_rows() {
            true => (norm.args_of_shares(), world),
            false => (norm.args(), 1),
        };
        let share = whole.rows as usize / sources;
        let none = [Peers::NONE; 4];
        let [inputs, outputs, values, scales] = self.peers.as_ref().unwrap_or(&none);
        let bytes = (share * sources * rows.hidden() * dtype.bytes()) as u64;
        let noted = self.noted(norm, bytes);
        turn.order()?;
        // All launches have the same number of rows, because a small launch takes nearly as long as a large one.
        let rows_at_once = share.div_ceil(share.div_ceil(self.rows));
        for start in (0..share).step_by(rows_at_once) {
            let count = rows_at_once.min(share - start) * sources;
            let part_bytes = (count * rows.hidden() * dtype.bytes()) as u64;
            let announced = turn.announce_part(noted, part_bytes)?;
            let part = from_row(whole, start, count, dtype);
            let (launch, clustered) = self.geometry(norm, &part);
            let sum = args::AllReduceArgs {
                lanes_log2: launch.lanes_log2,
                dtype: dtype as u32,
                reduction: Reduction::Sum as u32,
                codec: Codec::None.number(),
                inputs: inputs.table,
                outputs: outputs.table,
                inputs_offset_bytes: inputs.offset_bytes,
                outputs_offset_bytes: outputs.offset_bytes,
                ..sum_args(&inner.arena, self.algorithm, announced)
            };
            let args = args::FusedNormArgs {
                sum,
                norm: part,
                values: values.table,
                scales: scales.table,
                values_offset_bytes: values.offset_bytes,
                scales_offset_bytes: scales.offset_bytes,
                share_rows: if call.op.scatters_rows() { share as u64 } else { 0 },
                op: call.op.operation.number(),
                gathers: call.op.gathers_rows().into(),
                clustered,
            };
            turn.queue.enqueue("launch a sum and norm", |raw| match norm.bias() {
                // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle (liveness, bounds);
                // the lane orders their use (exclusion); operands are valid for their rows, which the check of the call
                // found, and are freed only after the device's work, or are the caller's duty.
                None => unsafe { raw.launch(&args, &launch.geometry) },
                // SAFETY: as above; the bias is an operand as long as the weight.
                Some(bias) => unsafe { raw.launch(&args::FusedLayerNormArgs { base: args, bias }, &launch.geometry) },
            })?;
        }
        Ok(())
    }

    /// The words that ranks compare.
    fn noted(&self, norm: &NormCall<'_>, bytes: u64) -> Noted {
        let NormCall { inner, call, .. } = *norm;
        let (operation, way) = (call.op.operation.number(), self.algorithm.number());
        let noted = Noted::new(bytes, operation, call.dtype, Reduction::Sum, way, FUSED);
        noted.in_form(call.form()).tagged(call.tag).at(match &self.peers {
            Some(peers) => peers.each_ref().map(|peers| (!peers.table.is_null()).then_some(peers.offset_bytes)),
            None if inner.group.config().check_calls => {
                // If no rank gathers the rows, a rank's share may lie anywhere, for example in its part of the input.
                let [input, others @ ..] = norm.gathered().map(|operand| inner.offset_to_check(&operand?.0));
                let [output, values, scales] = others.map(|offset| offset.filter(|_| call.op.gathers_rows()));
                [input, output, values, scales]
            }
            None => Places::default(),
        })
    }

    /// The launch of the kernel for rows of all ranks, and 1 if clusters of blocks take the rows. Ranks may differ in the
    /// latter, because the packets are the same.
    fn geometry(&self, norm: &NormCall<'_>, rows: &args::NormArgs) -> (geometry::Launch, u32) {
        let NormCall { inner, call, .. } = *norm;
        let (shape, world) = (limits_of(&inner.group), inner.group.world_size() as u64);
        let (count, packets) = (rows.rows, norm.packets() as u64);
        let quantised = norm.rows.quantised.is_some();
        let pushes = matches!(self.algorithm, Algorithm::OneShotSentinel | Algorithm::TwoShotSentinel);
        let dtype_bytes = call.dtype.bytes() as u32;
        // Clusters process rows of LayerNorm in a one-shot alone.
        let one_shot = self.algorithm == Algorithm::OneShotSentinel;
        let suits = |bias: *const c_void| one_shot && bias.addr().is_multiple_of(PACKET_BYTES);
        if pushes
            && norm.bias().is_none_or(suits)
            && inner.group.device().has_clusters()
            && geometry::takes_clusters(shape, rows, dtype_bytes)
        {
            let shares = if self.algorithm == Algorithm::TwoShotSentinel { world } else { 1 };
            let gathers = call.op.outputs_all_rows();
            return geometry::clustered_norm(shape, shares, gathers, count.div_ceil(shares), packets);
        }
        let launch = match self.algorithm {
            Algorithm::OneShotSentinel => geometry::one_shot_norm(shape, count, packets, quantised),
            Algorithm::TwoShotZeroCopy => geometry::gathered_norm(shape, count.div_ceil(world), packets, quantised),
            _ => geometry::two_shot_norm(shape, world as u32, count.div_ceil(world), packets, quantised),
        };
        (launch, 0)
    }
}

/// Whether a fused algorithm can serve rows, by the scratch of the group.
fn fits(arena: &Arena, dtype: Dtype, hidden: usize, quantised: bool) -> impl Fn(&Algorithm) -> bool {
    let (kind, world) = (arena.group().device().kind(), arena.group().world_size());
    choice::fits(kind, world, packets(dtype, hidden), quantised, |algorithm| {
        scratch(arena.layout(), algorithm).slot_packets
    })
}

/// The address of an operand; null without one.
fn address(view: Option<&View<'_>>) -> *mut c_void {
    view.map_or(std::ptr::null_mut(), |view| view.address.cast())
}

/// The arguments of quantised outputs for all rows, `count` rows; null addresses without quantised outputs.
fn quantised_args(rows: &NormRows, count: usize) -> args::QuantisedRows {
    let at = |held: Option<&Held>| address(held.map(Held::view).as_ref());
    let quantised = rows.quantised.as_ref();
    let number = |number: fn(RowFormat) -> u32| quantised.map_or(0, |quantised| number(quantised.format));
    let known = quantised.and_then(|quantised| quantised.known.as_ref()).or(rows.global_scale.as_ref());
    args::QuantisedRows {
        values: at(quantised.map(|quantised| &quantised.values)),
        scales: at(quantised.and_then(|quantised| quantised.scales.as_ref())),
        known_scale: at(known).cast_const().cast(),
        first_row: 0,
        all_rows: count as u64,
        scaling: number(|format| format.scaling as u32),
        to: number(|format| format.to as u32),
        elems: number(|format| format.elems as u32),
        layout: number(|format| format.layout as u32),
    }
}

/// Packets of a row.
fn packets(dtype: Dtype, elems: usize) -> usize {
    elems.saturating_mul(dtype.bytes()).div_ceil(PACKET_BYTES)
}

/// The bytes of `rows` rows, and of `rows` output rows.
fn rows_bytes(args: &args::NormArgs, rows: usize, dtype: Dtype) -> (usize, usize) {
    (rows * args.hidden as usize * dtype.bytes(), rows * args.width as usize * dtype.bytes())
}

/// The arguments of `count` rows from row `start` on.
fn from_row(whole: args::NormArgs, start: usize, count: usize, dtype: Dtype) -> args::NormArgs {
    let (narrow, wide) = rows_bytes(&whole, start, dtype);
    args::NormArgs {
        input: whole.input.wrapping_byte_add(narrow),
        residual: behind(whole.residual.cast_mut(), narrow),
        residual_out: behind(whole.residual_out, narrow),
        output: behind(whole.output, wide),
        rows: count as u64,
        quantised: args::QuantisedRows {
            first_row: whole.quantised.first_row.wrapping_add(start as u64),
            ..whole.quantised
        },
        ..whole
    }
}

/// An operand's address plus `bytes`; null without an operand.
fn behind<T>(operand: *mut T, bytes: usize) -> *mut T {
    if operand.is_null() { operand } else { operand.wrapping_byte_add(bytes) }
}

/// An operand's address minus `bytes`; null without an operand.
fn ahead<T>(operand: *mut T, bytes: usize) -> *mut T {
    if operand.is_null() { operand } else { operand.wrapping_byte_sub(bytes) }
}
