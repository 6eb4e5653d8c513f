//! An all-gather by pushed copies: each rank copies its part to every peer, followed by a word for which the peer's queue
//! waits.
#![allow(unsafe_code)]

use super::pending::Pending;
use super::stream::Beside;
use super::{Copies, CopyParts, LowContention, PUSHED};
use crate::error::Result;
use crate::memory::SymmetricBuffer;

impl LowContention<'_> {
    pub(super) fn push_gather<'op>(
        &self,
        kept: &SymmetricBuffer<u8>,
        parts: &mut CopyParts<'_>,
    ) -> Result<Pending<'op>> {
        let Self { input, output, rank, world, bytes, .. } = *self;
        let own = kept.at(rank)?;
        let at = |base: *mut u8, part: usize| base.wrapping_add(part * bytes);
        let fills = output.address != own;
        let apart = fills && at(output.address, rank) != input.address;
        let copies = Copies { way: PUSHED, offset_bytes: kept.offset_bytes(), apart: fills, on_queue: bytes > 0 };
        self.run(&copies, |beside, fresh| {
            if bytes == 0 {
                return parts.of_nothing(true, rank, world);
            }
            // Peers wait for the parts of this rank, and an unconsumed word would be mistaken for a word of the next call.
            let lost = |error| self.lost(error);
            if apart {
                // SAFETY: operands have `world` parts (bounds, checked by the caller) and are freed only after the device's
                // work, or are the caller's duty.
                unsafe { beside.copy_apart(at(output.address, rank), input.address, bytes) }.map_err(lost)?;
            }
            self.send_parts(beside, kept).map_err(lost)?;
            let mut worked = (parts.each)(rank);
            for step in 1..world {
                let peer = (rank + step) % world;
                // Words are consumed even after an error of the work. The last part arrives at about the time when the last
                // copy of this rank's part is done, so that copy's word is awaited there too.
                let gone = (step + 1 == world).then_some(rank);
                beside.take_words(kept, gone.into_iter().chain([peer]), self.op(), fresh).map_err(lost)?;
                if worked.is_ok() && fills {
                    let event = &parts.events[peer];
                    // SAFETY: as above; the memory that is kept lives as long as its plan, which the call borrows.
                    worked = unsafe { beside.copy_behind(event, at(output.address, peer), at(own, peer), bytes) };
                }
                worked = worked.and_then(|()| (parts.each)(peer));
            }
            worked
        })
    }

    /// Sends this rank's part to all peers, each copy followed by a word, and then stores the word of this rank at itself. In
    /// each step the ranks write to different peers.
    fn send_parts(&self, beside: &Beside<'_>, kept: &SymmetricBuffer<u8>) -> Result<()> {
        let Self { input, rank, world, bytes, .. } = *self;
        for peer in (1..world).map(|step| (rank + world - step) % world) {
            let to = kept.at(peer)?.wrapping_add(rank * bytes);
            // SAFETY: the memory has a place for the part of each rank (bounds, by the plan), and lives in a mapping that ends
            // when the group is closed and the device is idle (liveness); no other rank writes there (exclusion).
            unsafe { beside.copy(to, input.address, bytes) }?;
            beside.store_word(kept, peer)?;
        }
        beside.store_word(kept, rank)
    }
}
