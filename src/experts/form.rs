//! Numbers and sizes derived from the settings of experts: pure functions, equal on every rank except for values of the rank's
//! own experts.

use super::config::{ExpertConfig, Layout, Method, Scales, Wire};
use crate::error::{Error, Result};
use crate::kernel::{PACKET_BYTES, args};

/// Alignment of all parts of a region.
const ALIGN: usize = 256;

/// Sizes of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertForm {
    pub(super) world: usize,
    pub(super) rank: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) hidden: usize,
    pub(super) max_tokens: usize,
    /// Expert replicas on all ranks.
    pub(super) replicas: usize,
    /// The number of this rank's first expert replica.
    pub(super) first_replica: usize,
    /// Expert replicas on this rank.
    pub(super) local: usize,
    /// Groups of a row that have a scale each.
    pub(super) groups: usize,
    /// Bytes of a row on the wire, without scales.
    pub(super) payload_bytes: usize,
    /// Offset of the scales in a staged row.
    pub(super) scales_offset: usize,
    /// Bytes of a staged row of a dispatch.
    pub(super) row_bytes: usize,
    /// Bytes of a staged row of a combine.
    pub(super) part_bytes: usize,
    /// Offsets of the replica numbers and of the weights in a routing header.
    pub(super) replicas_offset: usize,
    pub(super) weights_offset: usize,
    /// Bytes of a routing header.
    pub(super) header_bytes: usize,
    /// Most rows that a rank may receive; for padded layouts, most rows of an expert.
    pub(super) most_rows: usize,
    /// Number of rows that an operand for received rows must have.
    pub(super) capacity: usize,
}

impl ExpertForm {
    /// `lists`: the experts of every rank.
    pub(super) fn new(config: &ExpertConfig, rank: usize, lists: &[Vec<usize>]) -> Result<Self> {
        let &ExpertConfig { experts, top_k, hidden, max_tokens, .. } = config;
        let world = lists.len();
        let replicas: usize = lists.iter().map(Vec::len).sum();
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
        let replicas_offset =
            (size_of::<args::RoutingHeader>() + 4 * (replicas + world)).next_multiple_of(PACKET_BYTES);
        let weights_offset = (replicas_offset + 2 * pairs).next_multiple_of(PACKET_BYTES);
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
            // Ranks count all rows before they refuse, so a capacity does not limit the counts.
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
            replicas,
            first_replica: lists[..rank].iter().map(Vec::len).sum(),
            local,
            groups,
            payload_bytes,
            scales_offset,
            row_bytes: scales_offset + scale_bytes.next_multiple_of(PACKET_BYTES),
            part_bytes: (hidden * config.dtype.bytes()).next_multiple_of(PACKET_BYTES),
            replicas_offset,
            weights_offset,
            header_bytes: (weights_offset + 4 * pairs).next_multiple_of(PACKET_BYTES),
            most_rows,
            capacity,
        })
    }

    /// Bytes of the routing headers of all ranks.
    fn headers_bytes(&self) -> usize {
        (self.world * self.header_bytes).next_multiple_of(ALIGN)
    }

    /// Offset of the routing headers of a slot in the shared region, after the start flags, verdicts and flags of barriers.
    pub(super) fn headers_at(&self, slot: usize) -> usize {
        let barrier =
            (args::kStartFlagBytes + args::kVerdictBytes) as usize + 4 * self.world * args::kMaxBlocks as usize;
        barrier.next_multiple_of(ALIGN) + slot * self.headers_bytes()
    }

    /// Offset of the rows from all ranks, which is also the offset of the combine parts to all ranks.
    pub(super) fn rows_at(&self, slots: usize) -> usize {
        self.headers_at(slots)
    }

    /// Offset of the combine parts that a collective receives from all ranks.
    pub(super) fn parts_at(&self, slots: usize) -> usize {
        let bytes = self.world * self.max_tokens * self.row_bytes.max(self.part_bytes);
        self.rows_at(slots) + bytes.next_multiple_of(ALIGN)
    }

    /// Bytes of the region of a method other than packets. With direct access, combine parts reuse the place of rows.
    pub(super) fn region_bytes(&self, slots: usize, method: Method) -> usize {
        let coming = match method {
            Method::Direct if self.world > 1 => 0,
            _ => (self.world * self.max_tokens * self.part_bytes).next_multiple_of(ALIGN),
        };
        self.parts_at(slots) + coming
    }

    /// Words of the replica numbers in all routing headers, two numbers a word.
    pub(super) fn held_words(&self) -> usize {
        self.world * 2 * (self.max_tokens * self.top_k).div_ceil(4)
    }

    /// Words of a slot's counts: whether the call failed, and for each local expert the number of rows and the first row.
    pub(super) fn state_words(&self) -> usize {
        2 + 2 * self.local
    }

    /// Words of a slot's places: on this rank for each pair and for each token of all ranks, and on every rank for each token of
    /// this rank.
    pub(super) fn place_words(&self) -> usize {
        self.world * self.max_tokens * (self.top_k + 2)
    }
}

/// The placement, as the kernels of a rank read it: the first replica of each rank, a word for each expert, and choices. A token
/// uses the expert replica on its own rank, else all replicas in turn. Bits 20 to 24 of an expert's word contain the number of
/// replicas among which the rank chooses. For one replica, bits 0 to 15 contain its number and bits 16 to 19 its rank. For
/// several, bits 0 to 15 contain the index of the expert's first choice; a choice contains number and rank in the same bits.
pub(super) fn table(lists: &[Vec<usize>], rank: usize, experts: usize) -> Vec<u32> {
    let total = lists.iter().map(Vec::len).sum();
    let mut replicas = vec![Vec::new(); experts];
    let mut number = 0;
    let mut words = vec![0];
    for (holder, list) in lists.iter().enumerate() {
        for expert in list {
            replicas[*expert].push((holder, number | (holder as u32) << 16));
            number += 1;
        }
        words.push(number);
    }
    let mut choices = Vec::with_capacity(total);
    for of_expert in &replicas {
        let own = of_expert.iter().find(|(holder, _)| *holder == rank);
        words.push(match (own, &of_expert[..]) {
            (Some((_, replica)), _) | (None, [(_, replica)]) => 1 << 20 | replica,
            (None, several) => {
                let begin = choices.len() as u32;
                choices.extend(several.iter().map(|(_, replica)| *replica));
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
