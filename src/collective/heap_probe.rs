//! Measurements of a kernel's loads, atomics, messages and copies in a peer's memory.
#![allow(unsafe_code)]

use super::{Communicator, limits_of};
use crate::error::{Error, Result};
use crate::kernel::geometry::DeviceLimits;
use crate::kernel::{PACKET_BYTES, args};
use crate::memory::SymmetricBuffer;
use crate::stream::{Queue, Target};
use crate::types::Element;

/// Threads a block of the copy.
const PUT_THREADS: u32 = 1024;

/// Only for `symmetra-bench`. `found` has two words: the last received word, and the fold of all words in order. A launch
/// reads both words and continues from them.
#[doc(hidden)]
impl Communicator {
    /// Words from one word of a chain to the next.
    pub const PROBE_LINE_WORDS: usize = args::kHeapProbeLineWords as usize;
    /// Words of the slots of messages: two messages of two words.
    pub const PROBE_SLOT_WORDS: usize = args::kHeapProbeSlotWords as usize;
    /// Blocks of a copy.
    pub const PROBE_PUT_BLOCKS: u32 = 8;

    /// The fold of all previous words and one more word.
    pub fn probe_fold(folded: u64, word: u64) -> u64 {
        folded.wrapping_mul(args::kHeapProbeFold).wrapping_add(word)
    }

    /// Loads `rounds` words of `peer`'s `chain` by one thread, one after the other. The lowest bits of a word are the number
    /// of the line of the next word. The chain has the largest power of two of lines that fits. Enqueues and returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no rounds, short buffers, buffers of another group or an unknown peer; the group's error
    /// if the group has failed; [`Error::Device`] if the launch fails.
    pub fn probe_loads<'op>(
        &self,
        chain: &'op SymmetricBuffer<u64>,
        found: &'op SymmetricBuffer<u64>,
        peer: usize,
        rounds: u32,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let mut probe = self.heap_probe(args::kHeapProbeLoad, peer, Target::of(&queue))?;
        let lines = self.room("the chain", chain, Self::PROBE_LINE_WORDS)? / Self::PROBE_LINE_WORDS;
        probe.line_mask = u32::try_from(1usize << lines.ilog2()).unwrap_or(1 << 31) - 1;
        probe.at = self.peer_of(chain, self.rank())?.cast();
        self.run_chain(probe, found, rounds, Target::of(&queue))
    }

    /// Adds `rounds` times to the first of `peer`'s `words`, by one thread. Each time adds twice the result of the last
    /// addition, plus 1. Enqueues and returns.
    ///
    /// # Errors
    /// The errors of [`probe_loads`](Self::probe_loads), and [`Error::Unsupported`] where links have no atomics.
    pub fn probe_additions<'op>(
        &self,
        words: &'op SymmetricBuffer<u64>,
        found: &'op SymmetricBuffer<u64>,
        peer: usize,
        rounds: u32,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        if !self.has_native_atomics() {
            return Err(Error::unsupported("to add to a peer's memory", "links between the devices have no atomics"));
        }
        let mut probe = self.heap_probe(args::kHeapProbeAdd, peer, Target::of(&queue))?;
        self.room("the words", words, 1)?;
        probe.at = self.peer_of(words, self.rank())?.cast();
        self.run_chain(probe, found, rounds, Target::of(&queue))
    }

    /// Sends `rounds` messages of 16 bytes to `peer`, which does the same, and waits for a message after each. The lower rank
    /// sends first. Two slots of `from` and `to` alternate. Every sent word becomes its fold with its number, from 1 on.
    /// Enqueues and returns.
    ///
    /// # Errors
    /// The errors of [`probe_loads`](Self::probe_loads).
    pub fn probe_messages<'op>(
        &self,
        from: &'op SymmetricBuffer<u64>,
        to: &'op SymmetricBuffer<u64>,
        found: &'op SymmetricBuffer<u64>,
        peer: usize,
        rounds: u32,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let mut probe = self.heap_probe(args::kHeapProbeMessage, peer, Target::of(&queue))?;
        self.room("the source", from, Self::PROBE_SLOT_WORDS)?;
        self.room("the target", to, Self::PROBE_SLOT_WORDS)?;
        probe.from = self.peer_of(from, self.rank())?.cast();
        probe.at = self.peer_of(to, self.rank())?.cast();
        self.run_chain(probe, found, rounds, Target::of(&queue))
    }

    /// Copies `from` to `peer`'s elements of `to`, by a kernel of [`PROBE_PUT_BLOCKS`](Self::PROBE_PUT_BLOCKS) blocks. Omits
    /// a tail that is shorter than 16 bytes. One-sided: the peer is not notified. Enqueues and returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for buffers of different lengths or of another group, or an unknown peer; the group's
    /// error if the group has failed; [`Error::Device`] if the launch fails.
    pub fn probe_put<'op, T: Element>(
        &self,
        from: &'op SymmetricBuffer<T>,
        to: &'op SymmetricBuffer<T>,
        peer: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let mut probe = self.heap_probe(args::kHeapProbePut, peer, Target::of(&queue))?;
        if from.len() != to.len() {
            return Err(Error::invalid("the target's length", to.len(), format!("the source has {}", from.len())));
        }
        probe.from = self.peer_of(from, self.rank())?.cast();
        probe.at = self.peer_of(to, self.rank())?.cast();
        probe.bytes = (size_of::<T>() * from.len() / PACKET_BYTES * PACKET_BYTES) as u64;
        let threads = match limits_of(self.group()).kind {
            DeviceLimits::Gpu => PUT_THREADS,
            DeviceLimits::Host { threads, .. } => threads,
        };
        self.run_heap_probe(&probe, Self::PROBE_PUT_BLOCKS, threads, Target::of(&queue))
    }

    /// Arguments without addresses.
    fn heap_probe(&self, task: u32, peer: usize, queue: Target<'_>) -> Result<args::HeapProbeArgs> {
        let heap = self.heap_on(None, queue)?.raw();
        let peer = u32::try_from(peer)
            .ok()
            .filter(|peer| *peer < heap.signals.world)
            .ok_or_else(|| Error::invalid("the peer", peer, format!("there are {} ranks", heap.signals.world)))?;
        Ok(args::HeapProbeArgs { heap, task, peer, ..args::HeapProbeArgs::NONE })
    }

    /// The length of a buffer of at least `least` words.
    fn room(&self, what: &str, buffer: &SymmetricBuffer<u64>, least: usize) -> Result<usize> {
        let len = buffer.len();
        if len < least { Err(Error::invalid(what, len, format!("it must be at least {least} words"))) } else { Ok(len) }
    }

    fn run_chain(
        &self,
        mut probe: args::HeapProbeArgs,
        found: &SymmetricBuffer<u64>,
        rounds: u32,
        queue: Target<'_>,
    ) -> Result<()> {
        if rounds == 0 {
            return Err(Error::invalid("the number of rounds", rounds, "it must be at least 1"));
        }
        self.room("the result", found, 2)?;
        probe.found = self.peer_of(found, self.rank())?.cast();
        probe.rounds = rounds;
        self.run_heap_probe(&probe, 1, 1, queue)
    }

    fn run_heap_probe(&self, probe: &args::HeapProbeArgs, blocks: u32, threads: u32, queue: Target<'_>) -> Result<()> {
        let _entered = self.group().enter()?;
        self.record_one_sided(queue);
        let geometry = limits_of(self.group()).launch(blocks, threads, 0, false);
        // SAFETY: addresses are in arenas that live until the device is idle (liveness) and have room for what the task
        // accesses (bounds); a graph's operands live as long as the graph.
        queue.enqueue("launch a probe of the heap", |raw| unsafe { raw.launch(probe, &geometry) })
    }
}
