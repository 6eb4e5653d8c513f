//! Numbers and sizes that follow from the settings of experts: pure functions, equal on every rank but for the rank's own
//! experts.

use super::config::{ExpertConfig, Layout, Scales, Wire};
use crate::error::{Error, Result};
use crate::kernel::args;

/// Bytes of a packet; rows that travel are whole packets.
const PACKET_BYTES: usize = 16;
/// Everything in a region begins at a multiple of this.
const ALIGN: usize = 256;

/// Sizes of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) world: usize,
    pub(super) rank: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) hidden: usize,
    pub(super) max_tokens: usize,
    /// Copies of experts on all ranks.
    pub(super) copies: usize,
    /// The number of this rank's first copy.
    pub(super) first_copy: usize,
    /// Copies on this rank.
    pub(super) local: usize,
    /// Groups of a row that have a scale each.
    pub(super) groups: usize,
    /// Bytes of a row on the wire, without scales.
    pub(super) payload_bytes: usize,
    /// Where the scales of a row that travels are.
    pub(super) scales_offset: usize,
    /// Bytes of a row that travels to experts.
    pub(super) row_bytes: usize,
    /// Bytes of a row that travels back.
    pub(super) part_bytes: usize,
    /// Where the copies of a head are, and its weights.
    pub(super) copies_offset: usize,
    pub(super) weights_offset: usize,
    /// Bytes of a head.
    pub(super) head_bytes: usize,
    /// Most rows that a rank may receive, or with equal room for every expert the rows of an expert.
    pub(super) most_rows: usize,
    /// Rows that an operand for received rows has room for.
    pub(super) capacity: usize,
}

impl Form {
    /// `lists`: the experts of every rank.
    pub(super) fn new(config: &ExpertConfig, rank: usize, lists: &[Vec<usize>]) -> Result<Self> {
        let &ExpertConfig { experts, top_k, hidden, max_tokens, .. } = config;
        let world = lists.len();
        let copies: usize = lists.iter().map(Vec::len).sum();
        let local = lists[rank].len();
        let most_local = lists.iter().map(Vec::len).max().unwrap_or(0);
        let groups = hidden.div_ceil(args::kCodeGroup as usize);
        let (payload_bytes, scale_bytes) = match config.wire {
            Wire::Same => (hidden * config.dtype.bytes(), 0),
            Wire::F8(Scales::E8M0) => (hidden, groups),
            Wire::F8(Scales::F32 | Scales::PowersOfTwo) | Wire::GivenF8 => (hidden, groups * 4),
            Wire::Bytes(bytes) => (bytes, 0),
        };
        let scales_offset = payload_bytes.next_multiple_of(PACKET_BYTES);
        let pairs = max_tokens * top_k;
        let copies_offset = size_of::<args::ExpertHead>() + 4 * (copies + world);
        let weights_offset = (copies_offset + 2 * pairs).next_multiple_of(PACKET_BYTES);
        let (most_rows, capacity) = match config.layout {
            Layout::ByRank => {
                let most = config.capacity.unwrap_or(world * max_tokens);
                (most, most)
            }
            Layout::ByExpert { align } => {
                let most = config.capacity.unwrap_or(world * pairs + most_local * (align - 1));
                (most, most)
            }
            Layout::Padded { rows } => (rows, rows * local),
        };
        if capacity > u32::MAX as usize / 2 {
            let limit = format!("a rank may receive {} rows", u32::MAX / 2);
            return Err(Error::invalid("the number of rows that may come at worst", capacity, limit));
        }
        Ok(Self {
            world,
            rank,
            experts,
            top_k,
            hidden,
            max_tokens,
            copies,
            first_copy: lists[..rank].iter().map(Vec::len).sum(),
            local,
            groups,
            payload_bytes,
            scales_offset,
            row_bytes: scales_offset + scale_bytes.next_multiple_of(PACKET_BYTES),
            part_bytes: (hidden * config.dtype.bytes()).next_multiple_of(PACKET_BYTES),
            copies_offset,
            weights_offset,
            head_bytes: (weights_offset + 4 * pairs).next_multiple_of(PACKET_BYTES),
            most_rows,
            capacity,
        })
    }

    /// Bytes of the heads of all ranks.
    fn heads_bytes(&self) -> usize {
        (self.world * self.head_bytes).next_multiple_of(ALIGN)
    }

    /// Where the heads of a slot begin in the region that ranks share.
    pub(super) fn heads_at(&self, slot: usize) -> usize {
        slot * self.heads_bytes()
    }

    /// Where rows begin that come from all ranks, and parts that go to all ranks.
    pub(super) fn rows_at(&self, slots: usize) -> usize {
        self.heads_at(slots)
    }

    /// Where parts begin that come from all ranks.
    pub(super) fn parts_at(&self, slots: usize) -> usize {
        let bytes = self.world * self.max_tokens * self.row_bytes.max(self.part_bytes);
        self.rows_at(slots) + bytes.next_multiple_of(ALIGN)
    }

    /// Bytes of the region.
    pub(super) fn region_bytes(&self, slots: usize) -> usize {
        self.parts_at(slots) + (self.world * self.max_tokens * self.part_bytes).next_multiple_of(ALIGN)
    }

    /// Words of what a slot counts: whether the call failed, rows of each local expert, and where the rows begin.
    pub(super) fn state_words(&self) -> usize {
        2 + 2 * self.local
    }

    /// Words of the places of a slot: of each pair, and of each token, of all ranks.
    pub(super) fn place_words(&self) -> usize {
        self.world * self.max_tokens * (self.top_k + 1)
    }
}

/// What kernels know of the placement: where the copies of each expert begin, the copies with their ranks, and the first
/// copy of each rank.
pub(super) fn table(lists: &[Vec<usize>], experts: usize) -> Vec<u32> {
    let mut copies = vec![Vec::new(); experts];
    let mut number = 0;
    let mut firsts = vec![0];
    for (rank, list) in lists.iter().enumerate() {
        for expert in list {
            copies[*expert].push(number | (rank as u32) << 16);
            number += 1;
        }
        firsts.push(number);
    }
    let mut begin = 0;
    let mut words = vec![0];
    for of_expert in &copies {
        begin += of_expert.len() as u32;
        words.push(begin);
    }
    words.extend(copies.into_iter().flatten());
    words.extend(firsts);
    words
}

#[cfg(test)]
#[path = "../../tests/unit/experts/form.rs"]
mod tests;
