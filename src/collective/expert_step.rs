//! The steps of a dispatch and of a combine: kernels of this rank alone, and kernels that meet those of all ranks.
#![allow(unsafe_code)]

use super::graph_part::Recorded;
use super::{Communicator, shape_of};
use crate::error::{Operation, Result};
use crate::group::Call as Noted;
use crate::kernel::{args, geometry};
use crate::memory::SymmetricBuffer;
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction};

/// How much work a step has.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Parts of the step, each for a block. In a step that all ranks take at once, equal on all ranks.
    pub(crate) units: usize,
    /// What the threads of a block share among them.
    pub(crate) items: usize,
    /// Most blocks, if there is a limit. Equal on all ranks.
    pub(crate) most_blocks: Option<u32>,
}

impl Communicator {
    /// Enqueues a step of experts that is this rank's alone.
    ///
    /// # Safety
    /// The addresses of the block are valid for what its settings say, and stay so until the device has done the step, or
    /// are the caller's duty.
    pub(crate) unsafe fn expert_step(&self, args: &args::ExpertArgs, work: Work, queue: &impl Enqueue) -> Result<()> {
        if work.units == 0 {
            return Ok(());
        }
        let inner = &self.0;
        let args = args::ExpertArgs { wait: inner.arena.wait(false), ..*args };
        let Work { units, items, most_blocks } = work;
        let geometry = geometry::experts(shape_of(inner.group.device()), [units, items], most_blocks);
        // SAFETY: the caller's promise.
        queue.enqueue("launch a step of experts", |raw| unsafe { raw.launch(&args, &geometry) })
    }

    /// Enqueues a step of experts that all ranks take at once, on the regions of all ranks. `bytes`: of the largest part
    /// that a rank may send another.
    ///
    /// # Safety
    /// That of [`expert_step`](Self::expert_step).
    pub(crate) unsafe fn expert_exchange(
        &self,
        args: &args::ExpertArgs,
        (operation, bytes): (Operation, usize),
        region: &SymmetricBuffer<u8>,
        work: Work,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let recorded = queue.recording().map(|recording| recording.part(inner.group.id(), || Recorded::new(inner)));
        let lane = &mut inner.lane.lock();
        lane.order_call(queue)?;
        let noted = Noted::new(bytes as u64, operation.number(), Dtype::U8, Reduction::Sum, args::kExchangePush, 0);
        let first = inner.announce(noted, lane, queue, recorded.as_deref())?;
        let mut regions = [std::ptr::null_mut(); args::kMaxWorld as usize];
        for (rank, address) in regions.iter_mut().enumerate().take(inner.group.world_size()) {
            *address = region.at(rank)?;
        }
        let flags = &inner.arena.layout().flags;
        let args = args::ExpertArgs {
            wait: inner.arena.wait(first),
            calls: inner.arena.own(flags.state.offset).cast(),
            peers: inner.arena.everywhere(flags.region.offset),
            regions,
            ..*args
        };
        let most_blocks = work.most_blocks.unwrap_or(args::kMaxBlocks).min(args::kMaxBlocks);
        let geometry = geometry::experts(shape_of(inner.group.device()), [work.units, work.items], Some(most_blocks));
        // SAFETY: flags and regions lie in arenas that live until the device is idle (liveness, bounds); the lane orders
        // their use (exclusion); the rest is the caller's promise.
        queue.enqueue("launch an exchange of experts", |raw| unsafe { raw.launch(&args, &geometry) })
    }
}
