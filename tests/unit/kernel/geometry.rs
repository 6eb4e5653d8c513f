//! Tests of `src/kernel/geometry.rs`, whose module they are.

use super::args::kClusteredByShare;
use super::*;
use crate::op::{ALL_REDUCE_NORM, Codec, REDUCE_SCATTER_NORM, REDUCE_SCATTER_NORM_ALL_GATHER};
use proptest::prelude::*;

#[test]
fn each_of_few_rows_has_a_cluster_where_all_ranks_get_all_rows() {
    let gpu = LaunchLimits { kind: DeviceLimits::Gpu, most_blocks: u32::MAX };
    let ops = [(&ALL_REDUCE_NORM, true), (&REDUCE_SCATTER_NORM, false), (&REDUCE_SCATTER_NORM_ALL_GATHER, true)];
    for (op, by_share) in ops {
        let (_, taken) = clustered_norm(gpu, 4, op.outputs_all_rows(), 4, 1024);
        assert_eq!(taken == kClusteredByShare, by_share, "{:?}", op.operation);
    }
    for (world, rows, packets, blocks, by_share) in [
        (4, 64, 1024, 256, true),
        (4, 68, 1024, 68, false),
        (4, 32, 2048, 256, true),
        (4, 36, 2048, 72, false),
        (4, 4, 3072, 8, false),
        (2, 16, 1024, 128, true),
        (2, 32, 1024, 128, false),
        (8, 16, 1024, 128, true),
        (8, 24, 1024, 24, false),
    ] {
        let (launch, taken) = clustered_norm(gpu, world, true, rows / world, packets);
        let found = (launch.geometry.blocks, taken == kClusteredByShare);
        assert_eq!(found, (blocks, by_share), "{rows} rows of {packets} packets, {world} ranks");
    }
}

proptest! {
    #[test]
    fn launches_fit_every_device(
        world in 2u32..=16, packets in 0u64..1 << 40, row in 1u64..=1 << 18, most_blocks in 1u32..400,
    ) {
        let gpu = LaunchLimits { kind: DeviceLimits::Gpu, most_blocks };
        for launch in [
            push(gpu, world, packets, 512),
            zero_copy(gpu, packets),
            ring(gpu, packets, 108),
            single(gpu, 2 * world),
            relay(gpu, world, packets),
            quantised(gpu, world, packets >> 6),
            two_shot_norm(gpu, world, packets, row, false),
            two_shot_norm(gpu, world, packets, row, true),
            one_shot_norm(gpu, packets, row, true),
            gathered_norm(gpu, packets, row, true),
            clustered_norm(gpu, 1, true, packets, row.min((NORM_COLUMNS * MOST_CLUSTERED_TILES).into())).0,
            clustered_norm(gpu, world.into(), true, packets, row.min((NORM_COLUMNS * MOST_CLUSTERED_TILES).into())).0,
        ] {
            let geometry = launch.geometry;
            prop_assert!((1..=MAX_BLOCKS.min(most_blocks)).contains(&geometry.blocks));
            prop_assert!((1..=1024).contains(&geometry.threads));
            prop_assert!(geometry.shared_bytes <= 48 << 10);
        }
        let launch = push(gpu, world, packets, 1024);
        prop_assert_eq!(launch.geometry.threads, world << launch.lanes_log2);
        let launch = quantised(gpu, world, packets >> 6);
        prop_assert!(launch.geometry.threads >= world << launch.lanes_log2);
        prop_assert!(launch.geometry.threads.is_multiple_of(32) && launch.geometry.threads <= 512);
        let launch = two_shot_norm(gpu, world, packets, row, true);
        prop_assert_eq!(launch.geometry.threads, world << launch.lanes_log2);
        for (shares, gathers) in [(1, true), (world.into(), true), (world.into(), false)] {
            let row = row.min((NORM_COLUMNS * MOST_CLUSTERED_TILES).into());
            let (launch, taken) = clustered_norm(gpu, shares, gathers, packets, row);
            let Geometry { blocks, threads, cluster, .. } = launch.geometry;
            // A cluster a row of any share, or fewer than that.
            prop_assert_eq!(taken == kClusteredByShare, shares > 1 && gathers && u64::from(blocks / cluster) == packets * shares);
            let tiles = row.div_ceil(NORM_COLUMNS.into()) as u32;
            // Without room for the largest cluster no row goes by clusters.
            prop_assert!((1..=MOST_CLUSTER).contains(&cluster) && (most_blocks < MOST_CLUSTER || blocks.is_multiple_of(cluster)));
            prop_assert!(threads.is_multiple_of(32 * tiles) && threads <= MOST_CLUSTERED_THREADS);
            prop_assert!(u64::from(threads * cluster) >= row && threads / tiles * cluster <= NORM_COLUMNS);
        }
        let launch = relay(gpu, world, packets);
        prop_assert_eq!(launch.geometry.threads, (world - 1) << launch.lanes_log2);
        prop_assert!((1..=most_blocks).contains(&rows(gpu, packets.max(1), row, true).blocks));
    }

    #[test]
    fn messages_between_pairs_are_cut_into_pieces_that_fit(
        bytes in 0u64..1 << 34, small in 0u64..1 << 16, streams in 1u32..=16, laps in 4u32..=11, channels in 1u32..=32,
        slot_packets in 16u32..1 << 16,
    ) {
        let args = PairsArgs { streams, stream_packets: 1 << laps, channels, slot_packets, ..PairsArgs::NONE };
        let room = u64::from((1u32 << laps) / 4 * 3 - 1);
        for (bytes, kind) in [(bytes, DeviceLimits::Gpu), (small, DeviceLimits::Gpu), (small, DeviceLimits::Host { blocks: 2, threads: 2 })] {
            let [piece_packets, pieces] = pair_pieces(LaunchLimits { kind, most_blocks: 99 }, &args, bytes);
            let [used_streams, used_channels] = pair_ways(&args, &PairEnd { bytes, piece_packets, pieces, ..PairEnd::NONE });
            if pieces == 0 {
                // Packets of 8 bytes, in streams, which also have room for a header.
                prop_assert!((1..=streams).contains(&used_streams) && used_channels == 0 && u64::from(piece_packets) <= room);
                prop_assert!(u64::from(used_streams * piece_packets) >= bytes.div_ceil(8));
                continue;
            }
            prop_assert!(bytes.div_ceil(8) > room * u64::from(streams));
            prop_assert_eq!([used_streams, used_channels], [1, pieces.min(channels)]);
            let (packets, whole) = (bytes.div_ceil(16), u64::from(piece_packets) * u64::from(pieces));
            prop_assert!(piece_packets >= 1 && piece_packets <= slot_packets);
            prop_assert!(whole >= packets && whole - packets < u64::from(piece_packets));
            // The numbers of pieces of the channels differ by at most one.
            let rounds = packets.div_ceil(u64::from(channels * slot_packets)).max(1);
            prop_assert!(u64::from(pieces) <= rounds * u64::from(channels));
        }
    }

    #[test]
    fn messages_between_pairs_have_blocks_that_run_at_once(
        world in 2u32..=16, bytes in 0u64..1 << 30, most_blocks in 1u32..400, blocks in 1u32..9, threads in 1u32..9,
    ) {
        let lanes = 2 * (world - 1);
        let mut args = PairsArgs {
            world, lanes, streams: 16, channels: if world > 8 { 16 } else { 32 }, stream_packets: 256, slot_packets: 2048,
            first: std::array::from_fn(|lane| lane as u8), ..PairsArgs::NONE
        };
        for kind in [DeviceLimits::Gpu, DeviceLimits::Host { blocks, threads }] {
            let shape = LaunchLimits { kind, most_blocks };
            let [piece_packets, pieces] = pair_pieces(shape, &args, bytes);
            let end = PairEnd { bytes, piece_packets, pieces, ..PairEnd::NONE };
            args.end = [end; 96];
            [args.used_streams, args.used_channels] = pair_ways(&args, &end);
            let geometry = pairs(shape, &args, 108);
            let at_once = if kind == DeviceLimits::Gpu { 108 } else { blocks };
            prop_assert!((1..=most_blocks.min(at_once)).contains(&geometry.blocks));
            prop_assert!((1..=512).contains(&geometry.threads));
            let tasks = lanes * (args.used_streams + args.used_channels);
            let each = tasks.div_ceil(geometry.blocks);
            prop_assert!(geometry.shared_bytes >= 32 + 24 * each && geometry.shared_bytes <= 48 << 10);
            let all = pairs(LaunchLimits { kind: DeviceLimits::Gpu, most_blocks: 400 }, &args, 132);
            prop_assert_eq!(all.blocks, tasks.min(132));
        }
    }

    #[test]
    fn the_host_has_no_more_blocks_than_the_group_allows(most_blocks in 1u32..9, blocks in 1u32..9, count in 1u64..99) {
        let host = LaunchLimits { kind: DeviceLimits::Host { blocks, threads: 2 }, most_blocks };
        for launch in [
            push(host, 3, count, 512),
            zero_copy(host, count),
            ring(host, count, 108),
            relay(host, 3, count),
            quantised(host, 3, count),
            two_shot_norm(host, 3, count, 9, true),
            one_shot_norm(host, count, 9, true),
            gathered_norm(host, count, 9, true),
        ] {
            prop_assert_eq!(launch.geometry.blocks, blocks.min(most_blocks));
        }
        prop_assert_eq!(rows(host, count, 9, true).blocks, blocks.min(most_blocks));
        prop_assert_eq!(single(host, 3).geometry.blocks, 1);
    }
}

proptest! {
    #[test]
    fn launches_by_a_codec_are_few_and_equal(units in 1u64..1 << 30, room in 1u64..1 << 14) {
        let share = quantised_share(units, room);
        let most = room.min(4096);
        prop_assert!((1..=most).contains(&share));
        let launches = units.div_ceil(share);
        prop_assert!(launches <= units.div_ceil(most));
        // No launch is tiny: the last launch falls short of `share` by less than one unit a launch.
        prop_assert!(launches * share - units < units.div_ceil(most));
    }
}

/// A multiprocessor with two blocks has no more units than two blocks need.
#[test]
fn units_of_a_codec_are_spread_over_all_blocks() {
    let gpu = LaunchLimits { kind: DeviceLimits::Gpu, most_blocks: u32::MAX };
    for (units, expected) in [
        (1, (1, 128)),
        (512, (128, 128)),
        (1024, (256, 128)),
        (2048, (256, 256)),
        (2341, (235, 320)),
        (4096, (256, 512)),
        (1 << 20, (256, 512)),
    ] {
        let Geometry { blocks, threads, .. } = quantised(gpu, 4, units).geometry;
        assert_eq!((blocks, threads), expected, "{units} units");
    }
}

/// With scratch of 4 MiB; MiB of messages of 16 bits, and the launches of each.
#[test]
fn large_messages_by_a_codec_are_cut_as_measured() {
    const MIB: u64 = 1 << 20;
    let launches = |world: u64, codec: Codec, mib: u64| {
        let room = quantised_slot((4 * MIB / 16).div_ceil(world), world) / codec.unit_packets();
        let units = (mib * MIB / 1024).div_ceil(world);
        units.div_ceil(quantised_share(units, room))
    };
    for (world, codec, expected) in [
        (4, Codec::Fp8, [1, 2, 4, 7]),
        (4, Codec::Int8, [1, 2, 4, 7]),
        (4, Codec::Int6, [1, 2, 3, 5]),
        (4, Codec::Int4, [1, 1, 2, 4]),
        (8, Codec::Fp8, [1, 2, 4, 8]),
        (8, Codec::Int6, [1, 2, 3, 6]),
        (8, Codec::Int4, [1, 1, 2, 4]),
    ] {
        assert_eq!([8, 16, 32, 64].map(|mib| launches(world, codec, mib)), expected, "{codec} over {world} ranks");
    }
}
