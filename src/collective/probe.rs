//! Measurements of the hardware: empty launches, and plain stores to peers.
#![allow(unsafe_code)]

use super::{Communicator, limits_of};
use crate::error::{Error, Result};
use crate::kernel::PACKET_BYTES;
use crate::kernel::args::{self, Block};
use crate::kernel::geometry::DeviceLimits;
use crate::memory::SymmetricBuffer;
use crate::stream::{Queue, Target};
use crate::sys::device as sys;
use crate::types::Element;

/// Threads a block of the stores: enough to fill any link.
const STORE_THREADS: u32 = 512;
const STORE_BLOCKS: u32 = 128;

/// Only for `symmetra-bench`.
#[doc(hidden)]
impl Communicator {
    /// Enqueues `launches` empty kernels of `blocks` blocks of `threads` threads, back to back. Their argument blocks
    /// are as large as an all-reduce's, so that their cost is that of a bare launch of an all-reduce.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; [`Error::Device`] for a shape that the device
    /// refuses; the group's error if the group has failed.
    pub fn probe_launches<'op>(&self, blocks: u32, threads: u32, launches: u32, queue: impl Queue<'op>) -> Result<()> {
        self.probe(&args::ProbeArgs::NONE, (blocks, threads), launches, Target::of(&queue))
    }

    /// [`probe_launches`](Self::probe_launches) with argument blocks of the size that experts use.
    ///
    /// # Errors
    /// The errors of [`probe_launches`](Self::probe_launches).
    pub fn probe_expert_launches<'op>(
        &self,
        blocks: u32,
        threads: u32,
        launches: u32,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.probe(&args::WideProbeArgs::NONE, (blocks, threads), launches, Target::of(&queue))
    }

    /// Stores this rank's elements of `from` into `to` of every rank in `peers`, by a kernel with 16 bytes a store.
    /// Omits a shorter tail. One-sided: peers are not notified. Enqueues and returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for buffers of different lengths or of another group, or an unknown peer; the group's
    /// error if the group has failed; [`Error::Device`] if the launch fails.
    pub fn probe_stores<'op, T: Element>(
        &self,
        from: &'op SymmetricBuffer<T>,
        to: &'op SymmetricBuffer<T>,
        peers: &[usize],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        if from.len() != to.len() {
            return Err(Error::invalid("the target's length", to.len(), format!("the source has {}", from.len())));
        }
        if peers.len() > args::kMaxWorld as usize {
            return Err(Error::invalid("the number of peers", peers.len(), format!("at most {}", args::kMaxWorld)));
        }
        let mut probe = args::ProbeArgs::NONE;
        probe.from = self.peer_of(from, self.rank())?.cast();
        for (target, peer) in probe.to.iter_mut().zip(peers) {
            *target = self.peer_of(to, *peer)?.cast();
        }
        probe.packets = (from.len() * size_of::<T>() / PACKET_BYTES) as u64;
        probe.targets = peers.len() as u32;
        self.probe(&probe, (STORE_BLOCKS, STORE_THREADS), 1, Target::of(&queue))
    }

    /// Enqueues launches of a kernel. `gpu`: blocks and threads on a GPU; a CPU uses the group's launch shape.
    fn probe(&self, probe: &impl Block, gpu: (u32, u32), launches: u32, queue: Target<'_>) -> Result<()> {
        let _entered = self.group().enter()?;
        self.device().check_same("stream", queue.stream().device())?;
        self.record_one_sided(queue);
        let shape = limits_of(self.group());
        let (blocks, threads) = match shape.kind {
            DeviceLimits::Gpu => gpu,
            DeviceLimits::Host { blocks, threads } => (blocks, threads),
        };
        let geometry = shape.launch(blocks, threads, 0, true);
        // SAFETY: addresses are in arenas that live until the device is idle (liveness) and have room for the
        // packets (bounds), or there are no addresses; a graph's operands live as long as the graph.
        let launch = |raw: &sys::Stream| unsafe { raw.launch(probe, &geometry) };
        queue.enqueue("launch a probe", |raw| (0..launches).map(|_| launch(raw)).find(|code| *code != 0).unwrap_or(0))
    }
}
