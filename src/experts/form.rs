//! Numbers and sizes that follow from the settings of experts: pure functions, equal on every rank but for the rank's own
//! experts.

use super::config::{ExpertConfig, Layout, Method, Scales, Wire};
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
        let copies_offset = (size_of::<args::ExpertHead>() + 4 * (copies + world)).next_multiple_of(PACKET_BYTES);
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
            Layout::BySource => (world * max_tokens, world * max_tokens),
        };
        if let Layout::ByExpert { align } = config.layout {
            // A capacity does not limit what ranks count before they refuse.
            let pairs = world * pairs;
            let most = pairs + most_local.min(pairs) * (align - 1);
            if most > u32::MAX as usize {
                let limit = format!("kernels count up to {}", u32::MAX);
                return Err(Error::invalid("the number of aligned rows that may come at worst", most, limit));
            }
        }
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

    /// Where the heads of a slot begin in the region that ranks share: behind greetings and flags of barriers.
    pub(super) fn heads_at(&self, slot: usize) -> usize {
        let barrier = (args::kExpertGreetingBytes + args::kExpertVerdictBytes) as usize
            + 4 * self.world * args::kMaxBlocks as usize;
        barrier.next_multiple_of(ALIGN) + slot * self.heads_bytes()
    }

    /// Where rows begin that come from all ranks, and parts that go to all ranks.
    pub(super) fn rows_at(&self, slots: usize) -> usize {
        self.heads_at(slots)
    }

    /// Where parts begin that come from all ranks by a collective.
    pub(super) fn parts_at(&self, slots: usize) -> usize {
        let bytes = self.world * self.max_tokens * self.row_bytes.max(self.part_bytes);
        self.rows_at(slots) + bytes.next_multiple_of(ALIGN)
    }

    /// Bytes of the region of a method other than packets. By direct access parts come where rows came.
    pub(super) fn region_bytes(&self, slots: usize, method: Method) -> usize {
        let coming = match method {
            Method::Direct if self.world > 1 => 0,
            _ => (self.world * self.max_tokens * self.part_bytes).next_multiple_of(ALIGN),
        };
        self.parts_at(slots) + coming
    }

    /// Words of the copies of all heads, two copies a word.
    pub(super) fn held_words(&self) -> usize {
        self.world * 2 * (self.max_tokens * self.top_k).div_ceil(4)
    }

    /// Words of what a slot counts: whether the call failed, rows of each local expert, and where the rows begin.
    pub(super) fn state_words(&self) -> usize {
        2 + 2 * self.local
    }

    /// Words of the places of a slot: of each pair and of each token of all ranks here, and of each own token on every rank.
    pub(super) fn place_words(&self) -> usize {
        self.world * self.max_tokens * (self.top_k + 2)
    }
}

/// What the kernels of a rank know of the placement: the first copy of each rank; a word for each expert; choices. A token
/// takes the copy on its own rank, else all copies in turn. The word of an expert has how many copies the rank chooses among in
/// bits 20 to 24. Where there is one, bits 0 to 19 say which: its number, and its rank from bit 16 on. Else bits 0 to 15 say
/// where its choices begin, which have such bits.
pub(super) fn table(lists: &[Vec<usize>], rank: usize, experts: usize) -> Vec<u32> {
    let total = lists.iter().map(Vec::len).sum();
    let mut copies = vec![Vec::new(); experts];
    let mut number = 0;
    let mut words = vec![0];
    for (holder, list) in lists.iter().enumerate() {
        for expert in list {
            copies[*expert].push((holder, number | (holder as u32) << 16));
            number += 1;
        }
        words.push(number);
    }
    let mut choices = Vec::with_capacity(total);
    for of_expert in &copies {
        let own = of_expert.iter().find(|(holder, _)| *holder == rank);
        words.push(match (own, &of_expert[..]) {
            (Some((_, copy)), _) | (None, [(_, copy)]) => 1 << 20 | copy,
            (None, several) => {
                let begin = choices.len() as u32;
                choices.extend(several.iter().map(|(_, copy)| *copy));
                (several.len() as u32) << 20 | begin
            }
        });
    }
    // Every placement has a table of the same length.
    choices.resize(total, 0);
    words.extend(choices);
    words
}

#[cfg(test)]
#[path = "../../tests/unit/experts/form.rs"]
mod tests;
