//! Tests of `src/kernel/geometry.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn launches_fit_every_device(world in 2u32..=16, packets in 0u64..1 << 40, row in 1u64..=1 << 18) {
        for launch in [
            push(Shape::Gpu, world, packets, 512),
            zero_copy(Shape::Gpu, packets),
            ring(Shape::Gpu, packets, 108),
            single(Shape::Gpu, 2 * world),
            relay(Shape::Gpu, world, packets),
            quantised(Shape::Gpu, world, packets >> 6),
            two_shot_norm(Shape::Gpu, world, (packets, row), false),
            two_shot_norm(Shape::Gpu, world, (packets, row), true),
            one_shot_norm(Shape::Gpu, (packets, row), true),
            gathered_norm(Shape::Gpu, packets, row, true),
            clustered_norm((packets, row.min((NORM_COLUMNS * MOST_CLUSTERED_TILES).into()))),
        ] {
            let geometry = launch.geometry;
            prop_assert!((1..=MAX_BLOCKS).contains(&geometry.blocks));
            prop_assert!((1..=1024).contains(&geometry.threads));
            prop_assert!(geometry.shared_bytes <= 48 << 10);
        }
        let launch = push(Shape::Gpu, world, packets, 1024);
        prop_assert_eq!(launch.geometry.threads, world << launch.lanes_log2);
        let launch = quantised(Shape::Gpu, world, packets >> 6);
        prop_assert!(launch.geometry.threads >= world << launch.lanes_log2);
        prop_assert!(launch.geometry.threads.is_multiple_of(32) && launch.geometry.threads <= 512);
        let launch = two_shot_norm(Shape::Gpu, world, (packets, row), true);
        prop_assert_eq!(launch.geometry.threads, world << launch.lanes_log2);
        let row = row.min((NORM_COLUMNS * MOST_CLUSTERED_TILES).into());
        let launch = clustered_norm((packets, row));
        let Geometry { blocks, threads, cluster, .. } = launch.geometry;
        let tiles = row.div_ceil(NORM_COLUMNS.into()) as u32;
        prop_assert!((1..=MOST_CLUSTER).contains(&cluster) && blocks.is_multiple_of(cluster));
        prop_assert!(threads.is_multiple_of(32 * tiles) && threads <= MOST_CLUSTERED_THREADS);
        prop_assert!(u64::from(threads * cluster) >= row && threads / tiles * cluster <= NORM_COLUMNS);
        let launch = relay(Shape::Gpu, world, packets);
        prop_assert_eq!(launch.geometry.threads, (world - 1) << launch.lanes_log2);
    }
}
