//! Launch shapes: pure functions, so that all ranks launch equally.

use super::PACKET_BYTES;
use super::args::{
    self, Geometry, NormArgs, PairEnd, PairsArgs, kClusteredSharedBytes as CLUSTERED_SHARED_BYTES,
    kMaxBlocks as MAX_BLOCKS, kMostByShareThreads as MOST_BY_SHARE_THREADS, kMostCluster as MOST_CLUSTER,
    kMostClusteredGroup as MOST_CLUSTERED_GROUP, kMostClusteredThreads as MOST_CLUSTERED_THREADS,
    kMostClusteredTiles as MOST_CLUSTERED_TILES, kMostNormBlocks as MOST_NORM_BLOCKS,
    kMostScaleBlocks as MOST_SCALE_BLOCKS, kMostScaleThreads as MOST_SCALE_THREADS, kNormColumns as NORM_COLUMNS,
    kNormLargestWords as NORM_LARGEST_WORDS, kNormSharedBytes as NORM_SHARED_BYTES, kPairTaskBytes as PAIR_TASK_BYTES,
    kRingChannels as RING_CHANNELS, kStagePackets as STAGE_PACKETS,
};
use super::expert_block::ExpertBlock;

/// Data of a packet of the protocol LL.
const LL_DATA_BYTES: u32 = 8;
/// Shared memory of every block, for its votes.
const VOTE_BYTES: u32 = 16;

/// The limits of a group's launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchLimits {
    pub(crate) kind: DeviceLimits,
    /// Most blocks of any launch: [`Config::most_blocks`](crate::Config::most_blocks).
    pub(crate) most_blocks: u32,
}

/// The limits of a device's launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceLimits {
    /// A GPU: a block has a thread for each of its items.
    Gpu,
    /// The CPU: any number of threads.
    Host {
        /// Blocks a launch.
        blocks: u32,
        /// Threads a block.
        threads: u32,
    },
}

impl LaunchLimits {
    /// `blocks`, limited to the most blocks of the group.
    fn most(self, blocks: u32) -> u32 {
        blocks.min(self.most_blocks)
    }

    /// A launch of `blocks` blocks, limited to the most blocks of the group. Kernels work with any number of blocks.
    pub(crate) fn launch(self, blocks: u32, threads: u32, shared_bytes: u32, programmatic: bool) -> Geometry {
        Geometry { blocks: self.most(blocks), threads, shared_bytes, programmatic: programmatic.into(), cluster: 0 }
    }
}

/// A launch, and the number of packets of one source that a block handles at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) geometry: Geometry,
    pub(crate) lanes_log2: u32,
}

impl Launch {
    fn new(geometry: Geometry, lanes_log2: u32) -> Self {
        Self { geometry, lanes_log2 }
    }
}

/// The launch of a push algorithm that moves `packets` packets from every source, in blocks of at most `most_threads`
/// threads. Uses as many blocks as possible, so that a multiprocessor waits for few packets. On 2 and 4 H200, shapes
/// found by search were at most 3 % faster.
pub(crate) fn push(limits: LaunchLimits, world: u32, packets: u64, most_threads: u32) -> Launch {
    match limits.kind {
        DeviceLimits::Host { blocks, threads } => {
            Launch::new(limits.launch(blocks, threads, shared_bytes(world, 8), false), 8)
        }
        DeviceLimits::Gpu => {
            let (mut lanes_log2, most_blocks) = (5, limits.most(MAX_BLOCKS));
            while packets > u64::from(most_blocks) << lanes_log2 && world << (lanes_log2 + 1) <= most_threads {
                lanes_log2 += 1;
            }
            let blocks = packets.div_ceil(1 << lanes_log2).clamp(1, most_blocks.into()) as u32;
            let shared_bytes = shared_bytes(world, lanes_log2);
            Launch::new(limits.launch(blocks, world << lanes_log2, shared_bytes, true), lanes_log2)
        }
    }
}

/// Shared memory for one packet of every rank in every lane.
fn shared_bytes(world: u32, lanes_log2: u32) -> u32 {
    VOTE_BYTES + (world << lanes_log2) * PACKET_BYTES as u32
}

/// Packets of a source of an all-reduce with a codec: the slots, of `slot_packets` each, are divided among all ranks except the
/// receiver, at memory lines.
pub(crate) fn quantised_slot(slot_packets: u64, world: u64) -> u64 {
    const LINE_PACKETS: u64 = args::kLinePackets as u64;
    slot_packets * world / (world - 1) / LINE_PACKETS * LINE_PACKETS
}

/// Most warps of a block of an all-reduce with a codec.
const MOST_TEAMS: u64 = 16;

/// A rank's share in each launch of a two-shot with a codec, in units. The share of all launches has `units` units, and a launch
/// has room for `room` units. The last launch may be smaller. No warp has a second unit, for which all ranks would wait: on 4 H100
/// 64 MiB of INT4 took 139 us in launches of 4854 units, and 16 MiB take 27 us in a launch of 4096. Launches are equally large:
/// 16 MiB of INT6 took 47 us as 13 MiB and 3 MiB, and 8 MiB take 22 us.
pub(crate) fn quantised_share(units: u64, room: u64) -> u64 {
    let launches = units.div_ceil(room.min(u64::from(MAX_BLOCKS) * MOST_TEAMS));
    units.div_ceil(launches.max(1))
}

/// The launch of an all-reduce with a codec that moves `units` units from every source: a warp for each unit. A lane clears a
/// packet of every source.
pub(crate) fn quantised(limits: LaunchLimits, world: u32, units: u64) -> Launch {
    const TEAM: u32 = 32;
    const LEAST_TEAMS: u64 = 4;
    match limits.kind {
        DeviceLimits::Host { blocks, threads } => Launch::new(limits.launch(blocks, threads, VOTE_BYTES, false), 5),
        DeviceLimits::Gpu => {
            // Units are spread over the multiprocessors: as many blocks as possible, with few units in each block.
            let most_blocks = limits.most(MAX_BLOCKS);
            let teams = units.div_ceil(most_blocks.into()).clamp(LEAST_TEAMS, MOST_TEAMS);
            let blocks = units.div_ceil(teams).clamp(1, most_blocks.into()) as u32;
            let threads = teams as u32 * TEAM;
            Launch::new(limits.launch(blocks, threads, VOTE_BYTES, true), (threads / world).ilog2())
        }
    }
}

/// The launch of a relayed broadcast of `packets` packets, each of which first goes to the owner of its share: one thread for
/// every packet of a share and every owner. All ranks except the root are owners.
pub(crate) fn relay(limits: LaunchLimits, world: u32, packets: u64) -> Launch {
    let owners = (world - 1).max(1);
    push(limits, owners, packets.div_ceil(owners.into()), 1024)
}

/// The launch of an exchange by escaped packets of chunks of `groups` groups of units: one thread for every unit and peer.
pub(crate) fn escaped(limits: LaunchLimits, world: u32, groups: u64) -> Launch {
    push(limits, world, groups * u64::from(args::kEscapedGroupUnits), 512)
}

/// The launch of a zero-copy two-shot over a share of `packets` packets: one packet a thread, several tiles in flight.
pub(crate) fn zero_copy(limits: LaunchLimits, packets: u64) -> Launch {
    const THREADS: u32 = 512;
    match limits.kind {
        DeviceLimits::Host { blocks, threads } => Launch::new(limits.launch(blocks, threads, VOTE_BYTES, false), 10),
        DeviceLimits::Gpu => {
            let blocks = packets.div_ceil(THREADS.into()).clamp(1, 128) as u32;
            Launch::new(limits.launch(blocks, THREADS, VOTE_BYTES, true), THREADS.ilog2())
        }
    }
}

/// The launch of a ring over chunks of `packets` packets: one block for each channel. Every channel must have enough data, and all
/// channels must run at once on every rank's device. On 2 and 4 H200, fewer channels were slower at every size from 16 MiB.
pub(crate) fn ring(limits: LaunchLimits, packets: u64, multiprocessors: u32) -> Launch {
    const THREADS: u32 = 512;
    match limits.kind {
        DeviceLimits::Host { blocks, threads } => {
            Launch::new(limits.launch(blocks.min(RING_CHANNELS), threads, VOTE_BYTES, false), 0)
        }
        DeviceLimits::Gpu => {
            let channels =
                packets.div_ceil(THREADS.into()).clamp(1, RING_CHANNELS.min(multiprocessors).max(1).into()) as u32;
            Launch::new(limits.launch(channels, THREADS, VOTE_BYTES, true), 0)
        }
    }
}

/// The launch of a scale of rows of `packets` packets: a packet a thread.
pub(crate) fn scale(limits: LaunchLimits, packets: u64) -> Geometry {
    let (blocks, threads, programmatic) = match limits.kind {
        DeviceLimits::Host { blocks, threads } => (blocks, threads, false),
        DeviceLimits::Gpu => {
            let blocks = packets.div_ceil(MOST_SCALE_THREADS.into()).clamp(1, MOST_SCALE_BLOCKS.into());
            (blocks as u32, MOST_SCALE_THREADS, true)
        }
    };
    limits.launch(blocks, threads, VOTE_BYTES, programmatic)
}

/// The launch of a norm of `count` rows of `packets` packets: a row a block, and a packet a thread.
pub(crate) fn rows(limits: LaunchLimits, count: u64, packets: u64, quantised: bool) -> Geometry {
    let (blocks, threads, programmatic) = match limits.kind {
        DeviceLimits::Host { blocks, threads } => (blocks, threads, false),
        DeviceLimits::Gpu => {
            let threads = packets.next_multiple_of(32).min(NORM_COLUMNS.into());
            (count.min(MOST_NORM_BLOCKS.into()) as u32, threads as u32, true)
        }
    };
    limits.launch(blocks, threads, NORM_SHARED_BYTES + largest_bytes(quantised, 0), programmatic)
}

/// Shared memory for the largest magnitudes in quantised rows: for the columns of a row, or a word for each of `items`.
fn largest_bytes(quantised: bool, items: u32) -> u32 {
    if quantised { NORM_LARGEST_WORDS.max(items.next_multiple_of(4)) * 4 } else { 0 }
}

/// The launch of a one-shot all-reduce and norm of `count` rows: a row a block, and a packet of its `packets` packets a
/// thread. Blocks of many rows are smaller, so that a multiprocessor has room for two.
pub(crate) fn one_shot_norm(limits: LaunchLimits, count: u64, packets: u64, quantised: bool) -> Launch {
    const MANY_ROWS: u64 = 128;
    let most_threads = if count > MANY_ROWS { 512 } else { 1024 };
    let lanes_log2 = |most: u32| packets.next_power_of_two().ilog2().clamp(5, most.ilog2());
    norm(limits, 1, lanes_log2(most_threads), count, packets, quantised)
}

/// Whether clusters of blocks can sum and norm rows. Rows must be whole packets at multiples of their size, with a few packets for
/// each column. Groups of quantised values must belong to consecutive threads, and quantised values must begin at multiples of
/// eight bytes. A launch must be able to have the blocks of the largest cluster. `elem_bytes`: bytes of a row's element.
pub(crate) fn takes_clusters(limits: LaunchLimits, norm: &NormArgs, elem_bytes: u32) -> bool {
    let operands = [norm.input, norm.residual, norm.weight, norm.residual_out.cast_const(), norm.output.cast_const()];
    let aligned = operands.iter().all(|operand| operand.addr().is_multiple_of(PACKET_BYTES));
    let (row, group) = (norm.hidden * elem_bytes, norm.quantised.elems * elem_bytes / PACKET_BYTES as u32);
    let codes = norm.quantised.values.addr().is_multiple_of(8);
    let groups = codes && (group == 0 || group.is_power_of_two() && group <= MOST_CLUSTERED_GROUP);
    let whole = row.is_multiple_of(PACKET_BYTES as u32) && norm.width == norm.hidden;
    let room = limits.most_blocks >= MOST_CLUSTER;
    room && aligned && groups && whole && row / PACKET_BYTES as u32 <= NORM_COLUMNS * MOST_CLUSTERED_TILES
}

/// The launch of an all-reduce and norm by clusters, with a thread for each of a row's `packets` packets, and the assignment of
/// rows to clusters (`kClustered*`). A cluster takes one of `count` rows at a time, in a two-shot one row of each of the
/// `shares`. `shares` is 1 in a one-shot. A small number of rows is spread over as many multiprocessors as clusters can use, in a
/// one-shot up to half of an H100: with more blocks, waiting for each other would cost more than it saves. In a two-shot with a
/// small number of rows each row of every share has its own cluster, if ranks gather rows: a cluster that only sends a row has
/// too little work. A block has the same columns of all tiles of a row.
pub(crate) fn clustered_norm(
    limits: LaunchLimits,
    shares: u64,
    gathers: bool,
    count: u64,
    packets: u64,
) -> (Launch, u32) {
    const TEAM: u64 = 32;
    const TOTALS_BYTES: u64 = 8;
    /// Most tiles of rows with a cluster for each row: an H100 has no room for more at once.
    const MOST_APART: u64 = 64;
    let tiles = packets.div_ceil(NORM_COLUMNS.into()).max(1);
    let teams = packets.min(NORM_COLUMNS.into()).div_ceil(TEAM).next_power_of_two();
    let most = u64::from(MOST_CLUSTER).min(teams);
    let least_of = |most_threads: u32| (teams * TEAM * tiles).div_ceil(most_threads.into()).next_power_of_two();
    let (least, least_apart) = (least_of(MOST_CLUSTERED_THREADS), least_of(MOST_BY_SHARE_THREADS));
    let all = count * shares;
    // Between two ranks, more clusters cost more than they save. For more than four ranks, threads use more registers.
    let (apart, narrowest) = if let 3..=4 = shares { (MAX_BLOCKS, least_apart.max(4).min(most)) } else { (128, most) };
    let fit_apart = all * tiles <= MOST_APART && least_apart <= most && all * narrowest <= limits.most(apart).into();
    let by_share = shares > 1 && gathers && count > 0 && fit_apart;
    let (rows, many_blocks, most_blocks) = match (shares, by_share) {
        (1, _) => (count, 64, MAX_BLOCKS),
        (_, true) => (all, limits.most(apart), apart),
        (_, false) => (count, 128, 128),
    };
    let cluster = 1 << (u64::from(many_blocks) / rows.max(1)).clamp(least.max(2).min(most), most).ilog2();
    let whole = u64::from(limits.most(most_blocks)) / cluster * cluster;
    let blocks = (rows * cluster).clamp(cluster, whole.max(cluster));
    let columns = teams * TEAM / cluster;
    let shared_bytes = u64::from(CLUSTERED_SHARED_BYTES) + (tiles - 1) * columns * TOTALS_BYTES;
    let geometry = limits.launch(blocks as u32, (columns * tiles) as u32, shared_bytes as u32, true);
    let taken = if by_share { args::kClusteredByShare } else { args::kClusteredByRow };
    (Launch::new(Geometry { cluster: cluster as u32, ..geometry }, 0), taken)
}

/// The launch of a two-shot all-reduce and norm of `count` rows that a rank reduces: a row a block, and a lane for each of
/// its `packets` packets, as far as a block has threads for the lanes of every rank.
pub(crate) fn two_shot_norm(limits: LaunchLimits, world: u32, count: u64, packets: u64, quantised: bool) -> Launch {
    const MOST_THREADS: u32 = 1024;
    let lanes_log2 = packets.next_power_of_two().ilog2().clamp(5, (MOST_THREADS / world).ilog2());
    norm(limits, world, lanes_log2, count, packets, quantised)
}

/// The launch of a fused norm of `count` rows, with a thread for every lane of every source.
fn norm(limits: LaunchLimits, sources: u32, lanes_log2: u32, count: u64, packets: u64, quantised: bool) -> Launch {
    let (blocks, threads, lanes_log2) = match limits.kind {
        DeviceLimits::Host { blocks, threads } => (blocks, threads, 8),
        DeviceLimits::Gpu => (count.clamp(1, MAX_BLOCKS.into()) as u32, sources << lanes_log2, lanes_log2),
    };
    let items = sources << lanes_log2;
    let arrived = if sources == 1 { 0 } else { items * PACKET_BYTES as u32 };
    let stage = if packets <= STAGE_PACKETS.into() { packets as u32 * PACKET_BYTES as u32 } else { 0 };
    let shared_bytes = NORM_SHARED_BYTES + arrived + largest_bytes(quantised, items) + stage;
    Launch::new(limits.launch(blocks, threads, shared_bytes, limits.kind == DeviceLimits::Gpu), lanes_log2)
}

/// The launch of a zero-copy norm of `count` rows that a rank reduces, of `packets` packets: a row a block, and a packet a
/// thread.
pub(crate) fn gathered_norm(limits: LaunchLimits, count: u64, packets: u64, quantised: bool) -> Launch {
    let geometry = rows(limits, count.clamp(1, MAX_BLOCKS.into()), packets, quantised);
    let stage = if packets <= STAGE_PACKETS.into() { packets as u32 * PACKET_BYTES as u32 } else { 0 };
    let shared_bytes = geometry.shared_bytes + stage;
    Launch { geometry: Geometry { shared_bytes, ..geometry }, lanes_log2: 0 }
}

/// The launch of a step of experts: a block for each unit, and a thread for each item of a unit.
pub(crate) fn experts(
    limits: LaunchLimits,
    step: &ExpertBlock,
    units: usize,
    items: usize,
    most_blocks: u32,
) -> Geometry {
    let blocks = units.clamp(1, most_blocks.min(MOST_NORM_BLOCKS) as usize) as u32;
    let (blocks, threads, programmatic) = match limits.kind {
        DeviceLimits::Host { blocks: most, threads } => (blocks.min(most), threads, false),
        DeviceLimits::Gpu => (blocks, items.clamp(1, step.most_threads() as usize).next_multiple_of(32) as u32, true),
    };
    let shared_bytes = VOTE_BYTES + 4 * (threads * args::kScanWords + step.words());
    limits.launch(blocks, threads, shared_bytes, programmatic)
}

/// How a message of `bytes` bytes between two ranks is cut: packets of a piece, and the number of pieces, which the channels of
/// `args` take in turn. Both ranks of a message cut alike. A message that fits the streams has no pieces in channels: a piece is
/// then the part of one stream. Other pieces fit a slot. Short ones are as long as a block moves at once; long messages have
/// pieces for all channels in every round.
pub(crate) fn pair_pieces(limits: LaunchLimits, args: &PairsArgs, bytes: u64) -> [u32; 2] {
    const LEAST_PACKETS: u64 = 256;
    const LINE_PACKETS: u64 = 32;
    // A header fits a stream too, and a quarter of the ring stays free.
    let room = u64::from(args.stream_packets / 4 * 3 - 1);
    let (packets, streams) = (bytes.div_ceil(LL_DATA_BYTES.into()), u64::from(args.streams));
    if packets <= room * streams {
        // On a CPU, parts cost more than they save.
        let least = if limits.kind == DeviceLimits::Gpu { LINE_PACKETS.min(room) } else { room };
        return [packets.div_ceil(streams).max(least) as u32, 0];
    }
    let (packets, channels) = (bytes.div_ceil(PACKET_BYTES as u64), u64::from(args.channels));
    let room = u64::from(args.slot_packets);
    let rounds = packets.div_ceil(channels * room).max(1);
    let even = packets.div_ceil(channels * rounds).next_multiple_of(LINE_PACKETS);
    let piece = even.max(LEAST_PACKETS).min(room);
    [piece as u32, packets.div_ceil(piece).clamp(1, u32::MAX.into()) as u32]
}

/// The streams and channels that a message takes part in. The first stream has the headers.
pub(crate) fn pair_ways(args: &PairsArgs, end: &PairEnd) -> [u32; 2] {
    if end.pieces > 0 {
        return [1, end.pieces.min(args.channels)];
    }
    let packets = end.bytes.div_ceil(LL_DATA_BYTES.into()) as u32;
    [packets.div_ceil(end.piece_packets).max(1), 0]
}

/// The launch of messages between pairs: a block for each way that has a part of a message. Blocks of all ranks wait for each
/// other, so all blocks must run at once. If the device has too few multiprocessors, a block takes several ways.
pub(crate) fn pairs(limits: LaunchLimits, args: &PairsArgs, multiprocessors: u32) -> Geometry {
    const MOST_THREADS: u32 = 512;
    /// Messages of a stream that teams of threads move at once.
    const MOST_TEAMS: u32 = 4;
    let tasks = args.lanes * (args.used_streams + args.used_channels);
    let (blocks, threads, programmatic) = match limits.kind {
        DeviceLimits::Host { blocks, threads } => (blocks, threads, false),
        DeviceLimits::Gpu => {
            let lanes = args.first.windows(2).take(args.lanes as usize);
            let teams = lanes.map(|lane| u32::from(lane[1] - lane[0])).max().unwrap_or(1).clamp(1, MOST_TEAMS);
            let part = |end: &PairEnd| match end.pieces {
                0 => teams * (end.piece_packets + 1).next_multiple_of(32),
                _ => end.piece_packets,
            };
            let ends = &args.end[..usize::from(args.first[args.lanes as usize])];
            let threads = ends.iter().map(part).max().unwrap_or(1).clamp(1, MOST_THREADS);
            (tasks.min(multiprocessors.max(1)), threads.next_multiple_of(32), true)
        }
    };
    let blocks = limits.most(blocks.min(MAX_BLOCKS));
    limits.launch(
        blocks,
        threads,
        VOTE_BYTES + PACKET_BYTES as u32 + PAIR_TASK_BYTES * tasks.div_ceil(blocks),
        programmatic,
    )
}

/// The launch of one block, with an item for every rank or for every packet of its descriptor.
pub(crate) fn single(limits: LaunchLimits, items: u32) -> Launch {
    let threads = match limits.kind {
        DeviceLimits::Host { threads, .. } => threads,
        DeviceLimits::Gpu => items.next_multiple_of(32),
    };
    Launch::new(limits.launch(1, threads, VOTE_BYTES + items * PACKET_BYTES as u32, true), 0)
}

#[cfg(test)]
#[path = "../../tests/unit/kernel/geometry.rs"]
mod tests;
