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
use crate::kernel::expert_block::ExpertBlock;
use crate::kernel::{PACKET_BYTES, args};
use crate::memory::WithView;
use crate::op::{ALL_GATHER, ALL_TO_ALL, BROADCAST, Call, Held, Numbers};
use crate::stream::Target;
use crate::types::Dtype;

/// Threads of a block that writes header pairs, of a block that visits pairs by source, and of a block that writes the metadata
/// of rows.
const HEADER_THREADS: usize = 256;
const TALLY_THREADS: usize = 1024;
const METADATA_THREADS: usize = 512;

/// Pairs that a block writes into the metadata of peers' rows: eight for each of 32 threads.
const METADATA_PAIRS: usize = 256;

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

/// The caller's routing as kernel arguments.
pub(super) fn routing_of(routing: &Routing<'_>) -> args::ExpertRouting {
    args::ExpertRouting {
        ids: address::<c_void>(Some(&routing.ids)).cast_const(),
        weights: address::<f32>(routing.weights.as_ref()).cast_const(),
        token_count: address::<u32>(routing.tokens.as_ref()).cast_const(),
        id_bytes: routing.ids.dtype.bytes() as u32,
        reserved: 0,
    }
}

/// The caller's rows and scales as kernel arguments.
pub(super) fn rows_of(sent: TokenRows<'_>) -> args::ExpertRows {
    args::ExpertRows {
        values: address::<c_void>(Some(sent.rows)).cast_const(),
        scales: address::<f32>(sent.scales).cast_const(),
    }
}

/// The requested counts of received rows.
pub(super) fn counts_of(into: Option<&Received<'_>>) -> args::ExpertCounts {
    args::ExpertCounts {
        rows: address(into.and_then(|into| into.counts.as_ref())),
        offsets: address(into.and_then(|into| into.offsets.as_ref())),
    }
}

impl Inner {
    /// The arguments of all kernels. `calls`: the states of blocks, which kernels that run on this rank only do not use. The
    /// communicator sets the wait and the regions of ranks at the launch.
    fn args(&self, underway: Underway, calls: *mut args::BlockState) -> args::ExpertArgs {
        let Self { form, config, region, .. } = self;
        let slot = &self.memory[underway.slot];
        let (layout, align) = match config.layout {
            Layout::ByRank => (args::kRowsByRank, 1),
            Layout::ByExpert { align } => (args::kRowsByExpert, align as u32),
            Layout::Padded { .. } => (args::kRowsPadded, 1),
            Layout::BySource => (args::kRowsBySource, 1),
        };
        args::ExpertArgs {
            wait: args::Wait::NONE,
            calls,
            rank: form.rank as u32,
            world: form.world as u32,
            tokens: underway.tokens as u32,
            top_k: form.top_k as u32,
            max_tokens: form.max_tokens as u32,
            align,
            hidden: form.hidden as u32,
            first_replica: form.first_replica as u32,
            layout,
            local: form.local as u32,
            experts: form.experts as u32,
            replicas: form.replicas as u32,
            table: self.table.as_raw().cast_const(),
            headers: region.at(form.headers_at(underway.slot)),
            state: slot.state.as_raw(),
            places: slot.places.as_raw(),
            header_bytes: form.header_bytes as u64,
            replicas_offset: form.replicas_offset as u64,
            weights_offset: form.weights_offset as u64,
            capacity: form.most_rows as u64,
        }
    }

    /// The arguments of kernels that move the rows of a dispatch. `calls`: as for `args`.
    pub(super) fn row_args(&self, underway: Underway, calls: *mut args::BlockState) -> args::RowArgs {
        let Self { form, config, .. } = self;
        let (wire, scales) = match config.wire {
            Wire::Same => (args::kWireSame, args::kCodeScalesF32),
            Wire::Bytes(_) => (args::kWireBytes, args::kCodeScalesF32),
            Wire::F8(Scales::F32) => (args::kWireF8, args::kCodeScalesF32),
            Wire::F8(Scales::PowersOfTwo) => (args::kWireF8, args::kCodeScalesPowers),
            Wire::F8(Scales::E8M0) => (args::kWireF8, args::kCodeScalesE8M0),
            Wire::GivenF8 => (args::kWireGivenF8, args::kCodeScalesF32),
        };
        args::RowArgs {
            base: self.args(underway, calls),
            row_bytes: form.row_bytes as u64,
            scales_offset: form.scales_offset as u64,
            payload_bytes: form.payload_bytes as u32,
            wire,
            scales,
            dtype: config.dtype as u32,
        }
    }

    /// The arguments of kernels of a combine, without operands. `calls`: as for `args`.
    pub(super) fn part_args(
        &self,
        underway: Underway,
        calls: *mut args::BlockState,
        unweighted: bool,
    ) -> args::PartArgs {
        // With one row for each token, a row is the caller's sum over experts, so weights and the order of experts do not apply.
        let by_token = self.config.layout.is_by_token();
        args::PartArgs {
            base: self.args(underway, calls),
            sums: self.sums.as_raw(),
            part_bytes: self.form.part_bytes as u64,
            weighs: (!unweighted && !by_token).into(),
            exact: (self.determinism == Determinism::Exact && !by_token).into(),
            sharers: 1,
            dtype: self.config.dtype as u32,
            ..args::PartArgs::NONE
        }
    }

    /// The states of blocks of kernels between barriers.
    fn barrier_calls(&self) -> *mut args::BlockState {
        self.barrier.as_raw().cast()
    }

    /// The outputs for received rows and their metadata.
    pub(super) fn outputs(&self, into: Option<&Received<'_>>) -> args::ExpertOutputs {
        let scales = into.and_then(|into| into.scales.as_ref());
        let (held, order) = (scales.map(|(held, _)| held), scales.map(|(_, order)| *order));
        let scale_rows = match self.config.layout {
            Layout::Padded { rows } => rows,
            _ => held.map_or(0, |held| held.elems / self.form.groups),
        };
        args::ExpertOutputs {
            rows: address(into.map(|into| &into.rows)),
            scales: address(held),
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
    fn step(&self, block: ExpertBlock, work: [usize; 2], queue: Target<'_>) -> Result<()> {
        let step = ExpertStep { block, work, most_blocks: self.config.blocks };
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
    fn placed_metadata(&self, into: &Received<'_>) -> Option<[u64; 3]> {
        if !self.headers_with_rows() || into.sources.is_some() {
            return None;
        }
        let of = |operand: Option<&Held>| operand.map_or(Some(args::kStaged), |held| self.offset(held));
        let scales = match &into.scales {
            Some((_, ScaleOrder::Columns)) => return None,
            scales => scales.as_ref().map(|(held, _)| held),
        };
        Some([of(scales)?, of(into.ids.as_ref())?, of(into.weights.as_ref())?])
    }

    /// Enqueues a kernel between barriers. `row_bytes`: bytes of a row or part that a rank sends.
    fn meet(
        &self,
        operation: Operation,
        underway: Underway,
        block: ExpertBlock,
        row_bytes: usize,
        work: [usize; 2],
        queue: Target<'_>,
    ) -> Result<()> {
        let step = ExpertStep { block, work, most_blocks: self.config.blocks };
        let bytes = self.form.max_tokens * row_bytes;
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
    pub(super) fn headers_with_rows(&self) -> bool {
        self.method == Method::Direct && self.config.layout == Layout::BySource
    }

    /// Sends the routing headers of this rank's tokens to all ranks.
    pub(super) fn send_headers(&self, underway: Underway, routing: &Routing<'_>, queue: Target<'_>) -> Result<()> {
        let form = &self.form;
        let pairs = underway.tokens * form.top_k;
        let tally = match self.config.layout {
            Layout::BySource => [1, TALLY_THREADS],
            _ => [form.replicas + form.world + 1, pairs.div_ceil(8)],
        };
        let header = [pairs.div_ceil(HEADER_THREADS).max(1), HEADER_THREADS];
        for (task, work) in [(args::kRouteHeader, header), (args::kRouteTally, tally)] {
            let route = args::RouteArgs {
                base: self.args(underway, std::ptr::null_mut()),
                routing: routing_of(routing),
                task,
                ..args::RouteArgs::NONE
            };
            self.step(ExpertBlock::Route(route), work, queue)?;
        }
        self.share(form.headers_at(underway.slot), form.header_bytes, queue)
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
        let form = &self.form;
        let placed_rows = self.placed(&into.rows, form.payload_bytes.is_multiple_of(PACKET_BYTES));
        let metadata = self.placed_metadata(into).filter(|_| placed_rows != args::kStaged);
        let row_packets = form.payload_bytes.div_ceil(PACKET_BYTES);
        let moving = args::MoveArgs {
            base: self.row_args(underway, std::ptr::null_mut()),
            staged: self.region.at(form.rows_at(self.config.in_flight)),
            ..args::MoveArgs::NONE
        };
        if self.method == Method::Direct {
            let [scales, ids, weights] = metadata.unwrap_or([args::kStaged; 3]);
            let push = args::PushArgs {
                base: self.row_args(underway, self.barrier_calls()),
                rows: rows_of(sent),
                routing: routing.map_or(args::ExpertRouting::NONE, routing_of),
                staged_offset: form.rows_at(self.config.in_flight) as u64,
                placed: args::PlacedRows { rows: placed_rows, scales, ids, weights },
                again: (self.headers_with_rows() && routing.is_none()).into(),
                ..args::PushArgs::NONE
            };
            // Expert ids are also written for padding tokens.
            let pairs = if metadata.is_some() { form.max_tokens * form.top_k } else { 0 };
            let units = underway.tokens.max(pairs.div_ceil(METADATA_PAIRS));
            let work = [units, form.row_bytes / PACKET_BYTES];
            self.meet(Operation::Dispatch, underway, ExpertBlock::Push(push), form.row_bytes, work, queue)?;
        } else {
            let stage = args::MoveArgs { rows: rows_of(sent), task: args::kMoveStage, ..moving };
            self.step(ExpertBlock::Move(stage), [underway.tokens, row_packets], queue)?;
            self.share(form.rows_at(self.config.in_flight), form.max_tokens * form.row_bytes, queue)?;
        }
        if metadata.is_some() {
            return Ok(());
        }
        let rows = form.world * form.max_tokens;
        let (task, work) = if placed_rows == args::kStaged {
            (args::kMoveCopy, [rows, row_packets])
        } else {
            let at_once = (METADATA_THREADS / form.groups.max(form.top_k)).max(1);
            (args::kMoveMetadata, [rows.div_ceil(at_once), METADATA_THREADS])
        };
        let arrived = args::MoveArgs { into: self.outputs(Some(into)), task, ..moving };
        self.step(ExpertBlock::Move(arrived), work, queue)
    }

    /// Counts the rows that this rank receives, into the slot and into the requested outputs.
    pub(super) fn count(&self, underway: Underway, into: Option<&Received<'_>>, queue: Target<'_>) -> Result<()> {
        let route = args::RouteArgs {
            base: self.args(underway, std::ptr::null_mut()),
            counts: counts_of(into),
            task: args::kRouteCount,
            ..args::RouteArgs::NONE
        };
        self.step(ExpertBlock::Route(route), [1, self.form.replicas], queue)
    }

    /// Computes the place of every row that this rank receives, and of every row that it sends. By rank, places of pairs only if
    /// `into` has an index. By source, places are fixed.
    pub(super) fn place_rows(&self, underway: Underway, into: Option<&Received<'_>>, queue: Target<'_>) -> Result<()> {
        if self.config.layout == Layout::BySource {
            return Ok(());
        }
        let form = &self.form;
        let pairs = !self.config.layout.is_by_token() || into.is_some_and(|into| into.index.is_some());
        let route = args::RouteArgs {
            base: self.args(underway, std::ptr::null_mut()),
            task: args::kRoutePlace,
            pair_places: pairs.into(),
            ..args::RouteArgs::NONE
        };
        let units = if pairs { form.local + 2 } else { 2 } * form.world;
        self.step(ExpertBlock::Route(route), [units, (form.max_tokens * form.top_k).div_ceil(8)], queue)
    }

    /// Sends this rank's results back, and sums the results of this rank's tokens.
    pub(super) fn combine_by_steps(
        &self,
        underway: Underway,
        results: &Held,
        output: &Held,
        options: &Combine<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (form, slots) = (&self.form, self.config.in_flight);
        let items = form.part_bytes / PACKET_BYTES;
        let parts = args::PartArgs {
            results: address::<c_void>(Some(results)).cast_const(),
            output: address(Some(output)),
            add: address::<c_void>(options.add.as_ref()).cast_const(),
            ..self.part_args(underway, self.barrier_calls(), options.unweighted)
        };
        let results_offset = self.placed(results, form.part_bytes == form.hidden * self.config.dtype.bytes());
        if results_offset != args::kStaged {
            let (sharers, work) = self.shared(underway.tokens.max(1));
            let base = args::PartArgs { sharers, task: args::kCombineReceive, ..parts };
            let pull = args::CombineDirectArgs { base, results_offset, ..args::CombineDirectArgs::NONE };
            let block = ExpertBlock::CombineDirect(pull);
            return self.meet(Operation::Combine, underway, block, form.part_bytes, work, queue);
        }
        let (region, bytes) = (self.region.bytes(), form.world * form.max_tokens * form.part_bytes);
        let region = region.view();
        let part = |start: usize| region.part(start..start + bytes, Dtype::U8);
        let out = part(form.rows_at(slots))?;
        for step in 0..if parts.exact != 0 { form.top_k as u32 } else { 1 } {
            let send = args::PartArgs { step, task: args::kCombineSend, ..parts };
            let work = [form.world * form.max_tokens, items];
            let received = if self.method == Method::Direct {
                let (base, parts_offset) = (send, form.rows_at(slots) as u64);
                let results_offset = args::kStaged;
                let direct =
                    args::CombineDirectArgs { base, parts_offset, results_offset, ..args::CombineDirectArgs::NONE };
                let block = ExpertBlock::CombineDirect(direct);
                self.meet(Operation::Combine, underway, block, form.part_bytes, work, queue)?;
                out.address
            } else {
                let send = args::CombineArgs { base: send, sent: out.address, ..args::CombineArgs::NONE };
                self.step(ExpertBlock::Combine(send), work, queue)?;
                let into = part(form.parts_at(slots))?;
                let alike = Numbers::Alike(expert_form(underway.slot, Some(&parts)));
                let call = Call::new(&ALL_TO_ALL, Dtype::U8).input(out.clone()).output(into.clone());
                self.over.run(&call.numbers(alike), queue)?;
                into.address
            };
            let base = args::PartArgs { step, task: args::kCombineReceive, ..parts };
            let receive = args::CombineArgs { base, received, ..args::CombineArgs::NONE };
            self.step(ExpertBlock::Combine(receive), [underway.tokens, items], queue)?;
        }
        Ok(())
    }
}
