//! The layout of an arena. It is equal on every rank and known before anything is allocated.

use crate::error::{Error, Result};
use crate::group::Config;
use crate::kernel::{PACKET_BYTES, args};

/// Number of independent channels of a signal pad.
pub const SIGNAL_CHANNELS: usize = 16;

/// Bytes of one kind of word of a signal pad, for every channel and rank.
pub(super) const fn words_bytes(channels: usize, world_size: usize) -> u64 {
    (channels * world_size * 4) as u64
}

/// Bytes of the heap that a symmetric buffer of `bytes` bytes takes.
pub(crate) const fn buffer_bytes(bytes: u64, world_size: usize) -> u64 {
    (bytes.next_multiple_of(ALIGN) + pad_bytes(SIGNAL_CHANNELS, world_size)).next_multiple_of(ALIGN)
}

/// Bytes of a signal pad: received signals, and this rank's counts of sent and awaited signals.
pub(super) const fn pad_bytes(channels: usize, world_size: usize) -> u64 {
    3 * words_bytes(channels, world_size)
}

/// Groups of units that a chunk of `bytes` bytes takes as escaped packets.
pub(crate) fn escaped_groups(bytes: u64) -> u64 {
    bytes.div_ceil(ESCAPED_GROUP_BYTES).max(1)
}

/// The capacity, in bytes of a chunk, of a slot for `bytes` bytes: whole groups.
pub(crate) fn escaped_room(bytes: u64) -> u64 {
    escaped_groups(bytes).saturating_mul(ESCAPED_GROUP_BYTES)
}

/// Data bytes of a group of units of escaped packets.
const ESCAPED_GROUP_BYTES: u64 =
    args::kEscapedGroupUnits as u64 * args::kEscapedUnitPackets as u64 * PACKET_BYTES as u64;

/// The alignment of every region.
pub(crate) const ALIGN: u64 = 256;

/// A range of bytes in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Scratch of one push protocol: the region that peers write, and the part of it that one call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scratch {
    pub(crate) region: Region,
    /// Block states of the protocol.
    pub(crate) state: Region,
    /// Packets per source in one buffer.
    pub(crate) slot_packets: u64,
    /// Largest message of one call, in bytes.
    pub(crate) max_bytes: u64,
}

/// Scratch of messages between pairs of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairScratch {
    /// Counts that peers write, and the streams and queues from every other rank.
    pub(crate) region: Region,
    /// This rank's counts of sent and received packets and pieces.
    pub(crate) counts: Region,
    /// Streams of a direction between two ranks, for short messages and headers.
    pub(crate) streams: u32,
    /// LL packets of a stream, a power of two.
    pub(crate) stream_packets: u32,
    /// Channels of a direction between two ranks, for long messages.
    pub(crate) channels: u32,
    /// Packets of a slot of a channel's queue.
    pub(crate) slot_packets: u32,
}

/// The regions of one rank's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaLayout {
    pub(crate) progress: Region,
    /// Peer tables; entry 0 holds the arenas themselves.
    pub(crate) tables: Region,
    /// Flags for the comparison of calls before they run.
    pub(crate) meet: Scratch,
    pub(crate) agree: Scratch,
    /// Counts that ranks send each other, and the counts that each rank has received.
    pub(crate) counts: Scratch,
    pub(crate) learned: Region,
    /// Barrier flags of the zero-copy algorithms.
    pub(crate) flags: Scratch,
    pub(crate) one_shot_ll: Scratch,
    pub(crate) two_shot_ll: Scratch,
    pub(crate) one_shot_sentinel: Scratch,
    pub(crate) two_shot_sentinel: Scratch,
    pub(crate) ring: Scratch,
    pub(crate) recursive_doubling: Scratch,
    pub(crate) pairs: PairScratch,
    /// Signals of the low-contention collectives, and of ranks that begin their first calls.
    pub(crate) aside: Region,
    /// Signals of kernels of the program.
    pub(crate) kernel_signals: Region,
    pub(crate) heap: Region,
    pub(crate) bytes: u64,
    /// Bytes of the guards between regions, and of the guards around the contents of a heap block.
    pub(crate) guard_bytes: u64,
}

const LL_DATA_BYTES: u64 = 8;
const SENTINEL_DATA_BYTES: u64 = 16;

/// Places regions one after the other, each followed by a guard.
struct LayoutCursor {
    at: u64,
    guard_bytes: u64,
    guards: Vec<Region>,
}

impl LayoutCursor {
    fn take(&mut self, bytes: u64) -> Result<Region> {
        let overflow = || Error::invalid("the arena", format!("{} + {bytes} bytes", self.at), "it must fit 64 bits");
        let region = Region { offset: self.at, bytes };
        let end = self.at.checked_add(bytes).ok_or_else(overflow)?;
        let aligned = end.checked_next_multiple_of(ALIGN).ok_or_else(overflow)?;
        self.at = aligned.checked_add(self.guard_bytes).ok_or_else(overflow)?;
        if self.guard_bytes > 0 {
            self.guards.push(Region { offset: end, bytes: self.at - end });
        }
        Ok(region)
    }

    fn state(&mut self) -> Result<Region> {
        self.take(u64::from(args::kMaxBlocks) * size_of::<args::BlockState>() as u64)
    }

    /// Reserves `buffers` rotating buffers, each with a slot for every source of every hop.
    fn scratch(&mut self, buffers: u64, sources: u64, slot_packets: u64, max_bytes: u64) -> Result<Scratch> {
        let state = self.state()?;
        let region = self.take(buffers * sources * slot_packets * PACKET_BYTES as u64)?;
        Ok(Scratch { region, state, slot_packets, max_bytes })
    }

    /// Reserves a ring's flags, counters, and queues with slots as large as `bytes` allow. A message of any size passes
    /// through the queues.
    fn ring(&mut self, bytes: u64) -> Result<Scratch> {
        let slots = u64::from(args::kRingChannels * args::kRingSlots);
        let slot_packets = bytes / PACKET_BYTES as u64 / slots;
        let state = self.state()?;
        let region = self.take(u64::from(args::kRingQueuesOffset) + slots * slot_packets * PACKET_BYTES as u64)?;
        Ok(Scratch { region, state, slot_packets, max_bytes: u64::MAX })
    }

    /// Reserves the counts of messages between pairs, and streams and queues of `bytes` bytes from every other rank.
    fn pairs(&mut self, world: u64, bytes: u64) -> Result<PairScratch> {
        const LEAST_STREAM_BYTES: u64 = 1024;
        const MOST_STREAM_PACKETS: u64 = 2048;
        const LEAST_SLOT_BYTES: u64 = 4096;
        // An eighth for the streams.
        let streams = (bytes / 8 / LEAST_STREAM_BYTES).clamp(1, args::kPairStreams.into());
        let room = bytes / 8 / streams / PACKET_BYTES as u64;
        let stream_packets = (1 << room.max(1).ilog2()).clamp(args::kLeastStreamPackets.into(), MOST_STREAM_PACKETS);
        let queues = bytes - streams * stream_packets * PACKET_BYTES as u64;
        let most = if world > 8 { args::kPairChannels / 2 } else { args::kPairChannels };
        let channels = (queues / LEAST_SLOT_BYTES / u64::from(args::kPairSlots)).clamp(1, most.into());
        let slots = channels * u64::from(args::kPairSlots);
        let slot_packets = queues / PACKET_BYTES as u64 / slots;
        let counts = self.take(u64::from(args::kPairCounts) * size_of::<u32>() as u64)?;
        let each = (streams * stream_packets + slots * slot_packets) * PACKET_BYTES as u64;
        let region = self.take(u64::from(args::kPairStreamsOffset) + (world - 1) * each)?;
        let [streams, stream_packets, channels, slot_packets] =
            [streams, stream_packets, channels, slot_packets].map(|number| number as u32);
        Ok(PairScratch { region, counts, streams, stream_packets, channels, slot_packets })
    }
}

impl ArenaLayout {
    /// Computes the layout for `world_size` ranks. A pure function.
    pub(crate) fn new(world_size: usize, config: &Config) -> Result<Self> {
        Self::guarded(world_size, config).map(|(layout, _)| layout)
    }

    /// The layout, and the guards after its regions.
    pub(crate) fn guarded(world_size: usize, config: &Config) -> Result<(Self, Vec<Region>)> {
        let (world, config) = (world_size as u64, &*config.of_world(world_size));
        let mut cursor = LayoutCursor { at: 0, guard_bytes: config.guard_bytes, guards: Vec::new() };
        let progress = cursor.take(size_of::<args::Progress>() as u64)?;
        let tables = cursor.take(u64::from(config.registrations) * size_of::<args::PeerTable>() as u64)?;
        let flag_bytes = u64::from(args::kMaxBlocks) * u64::from(args::kMaxWorld) * 4;
        let flags = cursor.scratch(1, 1, flag_bytes.div_ceil(PACKET_BYTES as u64), u64::MAX)?;
        let meet = cursor.scratch(2, u64::from(args::kMaxWorld), 2, u64::MAX)?;
        let agree = cursor.scratch(2, u64::from(args::kMaxWorld), 2, u64::MAX)?;
        let counts = cursor.scratch(2, u64::from(args::kMaxWorld), 4, u64::MAX)?;
        let learned = cursor.take(size_of::<args::Learned>() as u64)?;
        // One-shot: a source sends the whole message. Two-shot: a share of the message in each hop.
        let share = |bytes: u64, data: u64| bytes.div_ceil(data).div_ceil(world);
        let max = config.one_shot_ll_bytes;
        let one_shot_ll = cursor.scratch(2, world, max.div_ceil(LL_DATA_BYTES), max)?;
        let max = config.two_shot_ll_bytes;
        let two_shot_ll = cursor.scratch(2, 2 * world, share(max, LL_DATA_BYTES), max)?;
        let max = config.one_shot_sentinel_bytes_for(world_size);
        // A chunk of the same number of bytes also fits as escaped packets, which need additional words.
        let slot_packets = escaped_groups(max) * u64::from(args::kEscapedGroupPackets);
        let one_shot_sentinel = cursor.scratch(3, world, slot_packets, max)?;
        let max = config.two_shot_sentinel_bytes;
        let two_shot_sentinel = cursor.scratch(3, 2 * world, share(max, SENTINEL_DATA_BYTES), max)?;
        let ring = cursor.ring(config.ring_bytes)?;
        // A slot for every step, and one for the ranks beyond a power of two.
        let slots = (u64::from(world.ilog2()) + u64::from(!world.is_power_of_two())).max(1);
        let max = config.recursive_doubling_bytes;
        let recursive_doubling = cursor.scratch(2, slots, max.div_ceil(LL_DATA_BYTES), max)?;
        let pairs = cursor.pairs(world, config.pair_bytes)?;
        let aside = cursor.take(pad_bytes(SIGNAL_CHANNELS, world_size))?;
        let kernel_signals = cursor.take(pad_bytes(config.heap_channels as usize, world_size))?;
        let heap = cursor.take(config.heap_bytes)?;
        let layout = Self {
            progress,
            tables,
            meet,
            agree,
            counts,
            learned,
            flags,
            one_shot_ll,
            two_shot_ll,
            one_shot_sentinel,
            two_shot_sentinel,
            ring,
            recursive_doubling,
            pairs,
            aside,
            kernel_signals,
            heap,
            bytes: cursor.at,
            guard_bytes: config.guard_bytes,
        };
        Ok((layout, cursor.guards))
    }

    /// Regions of sentinel packets. On a GPU, a packet with all bits set is absent there. Every other region starts as
    /// zeros, and on the host these regions do too (`kernels/packet.cuh`).
    pub(crate) fn sentinel_regions(&self) -> [Region; 2] {
        [self.one_shot_sentinel.region, self.two_shot_sentinel.region]
    }
}

/// Device memory in bytes that a communicator of `world_size` ranks takes on each rank, before rounding up to the
/// device's granularity (2 MiB on current GPUs, a page on the host). Exact: nothing grows after opening. The host
/// device maps one more page, with the word on which waits sleep.
///
/// # Errors
/// [`Error::InvalidArgument`] for a world size or a setting outside its limits.
pub fn required_bytes(world_size: usize, config: &Config) -> Result<u64> {
    config.validate(world_size)?;
    ArenaLayout::new(world_size, config).map(|layout| layout.bytes)
}

#[cfg(test)]
#[path = "../../tests/unit/memory/layout.rs"]
mod tests;
