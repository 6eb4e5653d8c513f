//! The steps of a dispatch and of a combine that are this rank's alone.
#![allow(unsafe_code)]

use super::{Communicator, shape_of};
use crate::error::Result;
use crate::kernel::{args, geometry};
use crate::stream::Enqueue;

/// How much work a step has.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Parts of the step, each for a block.
    pub(crate) units: usize,
    /// What the threads of a block share among them.
    pub(crate) items: usize,
    /// Most blocks, if there is a limit.
    pub(crate) most_blocks: Option<u32>,
}

impl Communicator {
    /// Enqueues a step of experts.
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
}
