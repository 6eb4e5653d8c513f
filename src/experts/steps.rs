//! The steps that a dispatch and a combine enqueue: kernels that run on this rank only, and between them collectives of the
//! group, or kernels that access the regions of all ranks.
#![allow(unsafe_code)]

use std::ffi::c_void;

use super::Inner;
use super::config::{Layout, Method, Scales, Wire, without_own_kernels};
use super::operands::{Combine, Received, Routing, ScaleOrder, TokenRows};
use crate::collective::{ExpertStage, ExpertStep, expert_form};
use crate::error::{Operation, Result};
use crate::group::{Announced, Determinism};
use crate::kernel::{PACKET_BYTES, args};
use crate::memory::WithView;
use crate::op::{ALL_GATHER, ALL_TO_ALL, BROADCAST, Call, Held, Numbers};
use crate::stream::Target;
use crate::types::Dtype;

/// Threads of a block that writes header pairs, of a block that visits pairs by source, and of a block that writes the metadata
/// of rows.
const HEAD_THREADS: usize = 256;
const TALLY_THREADS: usize = 1024;
const BESIDE_THREADS: usize = 512;

/// Pairs that a block writes into the metadata of peers' rows: eight for each of 32 threads.
const BESIDE_PAIRS: usize = 256;

/// An in-flight dispatch: its slot, and its number of tokens.
#[derive(Clone, Copy)]
pub(super) struct Underway {
    pub(super) slot: usize,
    pub(super) tokens: usize,
}

/// The address of an operand; null without one.
pub(super) fn address<T>(held: Option<&Held>) -> *mut T {
    held.map_or(std::ptr::null_mut(), |held| held.view().address.cast())
}

/// Adds the caller's routing to the arguments of a step.
pub(super) fn asking(step: args::ExpertArgs, routing: Option<&Routing<'_>>) -> args::ExpertArgs {
    let Some(routing) = routing else { return step };
    args::ExpertArgs {
        ids: address::<c_void>(Some(&routing.ids)).cast_const(),
        id_bytes: routing.ids.dtype.bytes() as u32,
        weights: address::<f32>(routing.weights.as_ref()).cast_const(),
        token_count: address::<u32>(routing.tokens.as_ref()).cast_const(),
        ..step
    }
}

impl Inner {
    /// The arguments that all steps of a call share.
    pub(super) fn args(&self, underway: Underway, operation: Operation) -> args::ExpertArgs {
        let Self { form, config, region, .. } = self;
        let slot = &self.memory[underway.slot];
        let (wire, scales) = match config.wire {
            Wire::Same => (args::kWireSame, args::kCodeScalesF32),
            Wire::Bytes(_) => (args::kWireBytes, args::kCodeScalesF32),
            Wire::F8(Scales::F32) => (args::kWireF8, args::kCodeScalesF32),
            Wire::F8(Scales::PowersOfTwo) => (args::kWireF8, args::kCodeScalesPowers),
            Wire::F8(Scales::E8M0) => (args::kWireF8, args::kCodeScalesE8M0),
            Wire::GivenF8 => (args::kWireGivenF8, args::kCodeScalesF32),
        };
        let (layout, align) = match config.layout {
            Layout::ByRank => (args::kRowsByRank, 1),
            Layout::ByExpert { align } => (args::kRowsByExpert, align as u32),
            Layout::Padded { .. } => (args::kRowsPadded, 1),
            Layout::BySource => (args::kRowsBySource, 1),
        };
        args::ExpertArgs {
            // The communicator fills in its own at the launch.
            wait: args::Wait { progress: std::ptr::null_mut(), status: std::ptr::null_mut(), timeout_ns: 0 },
            table: self.table.as_raw().cast_const(),
            heads: region.at(form.heads_at(underway.slot)),
            state: slot.state.as_raw(),
            places: slot.places.as_raw(),
            token_count: std::ptr::null(),
            ids: std::ptr::null(),
            weights: std::ptr::null(),
            rows: std::ptr::null(),
            row_scales: std::ptr::null(),
            travelling: region.at(form.rows_at(config.in_flight)),
            output: std::ptr::null_mut(),
            add: std::ptr::null(),
            sums: self.sums.as_raw(),
            head_bytes: form.head_bytes as u64,
            copies_offset: form.copies_offset as u64,
            weights_offset: form.weights_offset as u64,
            row_bytes: form.row_bytes as u64,
            scales_offset: form.scales_offset as u64,
            capacity: form.most_rows as u64,
            task: args::kExpertHead,
            rank: form.rank as u32,
            world: form.world as u32,
            op: operation.number(),
            dtype: config.dtype as u32,
            wire,
            scales,
            payload_bytes: form.payload_bytes as u32,
            layout,
            align,
            experts: form.experts as u32,
            copies: form.copies as u32,
            first_copy: form.first_copy as u32,
            local: form.local as u32,
            top_k: form.top_k as u32,
            hidden: form.hidden as u32,
            tokens: underway.tokens as u32,
            max_tokens: form.max_tokens as u32,
            id_bytes: 4,
            weighs: 0,
            exact: 0,
            step: 0,
            into: self.outputs(None),
            calls: self.barrier.as_raw().cast(),
            barrier_offset: 0,
            travelling_offset: form.rows_at(config.in_flight) as u64,
            tellings_offset: 0,
            buffer_bytes: 0,
            buffers: 1,
            telling_packets: 1,
            rows_at_once: 1,
            parts: 1,
            follows: 0,
            holds: 0,
            placed_offset: args::kStaged,
            placed_scales: args::kStaged,
            placed_ids: args::kStaged,
            placed_weights: args::kStaged,
            regions: [std::ptr::null_mut(); args::kMaxWorld as usize],
        }
    }

    /// The outputs for the metadata of received rows.
    pub(super) fn outputs(&self, into: Option<&Received<'_>>) -> args::ExpertOutputs {
        let scales = into.and_then(|into| into.scales.as_ref());
        let (held, order) = (scales.map(|(held, _)| held), scales.map(|(_, order)| *order));
        let scale_rows = match self.config.layout {
            Layout::Padded { rows } => rows,
            _ => held.map_or(0, |held| held.elems / self.form.groups),
        };
        args::ExpertOutputs {
            scales: address(held),
            counts: address(into.and_then(|into| into.counts.as_ref())),
            offsets: address(into.and_then(|into| into.offsets.as_ref())),
            ids: address(into.and_then(|into| into.ids.as_ref())),
            weights: address(into.and_then(|into| into.weights.as_ref())),
            sources: address(into.and_then(|into| into.sources.as_ref())),
            index: address(into.and_then(|into| into.index.as_ref())),
            scale_rows: scale_rows as u64,
            columns: (order == Some(ScaleOrder::Columns)).into(),
            reserved: 0,
        }
    }

    /// Enqueues a kernel that runs on this rank only.
    fn step(&self, args: &args::ExpertArgs, units: usize, items: usize, queue: Target<'_>) -> Result<()> {
        let step = ExpertStep { args: *args, work: [units, items], most_blocks: self.config.blocks };
        // SAFETY: region, slots, table and sums live as long as `self`, which outlives the device's work: dropping device
        // memory waits for the device, and graphs keep `self` (liveness, bounds). The lane orders their use (exclusion).
        // Operands have the sizes that the check of the call found, and are freed after the device's work, or are the
        // caller's duty.
        unsafe { self.over.local().expert_step(&step, queue) }
    }

    /// Enqueues kernels in which all ranks take part. Returns whether their call is the first on the device.
    pub(super) fn exchange(&self, stage: ExpertStage, steps: &[ExpertStep], queue: Target<'_>) -> Result<Announced> {
        let (Some(communicator), Some(region)) = (self.over.own(), self.region.symmetric()) else {
            return Err(without_own_kernels("an exchange of experts"));
        };
        // SAFETY: as for a step that runs on this rank only.
        unsafe { communicator.expert_exchange(stage, region, steps, queue) }
    }

    /// Bytes from the region of a rank to an operand in symmetric memory, which peers then address. Equal on all ranks, because
    /// all ranks use the same symmetric memory or none does.
    fn offset(&self, operand: &Held) -> Option<u64> {
        self.over.own()?.offset_between(&self.region.symmetric()?.view_of(), &operand.view())
    }

    /// Bytes from the region of a rank to rows of a layout with one row for each token, which peers access directly; `kStaged`
    /// for rows that go through the region. `whole`: whether rows are whole packets.
    fn placed(&self, rows: &Held, whole: bool) -> u64 {
        let direct = self.method == Method::Direct && self.config.layout.is_by_token() && whole;
        let offset = self.offset(rows).filter(|_| direct);
        offset.filter(|offset| offset.is_multiple_of(PACKET_BYTES as u64)).unwrap_or(args::kStaged)
    }

    /// Bytes from the region of a rank to the metadata of directly written rows by source: scales, expert ids and weights.
    /// `kStaged` for metadata that the caller does not request; `None` if peers cannot write all requested metadata.
    fn placed_beside(&self, into: &Received<'_>) -> Option<[u64; 3]> {
        if !self.heads_travel() || into.sources.is_some() {
            return None;
        }
        let of = |operand: Option<&Held>| operand.map_or(Some(args::kStaged), |held| self.offset(held));
        let scales = match &into.scales {
            Some((_, ScaleOrder::Columns)) => return None,
            scales => scales.as_ref().map(|(held, _)| held),
        };
        Some([of(scales)?, of(into.ids.as_ref())?, of(into.weights.as_ref())?])
    }

    /// Enqueues a kernel between barriers.
    fn meet(
        &self,
        operation: Operation,
        underway: Underway,
        args: args::ExpertArgs,
        work: [usize; 2],
        queue: Target<'_>,
    ) -> Result<()> {
        let step = ExpertStep { args, work, most_blocks: self.config.blocks };
        let bytes = self.form.max_tokens * args.row_bytes as usize;
        self.exchange(ExpertStage::New { operation, bytes, slot: underway.slot }, &[step], queue).map(drop)
    }

    /// Sends the part of each rank to all ranks. `start`: the offset of the part of rank 0 in the region. A part has
    /// `part_bytes` bytes.
    fn share(&self, start: usize, part_bytes: usize, queue: Target<'_>) -> Result<()> {
        let region = self.region.bytes();
        let region = region.view();
        let part = |rank: usize| region.part(start + rank * part_bytes..start + (rank + 1) * part_bytes, Dtype::U8);
        if self.method != Method::Broadcast {
            let all = region.part(start..start + part_bytes * self.form.world, Dtype::U8)?;
            return self.over.run(&Call::new(&ALL_GATHER, Dtype::U8).input(part(self.form.rank)?).output(all), queue);
        }
        (0..self.form.world).try_for_each(|root| {
            self.over.run(&Call::new(&BROADCAST, Dtype::U8).parameter(root).output(part(root)?), queue)
        })
    }

    /// Whether routing headers are sent together with rows: by direct access by source, because no place depends on the tokens
    /// of other ranks.
    pub(super) fn heads_travel(&self) -> bool {
        self.method == Method::Direct && self.config.layout == Layout::BySource
    }

    /// Sends the routing headers of this rank's tokens to all ranks.
    pub(super) fn tell(&self, underway: Underway, routing: &Routing<'_>, queue: Target<'_>) -> Result<()> {
        let form = &self.form;
        let args = asking(
            args::ExpertArgs { task: args::kExpertHead, ..self.args(underway, Operation::Dispatch) },
            Some(routing),
        );
        let pairs = underway.tokens * form.top_k;
        self.step(&args, pairs.div_ceil(HEAD_THREADS).max(1), HEAD_THREADS, queue)?;
        let tally = args::ExpertArgs { task: args::kExpertTally, ..args };
        let work = match self.config.layout {
            Layout::BySource => [1, TALLY_THREADS],
            _ => [form.copies + form.world + 1, pairs.div_ceil(8)],
        };
        self.step(&tally, work[0], work[1], queue)?;
        self.share(form.heads_at(underway.slot), form.head_bytes, queue)
    }

    /// Sends the rows of this rank's tokens, and puts received rows into their places, which are already computed. `routing`: for
    /// headers that are sent together with rows; `None` for another dispatch of the same routing.
    pub(super) fn move_rows(
        &self,
        underway: Underway,
        routing: Option<&Routing<'_>>,
        sent: TokenRows<'_>,
        into: &Received<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (form, common) = (&self.form, self.args(underway, Operation::Dispatch));
        let placed_offset = self.placed(&into.rows, form.payload_bytes.is_multiple_of(PACKET_BYTES));
        let beside = self.placed_beside(into).filter(|_| placed_offset != args::kStaged);
        let [placed_scales, placed_ids, placed_weights] = beside.unwrap_or([args::kStaged; 3]);
        let send = args::ExpertArgs {
            task: if self.method == Method::Direct { args::kExpertPush } else { args::kExpertRows },
            rows: address::<c_void>(Some(sent.rows)).cast_const(),
            row_scales: address::<f32>(sent.scales).cast_const(),
            placed_offset,
            placed_scales,
            placed_ids,
            placed_weights,
            follows: (self.heads_travel() && routing.is_none()).into(),
            ..asking(common, routing.filter(|_| self.heads_travel()))
        };
        let row_packets = form.payload_bytes.div_ceil(PACKET_BYTES);
        if self.method == Method::Direct {
            // Expert ids are also written for padding tokens.
            let pairs = if beside.is_some() { form.max_tokens * form.top_k } else { 0 };
            let units = underway.tokens.max(pairs.div_ceil(BESIDE_PAIRS));
            self.meet(Operation::Dispatch, underway, send, [units, form.row_bytes / PACKET_BYTES], queue)?;
        } else {
            self.step(&send, underway.tokens, row_packets, queue)?;
            self.share(form.rows_at(self.config.in_flight), form.max_tokens * form.row_bytes, queue)?;
        }
        if beside.is_some() {
            return Ok(());
        }
        let (rows, into_rows) = (form.world * form.max_tokens, address(Some(&into.rows)));
        let copy = args::ExpertArgs { output: into_rows, into: self.outputs(Some(into)), ..common };
        if placed_offset == args::kStaged {
            return self.step(&args::ExpertArgs { task: args::kExpertCopy, ..copy }, rows, row_packets, queue);
        }
        let at_once = (BESIDE_THREADS / form.groups.max(form.top_k)).max(1);
        let beside = args::ExpertArgs { task: args::kExpertBeside, ..copy };
        self.step(&beside, rows.div_ceil(at_once), BESIDE_THREADS, queue)
    }

    /// Counts the rows that this rank receives, into the slot and into the requested outputs.
    pub(super) fn count(&self, underway: Underway, into: Option<&Received<'_>>, queue: Target<'_>) -> Result<()> {
        let args = args::ExpertArgs {
            task: args::kExpertCount,
            into: self.outputs(into),
            ..self.args(underway, Operation::Dispatch)
        };
        self.step(&args, 1, self.form.copies, queue)
    }

    /// Computes the place of every row that this rank receives, and of every row that it sends. By rank, places of pairs only if
    /// `into` has an index. By source, places are fixed.
    pub(super) fn place_rows(&self, underway: Underway, into: Option<&Received<'_>>, queue: Target<'_>) -> Result<()> {
        if self.config.layout == Layout::BySource {
            return Ok(());
        }
        let form = &self.form;
        let into = self.outputs(into);
        let pairs = !self.config.layout.is_by_token() || !into.index.is_null();
        let args = args::ExpertArgs { task: args::kExpertPlace, into, ..self.args(underway, Operation::Dispatch) };
        let units = if pairs { form.local + 2 } else { 2 } * form.world;
        self.step(&args, units, (form.max_tokens * form.top_k).div_ceil(8), queue)
    }

    /// Sends this rank's results back, and sums the results of this rank's tokens.
    pub(super) fn give_and_take(
        &self,
        underway: Underway,
        results: &Held,
        output: &Held,
        options: &Combine<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (form, slots) = (&self.form, self.config.in_flight);
        // With one row for each token, a row is the caller's sum over experts, so weights and the order of experts do not apply.
        let by_token = self.config.layout.is_by_token();
        let exact = self.determinism == Determinism::Exact && !by_token;
        let items = form.part_bytes / PACKET_BYTES;
        let common = args::ExpertArgs {
            row_bytes: form.part_bytes as u64,
            weighs: (!options.unweighted && !by_token).into(),
            exact: exact.into(),
            ..self.args(underway, Operation::Combine)
        };
        let sums = args::ExpertArgs {
            output: address(Some(output)),
            add: address::<c_void>(options.add.as_ref()).cast_const(),
            ..common
        };
        let placed_offset = self.placed(results, form.part_bytes == form.hidden * self.config.dtype.bytes());
        if placed_offset != args::kStaged {
            let pull = self
                .shared(args::ExpertArgs { task: args::kExpertPull, placed_offset, ..sums }, underway.tokens.max(1));
            return self.meet(Operation::Combine, underway, pull.args, pull.work, queue);
        }
        let (region, bytes) = (self.region.bytes(), form.world * form.max_tokens * form.part_bytes);
        let region = region.view();
        let part = |start: usize| region.part(start..start + bytes, Dtype::U8);
        let out = part(form.rows_at(slots))?;
        for step in 0..if exact { form.top_k as u32 } else { 1 } {
            let rows = address::<c_void>(Some(results)).cast_const();
            let give = args::ExpertArgs { rows, travelling: out.address, step, ..common };
            let come = if self.method == Method::Direct {
                let deliver = args::ExpertArgs { task: args::kExpertDeliver, ..give };
                self.meet(Operation::Combine, underway, deliver, [form.world * form.max_tokens, items], queue)?;
                out.address
            } else {
                let give = args::ExpertArgs { task: args::kExpertGive, ..give };
                self.step(&give, form.world * form.max_tokens, items, queue)?;
                let into = part(form.parts_at(slots))?;
                let alike = Numbers::Alike(expert_form(underway.slot, Some(&common)));
                let call = Call::new(&ALL_TO_ALL, Dtype::U8).input(out.clone()).output(into.clone());
                self.over.run(&call.numbers(alike), queue)?;
                into.address
            };
            let take = args::ExpertArgs { task: args::kExpertTake, travelling: come, step, ..sums };
            self.step(&take, underway.tokens, items, queue)?;
        }
        Ok(())
    }
}
