//! The steps of a dispatch and of a combine: kernels that run on this rank only, and kernels that synchronise with the kernels
//! of all ranks.
#![allow(unsafe_code)]

use super::reach::arena_offset;
use super::turn::Turn;
use super::{Communicator, limits_of};
use crate::error::{Operation, Result};
use crate::group::{Announced, EnqueuedCall as Noted};
use crate::kernel::expert_block::ExpertBlock;
use crate::kernel::{args, geometry};
use crate::memory::{SymmetricBuffer, View};
use crate::stream::Target;
use crate::types::{Dtype, Reduction};

/// A kernel of a step, and the size of its work.
#[derive(Clone, Copy)]
pub(crate) struct ExpertStep {
    pub(crate) block: ExpertBlock,
    /// Number of units, of which a block takes one at a time; and items of a unit, which the threads of a block share. Equal on
    /// all ranks in a kernel between barriers.
    pub(crate) work: [usize; 2],
    /// Most blocks, if there is a limit. Equal on all ranks in a kernel between barriers.
    pub(crate) most_blocks: Option<u32>,
}

/// The stage of an exchange of experts to which kernels belong.
#[derive(Clone, Copy)]
pub(crate) enum ExpertStage {
    /// The first kernels, which enter the exchange in the history.
    New {
        operation: Operation,
        /// Bytes of the largest part that a rank may send to another.
        bytes: usize,
        /// The slot of the dispatch.
        slot: usize,
    },
    /// Later kernels. The value is the result of enqueueing the first kernels.
    Rest(Announced),
}

/// Further settings on which ranks must agree, as one number: the slot of the exchange, and how the parts of a combine are summed.
/// For exact sums the token's rank applies the weights, so it alone decides whether to weigh. 1 for the first slot without weights.
pub(crate) fn form_of(slot: usize, parts: Option<&args::PartArgs>) -> u64 {
    let sums = parts.map_or(0, |parts| if parts.exact != 0 { 2 } else { parts.weighs.min(1) });
    1 + (slot as u64) * 4 + u64::from(sums)
}

impl Communicator {
    /// Bytes from one operand to another on every rank, if both lie in the symmetric memory of this communicator; modulo
    /// 2^64.
    pub(crate) fn offset_between(&self, from: &View<'_>, to: &View<'_>) -> Option<u64> {
        let at = |operand: &View<'_>| arena_offset(self.0.group.id(), operand);
        Some(at(to)?.wrapping_sub(at(from)?))
    }

    /// Enqueues a step of experts that runs on this rank only.
    ///
    /// # Safety
    /// The addresses of the argument block are valid for the accesses that its settings define, and stay valid until the
    /// device has done the step, or are the caller's duty.
    pub(crate) unsafe fn expert_step(&self, step: &ExpertStep, queue: Target<'_>) -> Result<()> {
        if step.work[0] == 0 {
            return Ok(());
        }
        let block = step.block.ready(self.0.arena.wait(false), &[]);
        // SAFETY: the caller's promise.
        unsafe { self.launch_expert(&ExpertStep { block, ..*step }, queue) }
    }

    /// Enqueues kernels of an exchange of experts, in which all ranks take part, on the regions of all ranks.
    ///
    /// # Safety
    /// The requirements of [`expert_step`](Self::expert_step).
    pub(crate) unsafe fn expert_exchange(
        &self,
        stage: ExpertStage,
        region: &SymmetricBuffer<u8>,
        steps: &[ExpertStep],
        queue: Target<'_>,
    ) -> Result<Announced> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let mut turn = Turn::begin(inner, "a call of experts", queue)?;
        turn.order()?;
        // SAFETY: the caller's promise.
        let enqueued = unsafe { self.expert_stage(stage, region, steps, &mut turn) };
        turn.end(enqueued)
    }

    /// Enqueues the kernels of an exchange in its turn.
    ///
    /// # Safety
    /// The requirements of [`expert_step`](Self::expert_step).
    unsafe fn expert_stage(
        &self,
        stage: ExpertStage,
        region: &SymmetricBuffer<u8>,
        steps: &[ExpertStep],
        turn: &mut Turn<'_>,
    ) -> Result<Announced> {
        let (inner, queue) = (&self.0, turn.queue);
        let announced = match stage {
            ExpertStage::New { operation, bytes, slot } => {
                let way = args::kExchangePush;
                let noted = Noted::new(bytes as u64, operation.number(), Dtype::U8, Reduction::Sum, way, 0);
                let noted =
                    noted.tagged(self.1).in_form(form_of(slot, steps.first().and_then(|step| step.block.parts())));
                // Peers assume that rows and their metadata are at the same distance from the region as on this rank.
                let placed = steps.iter().find_map(|step| step.block.placed());
                let noted = placed.map_or(noted, |offsets| noted.at(offsets.map(Some)));
                turn.announce(noted)?
            }
            ExpertStage::Rest(announced) => announced,
        };
        let mut regions = [std::ptr::null_mut(); args::kMaxWorld as usize];
        let regions = &mut regions[..inner.group.world_size()];
        for (rank, address) in regions.iter_mut().enumerate() {
            *address = region.at(rank)?;
        }
        for step in steps {
            let block = step.block.ready(inner.arena.wait(announced), regions);
            let most_blocks = Some(step.most_blocks.unwrap_or(args::kMaxBlocks).min(args::kMaxBlocks));
            // SAFETY: flags and regions lie in arenas that live until the device is idle (liveness, bounds); the lane
            // orders their use (exclusion); the rest is the caller's promise.
            unsafe { self.launch_expert(&ExpertStep { block, most_blocks, ..*step }, queue) }?;
        }
        Ok(announced)
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// The requirements of [`expert_step`](Self::expert_step).
    unsafe fn launch_expert(&self, step: &ExpertStep, queue: Target<'_>) -> Result<()> {
        let limits = limits_of(&self.0.group);
        let most_blocks = step.most_blocks.unwrap_or(args::kMostNormBlocks);
        let geometry = geometry::experts(limits, &step.block, step.work[0], step.work[1], most_blocks);
        let (kind, address) = step.block.raw();
        // SAFETY: the address is that of a block of this kind; the rest is the caller's promise.
        queue.enqueue("launch a step of experts", |raw| unsafe { raw.launch_block(kind, address, &geometry) })
    }
}
