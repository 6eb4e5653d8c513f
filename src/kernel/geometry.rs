//! Launch shapes: pure functions, so that every rank launches alike.

use super::args::{Geometry, kMaxBlocks as MAX_BLOCKS, kRingChannels as RING_CHANNELS};

/// Bytes of a packet, and most that a block keeps of one in shared memory.
const PACKET_BYTES: u32 = 16;
/// Shared memory of every block: its votes.
const VOTE_BYTES: u32 = 16;

/// What a device's launches may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A GPU: as many threads as a block has items.
    Gpu,
    /// The CPU: any number does.
    Host {
        /// Blocks a launch.
        blocks: u32,
        /// Threads a block.
        threads: u32,
    },
}

/// A launch and the packets of one source that a block handles at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) geometry: Geometry,
    pub(crate) lanes_log2: u32,
}

impl Launch {
    fn new(blocks: u32, threads: u32, shared_bytes: u32, programmatic: bool, lanes_log2: u32) -> Self {
        Self { geometry: Geometry { blocks, threads, shared_bytes, programmatic: programmatic.into() }, lanes_log2 }
    }
}

/// A push algorithm that moves `packets` packets from every source, in blocks of at most
/// `most_threads` threads. As many blocks as there are, so that a multiprocessor has few packets to wait for;
/// measured on 2 and 4 H200, where the shapes found by search are at most 3 % faster.
pub(crate) fn push(shape: Shape, world: u32, packets: u64, most_threads: u32) -> Launch {
    match shape {
        Shape::Host { blocks, threads } => Launch::new(blocks, threads, shared_bytes(world, 8), false, 8),
        Shape::Gpu => {
            let mut lanes_log2 = 5;
            while packets > u64::from(MAX_BLOCKS) << lanes_log2 && world << (lanes_log2 + 1) <= most_threads {
                lanes_log2 += 1;
            }
            let blocks = packets.div_ceil(1 << lanes_log2).clamp(1, MAX_BLOCKS.into()) as u32;
            Launch::new(blocks, world << lanes_log2, shared_bytes(world, lanes_log2), true, lanes_log2)
        }
    }
}

/// One packet of every rank for every lane.
fn shared_bytes(world: u32, lanes_log2: u32) -> u32 {
    VOTE_BYTES + (world << lanes_log2) * PACKET_BYTES
}

/// A broadcast of `packets` packets through scratch, each of which goes to the owner of its share first:
/// a thread for every packet of a share and owner, all ranks but the root.
pub(crate) fn relay(shape: Shape, world: u32, packets: u64) -> Launch {
    let owners = (world - 1).max(1);
    push(shape, owners, packets.div_ceil(owners.into()), 1024)
}

/// The zero-copy two-shot over a share of `packets` packets: one packet a thread, several tiles in
/// flight.
pub(crate) fn zero_copy(shape: Shape, packets: u64) -> Launch {
    const THREADS: u32 = 512;
    match shape {
        Shape::Host { blocks, threads } => Launch::new(blocks, threads, VOTE_BYTES, false, 10),
        Shape::Gpu => {
            let blocks = packets.div_ceil(THREADS.into()).clamp(1, 128) as u32;
            Launch::new(blocks, THREADS, VOTE_BYTES, true, THREADS.ilog2())
        }
    }
}

/// A ring over chunks of `packets` packets: a block a channel, no more than have a piece worth the
/// way, nor than run at once on every rank's device. Measured on 2 and 4 H200: fewer channels are slower at every
/// size from 16 MiB.
pub(crate) fn ring(shape: Shape, packets: u64, multiprocessors: u32) -> Launch {
    const THREADS: u32 = 512;
    match shape {
        Shape::Host { blocks, threads } => Launch::new(blocks.min(RING_CHANNELS), threads, VOTE_BYTES, false, 0),
        Shape::Gpu => {
            let channels =
                packets.div_ceil(THREADS.into()).clamp(1, RING_CHANNELS.min(multiprocessors).max(1).into()) as u32;
            Launch::new(channels, THREADS, VOTE_BYTES, true, 0)
        }
    }
}

/// One block with an item for every rank, or for every packet of its descriptor.
pub(crate) fn single(shape: Shape, items: u32) -> Launch {
    let threads = match shape {
        Shape::Host { threads, .. } => threads,
        Shape::Gpu => items.next_multiple_of(32),
    };
    Launch::new(1, threads, VOTE_BYTES + items * PACKET_BYTES, true, 0)
}

#[cfg(test)]
#[path = "../../tests/unit/kernel/geometry.rs"]
mod tests;
