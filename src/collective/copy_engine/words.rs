//! Arrival flags of parts: a copy stream stores a word after each copy, and the queue waits for the word and consumes it.
//!
//! The queue waits with a kernel that polls the word, because waiting for another stream's event is slow: on H200 a stream
//! continued 2 to 10 us after the copy.
#![allow(unsafe_code)]

use super::stream::Beside;
use crate::collective::heap::launch_signal;
use crate::error::Result;
use crate::kernel::args;
use crate::memory::SymmetricBuffer;

/// The channel of a buffer's signals whose words are the arrival flags.
const CHANNEL: usize = 0;

impl Beside<'_> {
    /// Stores this rank's word at a rank, after the earlier copies of the stream.
    pub(super) fn store_word(&self, buffer: &SymmetricBuffer<u8>, peer: usize) -> Result<()> {
        let (rank, world) = (self.inner.group.rank(), self.inner.group.world_size());
        let words = buffer.signals().args(args::kSignalTake, peer, CHANNEL)?.pads[peer];
        let word = words.wrapping_add(CHANNEL * world + rank);
        // SAFETY: the word is one of the buffer's signals (bounds), in a mapping that ends when the group is closed and the
        // device is idle (liveness). Only this rank stores there, once until that rank's queue has taken the word (exclusion).
        self.enqueue("store a word", |raw| unsafe { raw.store(word, 1) })
    }

    /// Makes the caller's queue wait for the words of these ranks. `op` is the operation that a timeout names.
    pub(super) fn take_words(
        &self,
        buffer: &SymmetricBuffer<u8>,
        ranks: impl IntoIterator<Item = usize>,
        op: u32,
        fresh: bool,
    ) -> Result<()> {
        let taken = buffer.signals().args(args::kSignalTake, self.inner.group.rank(), CHANNEL)?;
        let peer = ranks.into_iter().fold(0, |mask, rank| mask | 1 << rank);
        let args = args::SignalArgs { peer, op, wait: self.inner.arena.wait(fresh), ..taken };
        launch_signal(&self.inner.group, &args, self.queue)
    }
}
