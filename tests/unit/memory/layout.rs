//! Tests of `src/memory/layout.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

fn regions(layout: &ArenaLayout) -> Vec<Region> {
    let scratch = [
        layout.meet,
        layout.agree,
        layout.counts,
        layout.flags,
        layout.one_shot_ll,
        layout.two_shot_ll,
        layout.one_shot_sentinel,
        layout.two_shot_sentinel,
        layout.ring,
        layout.recursive_doubling,
    ];
    let mut all =
        vec![layout.progress, layout.tables, layout.learned, layout.aside, layout.kernel_signals, layout.heap];
    all.extend([layout.pairs.region, layout.pairs.counts]);
    all.extend(scratch.iter().flat_map(|scratch| [scratch.region, scratch.state]));
    all.sort_by_key(|region| region.offset);
    all
}

proptest! {
    #[test]
    fn regions_are_aligned_disjoint_and_inside(
        world in 1usize..=16,
        ll in 1024u64..1 << 22,
        sentinel in 1024u64..1 << 24,
        heap in 0u64..1 << 30,
        pair in 4096u64..1 << 24,
        channels in 0u32..=65536,
        guard in 0u64..=4,
    ) {
        let config = Config {
            one_shot_ll_bytes: ll,
            two_shot_ll_bytes: ll + 1,
            one_shot_sentinel_bytes: Some(sentinel),
            two_shot_sentinel_bytes: sentinel + 1,
            ring_bytes: sentinel + 4096,
            recursive_doubling_bytes: ll,
            pair_bytes: pair,
            heap_bytes: heap,
            heap_channels: channels,
            guard_bytes: guard * ALIGN,
            ..Config::default()
        };
        let layout = ArenaLayout::new(world, &config).unwrap();
        let all = regions(&layout);
        for region in &all {
            prop_assert_eq!(region.offset % ALIGN, 0);
            prop_assert!(region.offset + region.bytes <= layout.bytes);
        }
        for pair in all.windows(2) {
            prop_assert!(pair[0].offset + pair[0].bytes + guard * ALIGN <= pair[1].offset);
        }
        // All bytes outside the regions are guards.
        let (_, guards) = ArenaLayout::guarded(world, &config).unwrap();
        let taken: u64 = all.iter().chain(&guards).map(|region| region.bytes).sum();
        let whole = if guard > 0 { taken == layout.bytes } else { guards.is_empty() };
        prop_assert!(whole);
        prop_assert!(layout.two_shot_sentinel.slot_packets * 16 * world as u64 >= layout.two_shot_sentinel.max_bytes);
        let PairScratch { streams, stream_packets, channels, slot_packets, region, .. } = layout.pairs;
        prop_assert!(stream_packets.is_power_of_two() && stream_packets >= args::kLeastStreamPackets && slot_packets >= 16);
        prop_assert!((1..=args::kPairStreams).contains(&streams) && (1..=args::kPairChannels).contains(&channels));
        let each = u64::from(streams * stream_packets + channels * args::kPairSlots * slot_packets) * 16;
        prop_assert!(each <= pair, "{each} of {pair} bytes");
        prop_assert!(u64::from(args::kPairStreamsOffset) + (world as u64 - 1) * each <= region.bytes);
        prop_assert_eq!(required_bytes(world, &config).unwrap(), layout.bytes);
    }
}

#[test]
fn a_world_there_cannot_be_needs_no_bytes() {
    for world in [0, 17, usize::MAX] {
        let message = required_bytes(world, &Config::default()).unwrap_err().to_string();
        assert!(message.contains(&format!("world size is {world}, but it must be 1 to 16")), "{message}");
    }
}

#[test]
fn a_rank_alone_takes_its_heap_and_at_most_a_mebibyte() {
    for (config, heap) in [(Config::default(), 64 << 20), (Config { heap_bytes: 0, ..Config::default() }, 0)] {
        let required = required_bytes(1, &config).unwrap();
        assert!(required <= heap + (1 << 20), "{required} bytes with a heap of {heap}");
    }
}

#[test]
fn a_small_communicator_of_eight_ranks_takes_at_most_16_mib() {
    let required = required_bytes(8, &Config::small()).unwrap();
    assert!(required <= 16 << 20, "{required}");
}

/// The tables of memory in the documents, in MiB.
#[test]
fn documents_have_the_bytes_that_are_required() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let heap = Config::default().heap_bytes;
    let rows = [
        ("`Config::default()`", Config::default()),
        ("groups of an environment but `tp`", Config { heap_bytes: heap, ..Config::default().sparing() }),
        ("`Config::small()`", Config::small()),
    ];
    let line = |(name, config): &(&str, Config)| {
        let cell = |world| format!(" {:.1} |", required_bytes(world, config).unwrap() as f64 / f64::from(1 << 20));
        format!("| {name} |{}", [1, 2, 4, 8, 16].map(cell).concat())
    };
    for document in ["docs/tuning.md", "docs/porting.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let missing: Vec<String> = rows.iter().map(line).filter(|row| !text.lines().any(|line| line == row)).collect();
        assert!(missing.is_empty(), "{document} lacks\n{}", missing.join("\n"));
    }
}

#[test]
fn default_scratch_of_eight_ranks_is_at_most_84_mib() {
    let config = Config { heap_bytes: 0, ..Config::default() };
    let required = required_bytes(8, &config).unwrap();
    assert!(required <= 84 << 20, "{required}");
}
