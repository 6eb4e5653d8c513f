//! Guards: bytes of one pattern between the regions of an arena, and around the contents of a heap block. A byte that
//! differs shows that a kernel or a copy wrote outside its operands or its scratch. A group has guards if
//! `Config::guard_bytes` is not 0.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::heap::BlockId;
use super::layout::{ALIGN, ArenaLayout, Region};
use crate::error::{Error, Result};

/// The value of every byte of a guard. It is neither zero nor part of an absent packet.
pub(super) const PATTERN: u8 = 0xC5;

/// The guards of an arena.
pub(super) struct Guards {
    /// Bytes of each guard; 0 means no guards.
    bytes: u64,
    /// The guard after each region of the layout.
    of_regions: Vec<Region>,
    of_blocks: Mutex<BTreeMap<BlockId, [Region; 3]>>,
}

impl Guards {
    pub(super) fn new(layout: &ArenaLayout, of_regions: Vec<Region>) -> Self {
        Self { bytes: layout.guard_bytes, of_regions, of_blocks: Mutex::default() }
    }

    /// Bytes of a heap block for `content_bytes` bytes and a signal pad, including guards and alignment.
    pub(super) fn block_bytes(&self, content_bytes: u64, pad_bytes: u64) -> u64 {
        content_bytes.next_multiple_of(ALIGN) + pad_bytes + 3 * self.bytes
    }

    /// Divides a heap block: a guard, the contents, a guard, the signal pad, a guard. Returns the region of the
    /// contents.
    pub(super) fn divide(&self, id: BlockId, block: Region, content_bytes: u64, pad_bytes: u64) -> Region {
        let content = Region { offset: block.offset + self.bytes, bytes: content_bytes };
        let pad = content.offset + content_bytes.next_multiple_of(ALIGN) + self.bytes;
        let between = |start: u64, end: u64| Region { offset: start, bytes: end.saturating_sub(start) };
        if self.bytes > 0 {
            let guards = [
                between(block.offset, content.offset),
                between(content.offset + content_bytes, pad),
                between(pad + pad_bytes, block.offset + block.bytes),
            ];
            self.of_blocks.lock().insert(id, guards);
        }
        content
    }

    /// Writes the guards after the regions of the layout.
    pub(super) fn fill(&self, fill: impl FnMut(Region) -> Result<()>) -> Result<()> {
        self.of_regions.iter().copied().try_for_each(fill)
    }

    /// Writes the guards of a block.
    pub(super) fn fill_block(&self, id: BlockId, fill: impl FnMut(Region) -> Result<()>) -> Result<()> {
        let guards = self.of_blocks.lock().get(&id).copied();
        guards.into_iter().flatten().try_for_each(fill)
    }

    /// Compares the guards of blocks that are about to be freed, and forgets them.
    pub(super) fn release(
        &self,
        blocks: &BTreeSet<BlockId>,
        read: impl FnMut(Region) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let mut all = self.of_blocks.lock();
        let guards: Vec<[Region; 3]> = blocks.iter().filter_map(|id| all.remove(id)).collect();
        drop(all);
        compare(guards.iter().map(|guards| ("a symmetric buffer that was dropped", guards.as_slice())), read)
    }

    /// Compares all guards.
    pub(super) fn check(&self, read: impl FnMut(Region) -> Result<Vec<u8>>) -> Result<()> {
        let blocks: Vec<[Region; 3]> = self.of_blocks.lock().values().copied().collect();
        let regions = ("scratch of the communicator", self.of_regions.as_slice());
        let blocks = blocks.iter().map(|guards| ("a symmetric buffer", guards.as_slice()));
        compare(std::iter::once(regions).chain(blocks), read)
    }
}

fn compare<'a>(
    guards: impl Iterator<Item = (&'static str, &'a [Region])>,
    mut read: impl FnMut(Region) -> Result<Vec<u8>>,
) -> Result<()> {
    for (of, guards) in guards {
        for guard in guards.iter().copied() {
            let bytes = read(guard)?;
            let Some(first) = bytes.iter().position(|byte| *byte != PATTERN) else { continue };
            let wrong = bytes.iter().filter(|byte| **byte != PATTERN).count();
            let Region { offset, bytes } = guard;
            return Err(Error::internal(format!(
                "{wrong} of the {bytes} guard bytes beside {of} were overwritten, the first at byte {first}; the guard \
                     begins {offset} bytes into this rank's arena. A kernel or a copy of some rank wrote outside its operands"
            )));
        }
    }
    Ok(())
}
